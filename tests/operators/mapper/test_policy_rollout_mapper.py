"""Sampling as an operator: what is requested of an engine, and what becomes of what it gives."""

import logging
import os
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fake_server import FakeServer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from stub_engine import StubEngine

from rejuice.operators import DataError, EngineError, Groups
from rejuice.operators.cache_key import code_version
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, ROW_CONTRACT
from rejuice.operators.mapper import policy_rollout_mapper
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.operators.operator import RowsOfChunk
from rejuice.operators.sampling import Failure, Group, Sample, rollout
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load
from tools.embedded_policy.problems import JUDGE_TEMPLATE

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
        self.requested = []
        self.closed = 0

    def sample(self, prompts, settings):
        for index, prompt in reversed(list(enumerate(prompts))):
            self.requested.append(prompt)
            text = prompt.messages[-1][1]
            if text.startswith("fail "):
                yield index, Failure(text.removeprefix("fail "), f"details of {text}")
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
    monkeypatch.setattr(policy_rollout_mapper, "open_engine", lambda spec: parrot)
    monkeypatch.setattr(rollout, "release", lambda spec: parrot.close())
    PolicyRolloutMapper().close()  # Forget the failures that earlier tests logged.
    parrot.closed = 0
    return parrot


def test_one_row_becomes_n_rows(parrot):
    change = PolicyRolloutMapper(n=2, max_tokens=9).apply(table_of("ab", "cd"))
    assert change.parents.tolist() == [0, 0, 1, 1]
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    seeds = [prompt.seed for prompt in reversed(parrot.requested)]
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
    parrot.requested.clear()
    stream = dict(operator.process_rows(table, [0, 1, 3, 4]))
    assert sorted(stream) == [0, 1, 3, 4]
    assert len(parrot.requested) == 3
    for row, change in stream.items():
        assert change.reasons.to_pylist() == [whole.reasons[row].as_py()]
        children = pa.array((whole.parents == row).nonzero()[0], pa.int64())
        assert change.parents.tolist() == [0] * len(children)
        for name, column in change.columns.items():
            assert column.to_pylist() == whole.columns[name].take(children).to_pylist(), name


def test_what_was_sampled_is_not_lost_by_a_chunk_that_cannot_be_read(monkeypatch):
    """Nor what is under way: the server answers only once all of it is."""

    def chunks():
        for table in table_of("a", "b"), table_of("c"):
            yield RowsOfChunk(table, range(table.num_rows))
        raise DataError("chunk 2 is damaged", "remove it")

    with FakeServer(crowd=3) as server:
        options = {"base_url": server.url, "api": "chat", "concurrency": 8}
        step = PolicyRolloutMapper(n=1, engine="openai", model="m", openai=options, on_policy=False)
        found = []
        with pytest.raises(DataError, match="chunk 2 is damaged"):
            found.extend((number, row) for number, row, _ in step.process_chunks(chunks()))
        step.close()
    assert sorted(found) == [(0, 0), (0, 1), (1, 0)]


def test_rows_without_a_prompt_are_dropped_and_not_sampled(parrot):
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
    assert len(parrot.requested) == 2


def test_the_seed_of_a_prompt_is_its_own(parrot):
    def seeds(*questions, **fields):
        parrot.requested.clear()
        PolicyRolloutMapper(**fields).apply(table_of(*questions))
        return {prompt.messages[-1][1]: prompt.seed for prompt in parrot.requested}

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
        "a prompt failed with server_error: details of fail server_error",
        "a prompt failed with timeout: details of fail timeout",
    ]


def test_each_kind_of_failure_is_logged_once(parrot, caplog):
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
        "column 'prompt' is list<item: struct<role: string>>",
    ),
    "images": (
        [[{"role": "user", "content": [{"type": "text", "text": "a"}]}]],
        None,
        "column 'prompt' is list<item: struct<role: string, content: list<",
    ),
    "tools": (
        [[{"role": "tool", "content": "3", "tool_call_id": "x"}]],
        None,
        "messages in 'prompt' have a 'tool_call_id', which the policy would not see",
    ),
}


@pytest.mark.parametrize("case", OTHER_PROMPTS)
def test_prompts_that_would_lose_something_are_refused(parrot, case):
    prompts, kind, expected_text = OTHER_PROMPTS[case]
    table = pa.table({"prompt_id": ["a"], "prompt": pa.array(prompts, kind)})
    with pytest.raises(DataError) as caught:
        PolicyRolloutMapper().apply(table)
    assert str(caught.value).startswith(expected_text)
    assert str(caught.value).endswith("lists of messages with role and content")
    assert parrot.requested == []


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


def test_unknown_sampling_parameters_are_null(parrot, monkeypatch):
    group = Group("p", 0, None, (1,), (Sample("x", (2,), (-1.0,), "stop"),))
    monkeypatch.setattr(parrot, "sample", lambda prompts, settings: iter([(0, group)]))
    change = PolicyRolloutMapper(n=1).apply(table_of("a"))
    assert change.columns["sampling"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("fields", "expected_text"),
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
def test_fields_that_do_not_fit(fields, expected_text):
    with pytest.raises(ValidationError, match=expected_text):
        PolicyRolloutMapper(**fields)


def test_other_temperatures_are_for_evaluation():
    assert PolicyRolloutMapper(temperature=0, top_p=0.5, n=1, on_policy=False).n == 1


def test_what_decides_the_samples_and_what_does_not():
    def same(one, other):
        first, second = (
            PolicyRolloutMapper(**fields).cache_key_fields() for fields in (one, other)
        )
        return first == second

    server = {"engine": "openai", "model": "m"}
    assert same(server, {**server, "openai": {"base_url": "http://other:1/v1", "concurrency": 3}})
    assert same({}, {"transformers": {"workers": 5, "rows": 7, "device": "cuda:1"}})
    assert same({}, {"vllm": {"dtype": "float32"}})  # Not the engine that is used.
    assert not same({}, {"transformers": {"dtype": "bfloat16"}})
    assert not same(server, {**server, "openai": {"tokenizer": "t"}})
    assert not same(server, {**server, "policy_version": 1})
    for field in ("n", "seed", "max_tokens"):
        assert not same({}, {field: 5})


def test_the_content_of_files_decides(tmp_path):
    def state(**fields):
        return PolicyRolloutMapper(**fields).cache_key_fields()

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


def test_an_edit_of_the_source_keeps_the_samples():
    assert code_version(PolicyRolloutMapper) == PolicyRolloutMapper.code


def test_closing_closes_the_engine(parrot):
    operator = PolicyRolloutMapper(n=1)
    operator.apply(table_of("a"))
    operator.close()
    assert parrot.closed == 1


def test_without_a_task_the_cache_key_is_unchanged():
    """Samples are expensive: those of versions without tasks are found again."""
    assert PolicyRolloutMapper(engine="openai", model="m").cache_key_fields() == {
        "engine": "openai",
        "model": "m",
        "policy_version": 0,
        "n": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 1024,
        "seed": 0,
        "chat_template_kwargs": {},
        "on_policy": True,
        "options": {"server": {"seed": "64_bit"}, "api": "completions", "tokenizer": None},
        "files": [],
    }
    assert PolicyRolloutMapper(task="verify").cache_key_fields()["task"] == "verify"
    assert PolicyRolloutMapper().reads() == ("prompt_id", "prompt")


WRITTEN = PolicyRolloutMapper().writes()
SAMPLED = {  # A response of an earlier sampling.
    "response_id": "r",
    "response": "a response",
    "finish_reason": "length",
    "prompt_token_ids": [1],
    "response_token_ids": [2, 3],
    "response_logprobs": [-1.0, -0.5],
    "policy": "earlier",
    "policy_version": 1,
    "sampling": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "seed": 5},
}
OF_TASKS = pa.schema([("task", pa.string()), *SCHEMA, *[(n, ROW_CONTRACT[n]) for n in WRITTEN]])


def rows_of(*words):
    """`g5` is a sampled response to question 5, `v6` a verification prompt; `-7` has no task.

    A `!` after it: it has a response. Every row has an id of its own.
    """
    tasks = {"g": "generate", "v": "verify", "-": None}
    rows = []
    for at, word in enumerate(words):
        question = word[1:].rstrip("!")
        prompt = [{"role": "user", "content": question}]
        row = {"task": tasks[word[0]], "prompt_id": f"id of {question}", "prompt": prompt}
        if word[0] == "g" or word.endswith("!"):
            row |= {**SAMPLED, "response_id": f"r{at}"}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=OF_TASKS)


VERIFY = PolicyRolloutMapper(task="verify", n=2)


def test_with_a_task_only_its_rows_are_sampled(parrot):
    table = rows_of("g1", "g1", "vone", "vtwo", "g2", "-3", "vthree")
    change = check_operator(VERIFY, table)
    assert change.parents.tolist() == [0, 1, 2, 2, 3, 3, 4, 5, 6, 6]
    assert change.reasons.null_count == 7
    responses = change.columns["response"].to_pylist()
    expected_text = SAMPLED["response"]
    assert responses == [
        *[expected_text] * 2, "eno 0", "eno 1", "owt 0", "owt 1", expected_text, None, "eerht 0", "eerht 1"
    ]  # fmt: skip
    passing, before = pa.array([0, 1, 6, 7]), pa.array([0, 1, 4, 5])
    for name in WRITTEN:
        kept = change.columns[name].take(passing).to_pylist()
        assert kept == table[name].take(before).to_pylist(), name
    assert {prompt.messages[-1][1] for prompt in parrot.requested} == {"one", "two", "three"}


def test_the_samples_of_a_task_are_those_of_its_rows_alone(parrot):
    mixed = VERIFY.apply(rows_of("g1", "vone", "g2", "vtwo"))
    alone = PolicyRolloutMapper(n=2).apply(table_of("one", "two"))
    sampled = pc.equal(mixed.columns["policy"], "parrot")
    for name in WRITTEN:
        assert mixed.columns[name].filter(sampled).equals(alone.columns[name]), name


def test_rows_of_another_task_pass_before_anything_is_sampled(parrot):
    stream = VERIFY.process_rows(rows_of("vone", "g1", "vtwo", "g2"), range(4))
    assert [next(stream)[0], next(stream)[0]] == [1, 3]
    assert parrot.requested == []
    assert [row for row, _ in stream] == [2, 0]
    assert len(parrot.requested) == 2


def test_all_rows_are_found_again_but_repeated_prompts():
    table = rows_of("g1", "g1", "vone", "vone")
    assert VERIFY.findable(table, range(4)) == [0, 1, 2]
    assert PolicyRolloutMapper(n=2).findable(table, range(1, 4)) == [2]


def test_where_no_row_is_of_the_task_no_engine_is_opened(monkeypatch):
    monkeypatch.delattr(policy_rollout_mapper, "open_engine")
    table = rows_of("g1", "-2")
    change = VERIFY.apply(table)
    for name in WRITTEN:
        assert change.columns[name].to_pylist() == table[name].to_pylist()


def test_a_row_of_the_task_that_has_a_response_is_a_mistake(parrot):
    change = check_operator(VERIFY, rows_of("g1", "vone!", "vtwo", "vtwo", "vfail timeout"))
    reasons = [None, "already_sampled", None, "repeated_prompt", "timeout"]
    assert change.reasons.to_pylist() == reasons
    assert change.parents.tolist() == [0, 2, 2]
    assert set(reasons) - {None} <= set(VERIFY.reasons)
    again = PolicyRolloutMapper(task="generate").apply(rows_of("g1"))
    assert again.reasons.to_pylist() == ["already_sampled"]


def test_columns_that_pass_get_the_types_of_the_contract(parrot):
    """A file gives others: 64-bit integers, or a type of its own for what is always null."""
    read = rows_of("g1", "vone")
    wide = pa.list_(pa.int64())
    for name, kind in {"prompt_token_ids": wide, "response_logprobs": pa.null()}.items():
        values = read[name].to_pylist() if kind == wide else [None] * 2
        read = read.set_column(read.column_names.index(name), name, pa.array(values, kind))
    for table in (read, read.slice(0, 1), read.slice(0, 0)):
        change = VERIFY.apply(table)
        for name, column in change.columns.items():
            assert column.type == ROW_CONTRACT[name], name
        for row, own in VERIFY.process_rows(table, range(table.num_rows)):
            for name, column in own.columns.items():
                assert column.type == ROW_CONTRACT[name], (row, name)
    assert change.columns["response"].to_pylist() == []


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("response_token_ids", ["2 3", None], "column 'response_token_ids' is string"),
        ("sampling", [{"top_k": 1}, None], "column 'sampling' is struct<top_k: int64>"),
    ],
)
def test_columns_of_something_else_are_an_error(parrot, name, values, found):
    table = rows_of("g1", "vone")
    table = table.set_column(table.column_names.index(name), name, pa.array(values))
    with pytest.raises(DataError) as caught:
        VERIFY.apply(table)
    assert str(caught.value) == f"{found}; it must be {ROW_CONTRACT[name]}"
    assert parrot.requested == []


@given(st.lists(st.sampled_from(["g", "v", "-"]), max_size=9), st.integers(0, 9))
@settings(max_examples=30)
def test_rows_of_other_tasks_stay_as_they_are(tasks, cut):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy_rollout_mapper, "open_engine", lambda spec: StubEngine())
        operator = PolicyRolloutMapper(task="verify", n=3)
        table = rows_of(
            *(f"{task}{at // 2 if task == 'g' else at}" for at, task in enumerate(tasks))
        )
        change = operator.apply(table)
        halves = [operator.apply(half) for half in (table.slice(0, cut), table.slice(cut))]
    assert change.parents.tolist() == [
        row for row, task in enumerate(tasks) for _ in range(3 if task == "v" else 1)
    ]
    assert change.reasons.null_count == len(tasks)
    others = pc.fill_null(pc.not_equal(table["task"], "verify"), True)
    sampled = pc.fill_null(pc.equal(change.columns["policy"], "stub"), False)
    for name in WRITTEN:
        kept = change.columns[name].filter(pc.invert(sampled)).to_pylist()
        assert kept == table[name].filter(others).to_pylist()
        parts = [half.columns[name] for half in halves]
        assert pa.concat_arrays(parts).equals(change.columns[name])


class Pupil:
    """Answers k times right in n tries, and judges: Yes, No, Yes ..., and one word too many."""

    def __init__(self, patience=None):
        self.requested, self.patience = Counter(), patience

    def sample(self, prompts, settings):
        for index, prompt in enumerate(prompts):
            if self.requested.total() == self.patience:
                raise EngineError("the pupil is tired")
            text = prompt.messages[-1][1]
            self.requested[text] += 1
            yield index, Group("pupil", 0, prompt.seed, (1,), tuple(self._samples(text, settings)))

    def _samples(self, text, settings):
        for k in range(settings.n):
            expected_text = f"\\boxed{{{int(text.split()[0]) + k % 3}}}"
            if text.endswith("right?"):
                expected_text = ("\\boxed{Yes}", "\\boxed{No}", "\\boxed{Yes} or \\boxed{No}")[
                    k % 3
                ]
            yield Sample(expected_text, (k,), (-1.0,), "stop")


def both_samplings(n, **sampling):
    """The steps of a recipe that answers, and then judges its answers."""
    sampling = {"n": n, "max_tokens": 64, **sampling}
    return [
        {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
        {"policy_rollout_mapper": sampling},
        {"math_verify_mapper": {}},
        {"format_reward_mapper": {}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1, "format": 1}}},
        {"self_verification_mapper": {"candidates": "all", "template": JUDGE_TEMPLATE}},
        {"label_balance_selector": {"column": "label", "positive": "Yes"}},
        {"policy_rollout_mapper": {**sampling, "task": "verify"}},
        {"judgement_reward_mapper": {}},
        {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1}}},
        {"grpo_advantage_mapper": {}},
    ]


def check_both(recipe, report, n):
    """The export of such a recipe: whole groups of n, each of one task with a reward of its own."""
    table = pq.read_table(recipe.head.export_path)
    groups = Groups.of(table)
    assert set(groups.sizes_G) == {n}
    assert len(set(table["prompt_id"].to_pylist())) == len(groups.sizes_G)
    assert table.schema.field("sampling").type == ROW_CONTRACT["sampling"]
    assert None not in table["response_token_ids"].to_pylist()
    ids = table["response_id"].to_pylist()
    assert len(set(ids)) == len(ids)
    tasks = Counter()
    for row in table.to_pylist():
        tasks[row["task"], row["label"]] += 1
        if row["task"] == "verify":
            assert row["reward"] == row["reward_verification"] == (row["judgement"] == row["label"])
            assert row["reward_accuracy"] is row["verdict"] is row["extracted_answer"] is None
            assert row["judged_response_id"] in ids
        else:
            assert row["reward"] == row["reward_accuracy"] + row["reward_format"]
            assert row["reward_verification_missing"] == "other_task"
    assert tasks["verify", "Yes"] == tasks["verify", "No"] > 0
    assert report.steps[7].rows_in == tasks["generate", None] + tasks["verify", "Yes"] * 2 / n
    assert sum(report.steps[8].notes.values()) == tasks["verify", "Yes"] * 2
    return table


@pytest.mark.slow
def test_a_recipe_with_both_samplings(recipe_file, monkeypatch):
    """Run, interrupted in the judgements, resumed, and repeated: each prompt is sampled once."""
    rows = [{"question": f"{k}0 + 1 is?", "answer": f"#### {k}1"} for k in range(1, 8)]
    path = recipe_file(both_samplings(3), rows)
    pupil = Pupil(patience=12)
    monkeypatch.setattr(policy_rollout_mapper, "open_engine", lambda spec: pupil)
    with pytest.raises(EngineError, match=r"step 8 policy_rollout_mapper_2: the pupil is tired$"):
        engine.run(load(path), chunk_rows=3)
    pupil.patience = None
    table = check_both(load(path), engine.run(load(path), chunk_rows=3), 3)
    assert set(pupil.requested.values()) == {1}
    assert pupil.requested.total() == 7 + 7 * 2
    pupil.patience = pupil.requested.total()  # One more would be one too many.
    for overrides, chunk_rows in ({}, 3), ({}, 5), ({"math_verify_mapper.timeout": "9"}, 4):
        report = engine.run(load(path, overrides), chunk_rows=chunk_rows)
        assert check_both(load(path), report, 3).equals(table)
    # A verification prompt that another choice lets in is sampled; the others are not.
    pupil.patience = None
    engine.run(load(path, {"label_balance_selector.ratio": "[1, 2]"}), chunk_rows=4)
    assert set(pupil.requested.values()) == {1}
    assert pupil.requested.total() == 7 + 7 * 3


@pytest.mark.slow
def test_the_embedded_policy_answers_and_judges(recipe_file, tmp_path, monkeypatch):
    steps = both_samplings(4, transformers={"workers": 1, "rows": 64})
    path = recipe_file(steps, np=2)
    write_dataset(tmp_path / "data.jsonl", "arithmetic", DemoOptions(prompts=24, levels=(1, 2)))
    report = engine.run(load(path), chunk_rows=7)
    table = check_both(load(path), report, 4)
    verify = table.filter(pc.equal(table["task"], "verify"))
    # It was trained to judge, and nearly all its responses are judgements.
    assert pc.mean(verify["judgement"].is_valid().combine_chunks().cast("float64")).as_py() > 0.8
    monkeypatch.delattr(policy_rollout_mapper, "open_engine")
    again = engine.run(load(path), chunk_rows=7)
    assert all(step.cached for step in again.steps)
    # In one process, with other chunks, and nothing cached but the samples.
    one = {"np": "1", "math_verify_mapper.timeout": "9"}
    check_both(load(path, one), engine.run(load(path, one), chunk_rows=48), 4)
    assert pq.read_table(load(path).head.export_path).equals(table)
