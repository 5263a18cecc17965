"""Judges at servers of several kinds: what is sent, what a refusal says, and what keys depend on."""

import pyarrow as pa
import pytest
from fake_judge import FakeJudge

from rejuice.operators import EngineError, RecipeError
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.mapper.llm_verify_mapper import LlmVerifyMapper
from rejuice.operators.registry import build

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "patience_s": 60.0, "attempts": 3}


class Strict(FakeJudge):
    """Refuses some fields, and has finish reasons of its own.

    Args:
        refuses: field -> the message that refuses it.
        ending: finish reason of its answers.
        **rest: see FakeJudge.
    """

    def __init__(self, refuses=None, *, ending="stop", **rest):
        self.refuses, self.ending, self.sent = refuses or {}, ending, []
        super().__init__(**rest)

    def refusal(self, path, body):
        self.sent.append(body)
        for name, message in self.refuses.items():
            if name in body:
                return 400, {"error": {"message": message, "param": name}}
        return None

    def answer(self, path, body, seed, attempt, n):
        found = super().answer(path, body, seed, attempt, n)
        found["choices"][0]["finish_reason"] = self.ending
        return found


O1 = {"max_tokens": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}


def judged(serving, *, cache=None, **fields):
    """The rewards of three responses, and why they are missing."""
    own = {"base_url": serving.url, **QUICK, **fields.pop("server", {})}
    mapper = LlmQualityRewardMapper(model="m", server=own, cache=cache, **fields)
    chat = [{"role": "user", "content": "Why?"}]
    table = pa.table(
        {
            "prompt_id": ["p"] * 3,
            "prompt": pa.array([chat] * 3, MESSAGES),
            "response": [f"response {number}" for number in range(3)],
        }
    )
    try:
        found = mapper.apply(table).columns
    finally:
        mapper.close()
    return [found[name].to_pylist() for name in ("reward_quality", "reward_quality_missing")]


def test_a_limit_of_another_name():
    with Strict(O1) as server:
        with pytest.raises(EngineError) as error:
            judged(server)
        assert str(error.value).endswith(
            "Use 'max_completion_tokens' instead; set server: {token_limit: max_completion_tokens}"
        )
        rewards, missing = judged(server, server={"kind": "openai"}, max_tokens=77)
        assert (missing, None in rewards) == ([None] * 3, False)
        assert server.sent[-1]["max_completion_tokens"] == 77
        assert "max_tokens" not in server.sent[-1]


def test_a_server_that_refuses_a_format_of_answers():
    with Strict({"response_format": "response_format is not supported"}) as server:
        with pytest.raises(EngineError) as error:
            judged(server)
        assert str(error.value) == (
            f"{server.url} answers no prompt: request_refused, 400: response_format is not "
            "supported; set answer_format: text"
        )
        assert judged(server, answer_format="text")[1] == [None] * 3


def test_a_model_of_one_temperature():
    with Strict({"temperature": "Unsupported value: 'temperature' does not support 0"}) as server:
        with pytest.raises(EngineError, match=r"; set temperature: 1$"):
            judged(server)
        with pytest.raises(EngineError, match=r"; set server: {defaults: left_out}$"):
            judged(server, temperature=1)
        assert judged(server, temperature=1, server={"defaults": "left_out"})[1] == [None] * 3


def test_finish_reasons_of_its_own():
    with Strict(ending="eos_token") as server:
        with pytest.raises(EngineError) as error:
            judged(server)
        assert (
            "it finished with 'eos_token'; set server: {finish_reasons: {eos_token: stop}} if"
            in (str(error.value))
        )
        assert judged(server, server={"kind": "tgi"})[1] == [None] * 3
        cut = judged(server, server={"finish_reasons": {"eos_token": "length"}})
        assert cut == [[None] * 3, ["scorer_malformed"] * 3]


@pytest.mark.parametrize(("seed", "seeded"), [("64_bit", True), ("32_bit", True), ("none", False)])
def test_seeds_of_tries(seed, seeded):
    says = {number: ["I cannot say."] * 9 for number in range(3)}
    with Strict(says=says) as server:
        found = judged(server, temperature=0.5, tries=2, server={"seed": seed})
    assert found == [[None] * 3, ["scorer_malformed"] * 3]
    assert len(server.sent) == 6
    assert [("seed" in body) for body in server.sent] == [seeded] * 6
    if seeded:
        seeds = sorted(body["seed"] for body in server.sent)
        assert all(0 <= each < 1 << 31 for each in seeds)
        assert [other - one for one, other in zip(seeds[::2], seeds[1::2], strict=True)] == [1] * 3


def test_how_the_server_differs_costs_no_answer(tmp_path):
    """Those that are paid for are found, whatever the limit is called."""
    with Strict() as server:
        first = judged(server, cache=tmp_path / "scores.answers")
        asked = len(server.sent)
        more = {"kind": "openai", "finish_reasons": {"x": "stop"}, "models": False}
        assert judged(server, cache=tmp_path / "scores.answers", server=more) == first
        assert len(server.sent) == asked


@pytest.mark.parametrize("mapper", [LlmQualityRewardMapper, LlmVerifyMapper])
def test_only_a_seed_that_is_not_sent_is_in_the_key(mapper):
    def key(temperature=0.0, **server):
        return mapper(model="m", temperature=temperature, server=server).cache_key_fields()

    assert "server" not in key()
    assert key() == key(kind="tgi") == key(kind="llama_cpp") == key(seed="none")
    assert key(0.5) == key(0.5, kind="ollama")
    assert key(0.5, seed="none") == key(0.5) | {"server": {"seed": "none"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameters": {"max_tokens": None}}, "parameters must not name 'max_tokens', which the field max_tokens sets; if the server has another name for it, set server: {token_limit: max_completion_tokens}"),
        ({"parameters": {"max_completion_tokens": 9}, "server": {"kind": "openai"}}, "parameters must not name 'max_completion_tokens', which is set already"),
        ({"server": {"token_limit": "max_token"}}, "field 'server.token_limit' is 'max_token'; input should be 'max_tokens' or 'max_completion_tokens'"),
        ({"server": {"kinds": "tgi"}}, "unknown field 'server.kinds'; did you mean 'kind'?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mapper", [LlmQualityRewardMapper, LlmVerifyMapper])
def test_wrong_fields_are_one_line(mapper, fields, message):
    with pytest.raises(RecipeError) as error:
        build(mapper, {"model": "m", **fields})
    assert str(error.value) == message


def test_a_limit_among_the_parameters_is_still_sent_beside_ours():
    """As it always was: some servers take both."""
    with Strict() as server:
        judged(server, parameters={"max_completion_tokens": 9})
    assert (server.sent[-1]["max_completion_tokens"], server.sent[-1]["max_tokens"]) == (9, 512)
