"""Sampling as an operator: what is asked of an engine, and what becomes of what it gives."""

import logging
import os

import pyarrow as pa
import pytest
from pydantic import ValidationError

from rejuice.operators import DataError
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, ROW_CONTRACT
from rejuice.operators.mapper import policy_rollout_mapper
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.operators.registry import code_version
from rejuice.operators.sampling import Failure, Group, Sample

SCHEMA = pa.schema([("prompt_id", pa.string()), ("prompt", MESSAGES)])


def table_of(*questions):
    rows = [
        {"prompt_id": f"id of {q}", "prompt": [{"role": "user", "content": q}]} for q in questions
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class Parrot:
    """Says each question backwards, last prompt first; a question may ask for a failure."""

    policy, version, exact = "parrot", 3, True

    def __init__(self):
        self.asked = []
        self.closed = 0

    def sample(self, prompts, settings):
        for index in reversed(range(len(prompts))):
            prompt = prompts[index]
            self.asked.append(prompt)
            text = prompt.messages[-1][1]
            if text.startswith("fail "):
                yield index, Failure(text.removeprefix("fail "), f"said of {text}")
                continue
            ids = (prompt.seed % 1000, 7) if self.exact else None
            samples = tuple(
                Sample(f"{text[::-1]} {k}", ids and (*ids, k), ids and (-0.5, -0.25, -k), "stop")
                for k in range(settings.n)
            )
            seen = (1, 2) if self.exact else None
            yield index, Group(self.policy, self.version, prompt.seed, seen, samples)

    def close(self):
        self.closed += 1


@pytest.fixture
def parrot(monkeypatch):
    parrot = Parrot()
    monkeypatch.setattr(policy_rollout_mapper, "sampler", lambda asked: parrot)
    monkeypatch.setattr(policy_rollout_mapper, "release", lambda asked: parrot.close())
    PolicyRolloutMapper().close()  # What an earlier test was told is forgotten.
    parrot.closed = 0
    return parrot


def test_one_row_becomes_n_rows(parrot):
    change = PolicyRolloutMapper(n=2, max_tokens=9).apply(table_of("ab", "cd"))
    assert change.parents.tolist() == [0, 0, 1, 1]
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    seeds = [prompt.seed for prompt in reversed(parrot.asked)]
    assert columns["response"] == ["ba 0", "ba 1", "dc 0", "dc 1"]
    assert columns["prompt_token_ids"] == [[1, 2]] * 4
    assert columns["response_token_ids"] == [[s % 1000, 7, k] for s in seeds for k in (0, 1)]
    assert columns["response_logprobs"] == [[-0.5, -0.25, -k] for _ in seeds for k in (0, 1)]
    assert columns["finish_reason"] == ["stop"] * 4
    assert (columns["policy"], columns["policy_version"]) == (["parrot"] * 4, [3] * 4)
    assert columns["sampling"] == [
        {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "seed": s} for s in seeds for _ in "ab"
    ]
    assert len(set(columns["response_id"])) == 4
    assert change.reasons.null_count == 2


def test_columns_have_the_types_of_the_contract(parrot):
    for table in (table_of("a", "b"), table_of("fail timeout"), table_of()):
        change = PolicyRolloutMapper(n=2).apply(table)
        assert set(change.columns) == set(PolicyRolloutMapper().writes())
        for name, column in change.columns.items():
            assert column.type == ROW_CONTRACT.get(name, pa.string()), name


def test_an_engine_without_token_ids(parrot):
    parrot.exact = False
    change = PolicyRolloutMapper(n=1, on_policy=False).apply(table_of("ab"))
    for name in ("prompt_token_ids", "response_token_ids", "response_logprobs"):
        assert change.columns[name].to_pylist() == [None]
    assert change.columns["response"].to_pylist() == ["ba 0"]


def test_the_contract_of_operators(parrot):
    table = table_of("one", "two", "fail timeout", "three")
    check_operator(PolicyRolloutMapper(n=3), table)


def test_the_stream_gives_what_apply_gives(parrot):
    table = table_of("one", "fail timeout", "two", "three", "three")
    operator = PolicyRolloutMapper(n=2)
    whole = operator.apply(table)
    parrot.asked.clear()
    stream = dict(operator.stream(table, [0, 1, 3, 4]))
    assert sorted(stream) == [0, 1, 3, 4]
    assert len(parrot.asked) == 3
    for row, change in stream.items():
        assert change.reasons.to_pylist() == [whole.reasons[row].as_py()]
        children = pa.array((whole.parents == row).nonzero()[0], pa.int64())
        assert change.parents.tolist() == [0] * len(children)
        for name, column in change.columns.items():
            assert column.to_pylist() == whole.columns[name].take(children).to_pylist(), name


def test_rows_that_are_no_prompt_are_dropped_and_not_asked(parrot):
    table = pa.concat_tables(
        [
            table_of("a", "a", "b"),
            pa.Table.from_pylist(
                [{"prompt_id": "c", "prompt": None}, {"prompt_id": "d", "prompt": []}],
                schema=SCHEMA,
            ),
        ]
    )
    change = PolicyRolloutMapper(n=1).apply(table)
    assert change.reasons.to_pylist() == [None, "repeated_prompt", None, "no_prompt", "no_prompt"]
    assert change.parents.tolist() == [0, 2]
    assert len(parrot.asked) == 2


def test_the_seed_of_a_prompt_is_its_own(parrot):
    def seeds(*questions, **fields):
        parrot.asked.clear()
        PolicyRolloutMapper(**fields).apply(table_of(*questions))
        return {prompt.messages[-1][1]: prompt.seed for prompt in parrot.asked}

    whole = seeds("a", "b", "c")
    assert len(set(whole.values())) == 3
    assert all(0 <= seed < 2**62 for seed in whole.values())
    assert seeds("c") == {"c": whole["c"]}
    other = seeds("a", "b", "c", seed=-1)
    assert set(other.values()).isdisjoint(whole.values())


def test_a_failure_is_a_decision(parrot, caplog):
    questions = [f"fail {slug}" for slug in ("timeout", "server_error", "timeout")]
    with caplog.at_level(logging.WARNING):
        change = PolicyRolloutMapper(n=1).apply(table_of("a", *questions[:2], "b"))
    assert change.reasons.to_pylist() == [None, "timeout", "server_error", None]
    assert sorted(caplog.messages) == [
        "a prompt failed with server_error: said of fail server_error",
        "a prompt failed with timeout: said of fail timeout",
    ]


def test_each_kind_of_failure_is_told_once(parrot, caplog):
    table = pa.concat_tables([table_of("a"), *[table_of("fail timeout")] * 1])
    ids = pa.array([str(i) for i in range(40)])
    prompts = pa.array(table["prompt"].to_pylist()[1:] * 39 + table["prompt"].to_pylist()[:1])
    many = pa.table({"prompt_id": ids, "prompt": prompts.cast(MESSAGES)})
    operator = PolicyRolloutMapper(n=1)
    with caplog.at_level(logging.WARNING):
        change = operator.apply(many)
        operator.apply(many)
    assert change.reasons.to_pylist() == ["timeout"] * 39 + [None]
    assert len(caplog.messages) == 1


OTHER_PROMPTS = {
    "text": (["1 + 1?"], pa.string(), "column 'prompt' is string"),
    "no content": (
        [[{"role": "user"}]],
        pa.list_(pa.struct([("role", pa.string())])),
        "messages in 'prompt' have no 'content'",
    ),
    "images": (
        [[{"role": "user", "content": [{"type": "text", "text": "a"}]}]],
        None,
        "'content' of the messages in 'prompt' is list",
    ),
    "tools": (
        [[{"role": "tool", "content": "3", "tool_call_id": "x"}]],
        None,
        "messages in 'prompt' have a 'tool_call_id', which the policy would not see",
    ),
}


@pytest.mark.parametrize("case", OTHER_PROMPTS)
def test_prompts_that_would_lose_something_are_refused(parrot, case):
    prompts, kind, said = OTHER_PROMPTS[case]
    table = pa.table({"prompt_id": ["a"], "prompt": pa.array(prompts, kind)})
    with pytest.raises(DataError) as caught:
        PolicyRolloutMapper().apply(table)
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("lists of messages with role and content")
    assert parrot.asked == []


def test_fields_of_messages_that_are_always_null_do_no_harm(parrot):
    message = {"role": "user", "content": "ab", "tool_calls": None}
    kind = pa.list_(pa.struct([(name, pa.string()) for name in message]))
    table = pa.table({"prompt_id": ["a"], "prompt": pa.array([[message]], kind)})
    change = PolicyRolloutMapper(n=1).apply(table)
    assert change.columns["response"].to_pylist() == ["ba 0"]


def test_messages_without_role_or_content_are_no_prompt(parrot):
    chats = [
        [{"role": "user", "content": None}],
        [{"role": None, "content": "a"}],
        [None],
        [{"role": "user", "content": "a"}, None],
        [{"role": "user", "content": ""}],
    ]
    table = pa.table({"prompt_id": list("abcde"), "prompt": pa.array(chats, MESSAGES)})
    change = PolicyRolloutMapper(n=1).apply(table)
    assert change.reasons.to_pylist() == [*["no_prompt"] * 4, None]


def test_where_nobody_knows_how_it_was_sampled_nothing_is_said(parrot, monkeypatch):
    group = Group("p", 0, None, (1,), (Sample("x", (2,), (-1.0,), "stop"),))
    monkeypatch.setattr(parrot, "sample", lambda prompts, settings: iter([(0, group)]))
    change = PolicyRolloutMapper(n=1).apply(table_of("a"))
    assert change.columns["sampling"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 0.7}, "on_policy needs temperature: 1 and top_p: 1"),
        ({"top_p": 0.9}, "on_policy needs temperature: 1 and top_p: 1"),
        ({"engine": "openai"}, "engine openai needs model, its name on the server"),
        ({"engine": "recorded"}, "engine recorded needs recorded: {path: …}"),
        ({"temperature": 0, "on_policy": False}, "it needs n: 1"),
        ({"openai": {"base_url": "localhost:8000"}}, "it must begin with http:// or https://"),
        ({"n": 0}, "greater than 0"),
        ({"engine": "sglang"}, "'transformers', 'openai', 'vllm' or 'recorded'"),
    ],
)
def test_fields_that_do_not_fit(fields, said):
    with pytest.raises(ValidationError, match=said):
        PolicyRolloutMapper(**fields)


def test_other_temperatures_are_for_evaluation():
    assert PolicyRolloutMapper(temperature=0, top_p=0.5, n=1, on_policy=False).n == 1


def test_what_decides_the_samples_and_what_does_not():
    def same(one, other):
        first, second = (PolicyRolloutMapper(**fields).identity() for fields in (one, other))
        return first == second

    server = {"engine": "openai", "model": "m"}
    assert same(server, {**server, "openai": {"base_url": "http://other:1/v1", "concurrency": 3}})
    assert same({}, {"transformers": {"workers": 5, "rows": 7, "device": "cuda:1"}})
    assert same({}, {"vllm": {"dtype": "float32"}})  # Not the engine that is asked.
    assert not same({}, {"transformers": {"dtype": "bfloat16"}})
    assert not same(server, {**server, "openai": {"tokenizer": "t"}})
    assert not same(server, {**server, "policy_version": 1})
    for field in ("n", "seed", "max_tokens"):
        assert not same({}, {field: 5})


def test_the_content_of_files_decides(tmp_path):
    def state(**fields):
        return PolicyRolloutMapper(**fields).identity()

    folder = {"model": str(tmp_path)}
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = state(**folder)
    os.utime(tmp_path / "model.safetensors", (1, 1))
    (tmp_path / "README.md").write_text("what it is")
    assert state(**folder) == before  # Neither the time nor what no engine reads.
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert state(**folder) != before

    tokenizer = {"engine": "openai", "model": "m", "openai": {"tokenizer": str(tmp_path)}}
    before = state(**tokenizer)
    (tmp_path / "chat_template.jinja").write_text("x")
    assert state(**tokenizer) != before

    record = {"engine": "recorded", "recorded": {"path": str(tmp_path / "run.parquet")}}
    (tmp_path / "run.parquet").write_bytes(b"one")
    before = state(**record)
    (tmp_path / "run.parquet").write_bytes(b"two")
    assert state(**record) != before


def test_an_edit_of_the_source_does_not_cost_the_samples():
    assert code_version(PolicyRolloutMapper) == PolicyRolloutMapper.code


def test_closing_closes_the_engine(parrot):
    operator = PolicyRolloutMapper(n=1)
    operator.apply(table_of("a"))
    operator.close()
    assert parrot.closed == 1
