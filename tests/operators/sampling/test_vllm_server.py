"""The openai engine against a real server: vLLM on CPU with the embedded policy."""

import shutil

import pytest
from rounding import LOG_PROBS
from true_policy import TruePolicy
from vllm_server import EMBEDDED, VllmServer, vllm_python

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import Failure, OpenAIOptions, Prompt, Settings
from rejuice.operators.sampling.tokenizer import chat_encoder

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
EIGHT = Settings(n=8, max_tokens=24)
APIS = ("completions", "chat", "generate")
BRIEF = {"brief": True}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The embedded policy, with a template that takes arguments."""
    folder = tmp_path_factory.mktemp("policy") / "embedded"
    shutil.copytree(EMBEDDED, folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + "{% if brief %}{{ 'Tom' }}{% endif %}")
    return folder


@pytest.fixture(scope="module")
def server(policy, tmp_path_factory):
    vllm_python()
    server = VllmServer(policy, "stand-in", tmp_path_factory.mktemp("vllm") / "log")
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def truth():
    return TruePolicy(EMBEDDED)


@pytest.fixture
def make(server, policy):
    engines = []

    def make(api="completions", model="stand-in", kwargs=None, **fields):
        options = OpenAIOptions(base_url=server.url, api=api, **fields)
        kwargs = kwargs or {}
        encode = None if api == "chat" else chat_encoder(str(policy), kwargs)
        engine = OpenAIEngine(model, options, encode=encode, chat_template_kwargs=kwargs)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


def prompts(count):
    chat = "Tom has {} apples and buys {} more. How many apples does Tom have?"
    return [Prompt((("user", chat.format(k, k + 3)),), 1_000_003 * k) for k in range(count)]


def test_all_apis_give_the_same_samples_and_true_log_probabilities(make, truth):
    from transformers import AutoTokenizer

    end = AutoTokenizer.from_pretrained(EMBEDDED).eos_token_id
    found = {api: dict(make(api).sample(prompts(32), EIGHT)) for api in APIS}
    assert [g for groups in found.values() for g in groups.values() if isinstance(g, Failure)] == []
    for index, group in found["completions"].items():
        assert (group.policy, group.version, group.seed) == ("stand-in", 0, 1_000_003 * index)
        for api in ("chat", "generate"):
            assert found[api][index].prompt_token_ids == group.prompt_token_ids
            for mine, other in zip(group.samples, found[api][index].samples, strict=True):
                assert mine[:2] == other[:2]
                assert mine.logprobs == pytest.approx(other.logprobs, abs=LOG_PROBS)
        for sample in group.samples:
            expected = truth.logprobs(group.prompt_token_ids, sample.token_ids)
            assert sample.logprobs == pytest.approx(expected, abs=LOG_PROBS)
            assert (sample.token_ids[-1] == end) == (sample.finish_reason == "stop")
            assert (len(sample.token_ids) == 24) >= (sample.finish_reason == "length")
    samples = [sample for group in found["chat"].values() for sample in group.samples]
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}


def test_template_arguments_agree_on_both_sides(make):
    plain = dict(make().sample(prompts(2), EIGHT))
    here, there = (dict(make(api, kwargs=BRIEF).sample(prompts(2), EIGHT)) for api in APIS[:2])
    for index, group in here.items():
        before = plain[index].prompt_token_ids
        assert group.prompt_token_ids == there[index].prompt_token_ids
        assert group.prompt_token_ids[: len(before)] == before
        assert len(group.prompt_token_ids) > len(before)


@pytest.mark.parametrize("api", APIS)
def test_greedy_is_the_most_probable(make, truth, api):
    for _, group in make(api).sample(prompts(4), EIGHT._replace(n=1, temperature=0.0)):
        (sample,) = group.samples
        rows = truth.rows(group.prompt_token_ids, sample.token_ids)
        assert rows.argmax(-1).tolist() == list(sample.token_ids)


def test_samples_are_the_policy_s_own(make, truth):
    groups = [group for _, group in make().sample(prompts(64), EIGHT)]
    assert truth.p_value(groups) > 1e-4
    # The same test sees other distributions: here, one that is a little sharper.
    sharper = [g for _, g in make().sample(prompts(64), EIGHT._replace(temperature=0.6))]
    assert truth.p_value(sharper) < 1e-4


def test_samples_do_not_depend_on_the_batch(make):
    whole = dict(make().sample(prompts(32), EIGHT))
    part = dict(make(concurrency=2).sample(prompts(32)[20:24], EIGHT))
    for index, group in part.items():
        assert [s.token_ids for s in group.samples] == [
            s.token_ids for s in whole[20 + index].samples
        ]


def test_a_prompt_that_is_too_long_is_refused(make):
    long = Prompt((("user", "one " * 200),), 0)
    found = dict(make().sample([long, *prompts(2)], EIGHT))
    assert isinstance(found[0], Failure)
    assert found[0].reason == "request_refused"
    assert "maximum context length is 128" in found[0].detail
    assert "\n" not in found[0].detail
    assert len(found[1].samples) == len(found[2].samples) == 8


def test_settings_that_no_prompt_can_have_end_the_run(make):
    with pytest.raises(
        EngineError, match=r"answers no prompt: request_refused, 400: max_tokens=1000"
    ):
        list(make().sample(prompts(3), EIGHT._replace(max_tokens=1000)))


def test_another_model_is_not_there(make):
    with pytest.raises(EngineError, match=r"^the server has no model 'm'; it has stand-in$"):
        list(make(model="m").sample(prompts(3), EIGHT))


def test_weight_version_is_the_server_s(make, server):
    server.label_weights("7")
    assert {g.version for _, g in make("generate").sample(prompts(3), EIGHT)} == {7}


def test_killed_and_restarted_in_the_middle(make, server):
    engine, found = make(patience_s=170), []
    before = dict(make().sample(prompts(200), EIGHT))
    for result in engine.sample(prompts(200), EIGHT):
        found.append(result)
        if len(found) == 70:
            server.kill()
            server.start()
    assert sorted(index for index, _ in found) == list(range(200))
    # Not only once each: a prompt that was cut off has the samples it would have had.
    for index, group in found:
        assert [s.token_ids for s in group.samples] == [s.token_ids for s in before[index].samples]
    assert set(engine.failed_attempts) == {"connection_lost"}
