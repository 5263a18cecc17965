"""Agents as a step: what becomes of trajectories, of failures, and of tables of an earlier run."""

import logging
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rejuice.operators import AgentRolloutMapper, DataError, EngineError, RecipeError
from rejuice.operators.agents import runner
from rejuice.operators.agents.trajectory import Trajectory, TrajectoryGroup, Turn, turns_of
from rejuice.operators.cache_key import cache_key_json, code_version
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, ROW_CONTRACT
from rejuice.operators.mapper import agent_rollout_mapper
from rejuice.operators.operator import RowsOfChunk, split
from rejuice.operators.sampling import Failure, Group, Sample

SCHEMA = pa.schema([("prompt_id", pa.string()), ("prompt", MESSAGES), ("pages", pa.string())])
MINE = '''
from rejuice.operators.agents import Flow, Tool, ToolError

class Pages(Tool):
    """Read the pages."""
    def reads(self): return ("pages",)
    async def call(self, word: str, *, task) -> str:
        if word == "outage": raise ToolError("the library is closed")
        if word not in task["pages"]: raise ValueError(f"no {word} here")
        return task["pages"]

class Read(Flow):
    """Read what the policy asks for, then let it answer."""
    async def run(self, task, play):
        seen = ""
        while True:
            action = await play.act((*task.messages, ("user", seen)))
            verb, _, rest = action.text.partition(" ")
            if verb == "answer": return rest
            seen = (await play.call("pages", {"word": rest})).text

class Broken(Flow):
    async def run(self, task, play):
        return task.columns["page"]
'''


def table_of(*questions):
    rows = [
        {
            "prompt_id": f"id of {q}",
            "prompt": [{"role": "user", "content": q}],
            "pages": f"{q} pages",
        }
        for q in questions
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class Scripted:
    """An engine: the question says what the policy does in its turns, apart by `;`."""

    def __init__(self):
        self.prompts = []
        self.order = range  # in which the prompts of a wave are finished

    def sample(self, prompts, settings):
        assert settings.n == 1
        for index in self.order(len(prompts)):
            prompt = prompts[index]
            self.prompts.append(prompt)
            turns = prompt.messages[0][1].split(";")
            at = 0 if prompt.messages[-1][1] == "" else 1
            text = turns[at] if at < len(turns) else "answer late"
            if text.startswith("fail "):
                yield index, Failure(text.removeprefix("fail "), "as asked")
                continue
            ids = tuple(text.encode())
            sample = Sample(text, ids, tuple(-1.0 * (k + 1) for k in range(len(ids))), "stop")
            yield index, Group("scripted", 3, prompt.seed, prompt.token_ids, (sample,))

    def close(self):
        pass


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """A step with a scripted policy, its flow and its tool; and the policy."""
    (tmp_path / "mine.py").write_text(MINE)
    engine = Scripted()
    encode = lambda messages: [len(content) for _, content in messages]  # noqa: E731
    monkeypatch.setattr(agent_rollout_mapper, "open_engine", lambda spec: engine)
    monkeypatch.setattr(agent_rollout_mapper, "encoder", lambda spec: encode)
    # What is isolated from what: test_isolation.py.
    monkeypatch.setattr(agent_rollout_mapper, "isolated", lambda part, entry: part)
    steps = []

    def make(**fields):
        parts = {
            "flow": "read",
            "tools": ["pages"],
            "custom_operator_paths": [tmp_path / "mine.py"],
        }
        steps.append(AgentRolloutMapper(**{**parts, "n": 2, **fields}))
        return steps[-1]

    make.engine = engine
    yield make
    for step in steps:
        step.close()


def test_one_row_becomes_n_trajectories(scripted):
    change = scripted(max_tokens=99).apply(table_of("read x;answer 7", "answer 8"))
    assert change.parents.tolist() == [0, 0, 1, 1]
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    assert columns["response"] == ["7", "7", "8", "8"]
    assert columns["finish_reason"] == ["stop"] * 4
    assert columns["turn_count"] == [2, 2, 1, 1]
    assert columns["tool_calls"] == [1, 1, 0, 0]
    assert columns["tool_errors"] == [0, 0, 0, 0]
    assert (columns["policy"], columns["policy_version"]) == (["embedded"] * 4, [3] * 4)
    assert len(set(columns["response_id"])) == 4
    first = turns_of(columns["turns"][0])
    assert [turn.role for turn in first] == ["policy", "tool", "policy"]
    assert first[1][6:10] == ("pages", '{"word": "x"}', "read x;answer 7 pages", "ok")
    assert first[0].prompt_token_ids == (15, 0)
    assert columns["prompt_token_ids"][0] == [15, 0]
    assert columns["response_token_ids"][0] == [*b"read x", *b"answer 7"]
    assert columns["response_logprobs"][0] == [-1.0 * k for k in (*range(1, 7), *range(1, 9))]
    sampling = columns["sampling"][0]
    assert (sampling["temperature"], sampling["top_p"], sampling["max_tokens"]) == (1, 1, 99)
    assert change.reasons.null_count == 2


def test_every_turn_has_a_seed_of_its_own(scripted):
    step, table = scripted(n=3), table_of("read x;answer 7")
    step.apply(table)
    seeds = [prompt.seed for prompt in scripted.engine.prompts]
    assert len(set(seeds)) == len(seeds) == 6
    scripted.engine.prompts.clear()
    step.apply(table)
    assert sorted(prompt.seed for prompt in scripted.engine.prompts) == sorted(seeds)


def test_columns_have_the_types_of_the_contract(scripted):
    step = scripted()
    for table in (table_of("answer 1", "read outage"), table_of("fail timeout"), table_of()):
        change = step.apply(table)
        assert list(change.columns) == [*step.writes()]
        for name, column in change.columns.items():
            assert column.type == ROW_CONTRACT.get(name, pa.string()), name


def test_the_contract_of_operators(scripted):
    table = table_of("answer 1", "read a;answer 2", "fail timeout", "read outage")
    check_operator(scripted(n=3), table)


def test_the_stream_gives_what_apply_gives(scripted):
    table = table_of("answer 1", "fail timeout", "read a;answer 2", "answer 4", "answer 4")
    step = scripted()
    whole = step.apply(table)
    rows = dict(step.process_rows(table, [0, 2, 3, 4]))
    assert set(rows) == {0, 2, 3, 4}
    for row, change in rows.items():
        own = [at for at, parent in enumerate(whole.parents) if parent == row]
        assert change.reasons.to_pylist() == [whole.reasons[row].as_py()]
        for name, column in change.columns.items():
            assert (
                column.to_pylist()
                == whole.columns[name].take(pa.array(own, pa.int64())).to_pylist()
            )


WORDS = ("answer 1", "read x;answer 2", "fail timeout", "read x;read x", "read z;answer 3", "")


@pytest.mark.slow
@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12),
    starts=st.sets(st.integers(1, 11)),
    under_way=st.integers(1, 9),
    seed=st.integers(0, 99),  # The order is drawn in another thread, where Hypothesis may not.
)
def test_chunks_side_by_side_give_what_one_table_gives(scripted, words, starts, under_way, seed):
    """In whatever order trajectories end, and wherever a chunk begins."""
    table = table_of(*(f"{word};{k}" for k, word in enumerate(words)))
    bounds = [0, *sorted(start for start in starts if start < len(words)), len(words)]
    parts = [table.slice(start, stop - start) for start, stop in pairwise(bounds)]
    step, found, rng = scripted(), {}, random.Random(seed)
    whole = list(split(step.apply(table), range(len(words) + 1)))
    step.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "turns_at_a_time", lambda _: under_way)
        patch.setattr(scripted.engine, "order", lambda n: rng.sample(range(n), n))
        chunks = iter([RowsOfChunk(part, range(part.num_rows)) for part in parts])
        for number, row, change in step.process_chunks(chunks):
            assert found.setdefault(bounds[number] + row, change) is change
        step.close()
    assert sorted(found) == list(range(len(words)))
    for row, change in found.items():
        assert change.reasons.to_pylist() == whole[row].reasons.to_pylist()
        for name, column in change.columns.items():
            assert column.to_pylist() == whole[row].columns[name].to_pylist(), name


def test_a_slow_trajectory_does_not_hold_up_the_next_chunk(scripted, tmp_path):
    """It waits for what one of the next chunk does."""
    (tmp_path / "mine.py").write_text(
        MINE.replace("from rejuice", "import asyncio\nfrom rejuice", 1).replace(
            'if word == "outage"',
            """if word == "last": Pages.last = True
        while word == "first" and not hasattr(Pages, "last"): await asyncio.sleep(0)
        if word == "outage\"""",
        )
    )
    step = scripted(n=1, flow={"read": {"seconds": 5}})
    tables = [table_of("read first;answer 1"), table_of("answer 2"), table_of("read last;answer 3")]
    chunks = iter([RowsOfChunk(table, range(1)) for table in tables])
    results = step.process_chunks(chunks)
    found = {number: change.columns["response"].to_pylist() for number, _, change in results}
    assert next(iter(found)) == 1
    assert found == {0: ["1"], 1: ["2"], 2: ["3"]}


def test_trajectories_under_way_are_not_lost_by_a_chunk_that_cannot_be_read(scripted):
    """They have turns before them when it is opened."""

    def chunks():
        for number in range(3):
            yield RowsOfChunk(table_of(f"read pages;answer {number}"), range(1))
        raise DataError("chunk 3 is damaged", "remove it")

    found = {}
    with pytest.raises(DataError, match=r"^chunk 3 is damaged"):
        for number, _, change in scripted(n=1).process_chunks(chunks()):
            found[number] = change.columns["response"].to_pylist()
    assert found == {0: ["0"], 1: ["1"], 2: ["2"]}


def test_what_fails_is_missing_and_what_the_policy_does_wrong_is_not(scripted):
    questions = ["read outage", "read x;fail timeout", "read pages;answer 3", "read x;read x"]
    change = scripted(n=1, flow={"read": {"max_turns": 2}}).apply(table_of(*questions))
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    assert columns["finish_reason"] == ["tool_failed", "sampling_failed", "stop", "turn_limit"]
    assert columns["response"] == [None, None, "3", ""]
    assert columns["tool_errors"] == [0, 0, 0, 0]
    assert change.reasons.null_count == 4, (
        "a trajectory that failed is a row, whose reward is missing"
    )


def test_an_error_of_a_call_is_counted(scripted):
    table = table_of("read x;answer 3").set_column(2, "pages", pa.array(["nothing"]))
    change = scripted(n=1).apply(table)
    columns = {name: column.to_pylist()[0] for name, column in change.columns.items()}
    assert (columns["tool_calls"], columns["tool_errors"], columns["response"]) == (1, 1, "3")
    assert columns["turns"][1]["status"] == "error"
    assert columns["turns"][1]["observation"] == "no x here"


def test_a_prompt_that_cannot_be_sampled_is_dropped_with_the_reason(scripted, caplog):
    table = table_of("fail timeout", "answer 1", "answer 1")
    table = table.set_column(0, "prompt_id", pa.array(["a", "b", "b"]))
    chats = [*table["prompt"].to_pylist()[:2], None]
    table = table.set_column(1, "prompt", pa.array(chats, MESSAGES))
    with caplog.at_level(logging.WARNING):
        change = scripted().apply(table)
    assert change.reasons.to_pylist() == ["timeout", None, "repeated_prompt"]
    assert change.parents.tolist() == [1, 1]
    assert "a prompt failed with timeout: as asked" in caplog.text
    assert set(change.reasons.drop_null().to_pylist()) <= set(AgentRolloutMapper.reasons)


def test_prompts_without_content_are_not_sampled(scripted):
    table = table_of("a", "b").set_column(1, "prompt", pa.array([None, [{"role": "user", "content": None}]], MESSAGES))  # fmt: skip
    change = scripted().apply(table)
    assert change.reasons.to_pylist() == ["no_prompt"] * 2
    assert not scripted.engine.prompts


@pytest.mark.slow
def test_tools_get_the_columns_that_they_read(scripted):
    step = scripted(n=1)
    assert step.reads() == ("prompt_id", "prompt", "pages")
    change = step.apply(table_of("read a;answer 1", "read b;answer 2").append_column("b", [[1, 2]]))
    turns = [cell[1]["observation"] for cell in change.columns["turns"].to_pylist()]
    assert turns == ["read a;answer 1 pages", "read b;answer 2 pages"]


def test_a_step_is_opened_once_and_closed(scripted, monkeypatch):
    opened = []
    monkeypatch.setattr(
        agent_rollout_mapper, "open_engine", lambda spec: opened.append(spec) or scripted.engine
    )
    step = scripted()
    for _ in "ab":
        step.apply(table_of("answer 1"))
    assert len(opened) == 1
    step.close()
    step.apply(table_of("answer 1"))
    assert len(opened) == 2


def test_the_version_of_its_code_is_stated():
    assert code_version(AgentRolloutMapper) == "1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, "on_policy needs temperature: 1 and top_p: 1"),
        ({"temperature": 0, "on_policy": False}, "it needs n: 1"),
        ({"engine": "recorded"}, "engine recorded needs recorded: {path"),
    ],
)
def test_fields_that_contradict_each_other(fields, message):
    with pytest.raises(ValidationError, match=message):
        AgentRolloutMapper(**fields)


def test_it_has_no_field_for_tasks():
    with pytest.raises(ValidationError, match="task"):
        AgentRolloutMapper(task="verify")


# ------------------------------------------------------------------------------ explain


@pytest.mark.slow
def test_the_step_is_explained_with_its_tools(scripted):
    lines = scripted().explain()
    assert lines["the policy sees a message"].count("{prompt}") == 1
    assert lines["tool pages(word)"] == "Read the pages."


def test_a_flow_that_fails_at_once_is_explained_by_its_failure(scripted):
    lines = scripted(flow="broken").explain()
    found = lines["the flow or a tool cannot be used"]
    assert found.startswith("broken: KeyError: 'page' (mine.py, line ")


def test_a_row_is_explained_turn_by_turn(scripted):
    table = table_of("read x;answer 7")
    change = scripted(n=1).apply(table)
    row = {name: column.to_pylist()[0] for name, column in change.columns.items()}
    lines = dict(scripted(n=1).explain(row))
    lines.pop("the policy saw")
    assert lines == {
        "1. policy, 6 tokens": "read x",
        '2. pages {"word": "x"}, ok': "read x;answer 7 pages",
        "3. policy, 8 tokens": "answer 7",
    }


def test_long_texts_are_shortened_and_malformed_actions_are_named():
    turns = (
        Turn("policy", "x" * 500, token_ids=(1, 2), finish_reason="length"),
        Turn("tool", observation="expected one line", status="malformed"),
        Turn("verifier", "yes"),
    )
    step = AgentRolloutMapper()
    assert dict(step.explain({"turns": [turn._asdict() for turn in turns]})) == {
        "1. policy, 2 tokens, cut off": f"{'x' * 160}… (500 characters)",
        "2. malformed": "expected one line",
        "3. verifier": "yes",
    }


# ------------------------------------------------------------------------------ recorded


def group_of(*answers, **turn):
    turn = {"prompt_token_ids": (1,), "token_ids": (5, 6), "logprobs": (-1.0, -2.0), **turn}
    trajectories = tuple(
        Trajectory((Turn("policy", str(each), finish_reason="stop", **turn),), each, "stop")
        for each in answers
    )
    return TrajectoryGroup("old", 4, 17, trajectories)


def write_recording(path, groups, **sampling):
    """An export with these groups, by their questions."""
    step = AgentRolloutMapper(**sampling)
    table = table_of(*groups)
    change = step._change(table["prompt_id"], list(groups.values()))
    prompts = table["prompt"].take(pa.array(change.parents))
    pq.write_table(pa.table({"prompt": prompts, **change.columns}), path)
    return {"engine": "recorded", "recorded": {"path": str(path)}}


def test_recorded_trajectories_are_returned_as_they_are(tmp_path):
    failed = group_of("3", None)
    broken = failed.trajectories[1]._replace(finish_reason="tool_failed")
    failed = failed._replace(trajectories=(failed.trajectories[0], broken))
    groups = {"a": group_of("1", "2", "9"), "b": failed}
    fields = write_recording(tmp_path / "old.parquet", groups)
    step = AgentRolloutMapper(n=2, **fields, tools=["calculator"])
    assert step.reads() == ("prompt_id", "prompt")
    table = table_of("b", "a", "unknown")
    change = step.apply(table)
    assert change.columns["response"].to_pylist() == ["3", None, "1", "2"]
    assert change.columns["finish_reason"].to_pylist() == ["stop", "tool_failed", "stop", "stop"]
    assert change.reasons.to_pylist() == [None, None, "not_recorded"]
    assert change.columns["policy"].to_pylist() == ["old"] * 4
    assert change.columns["policy_version"].to_pylist() == [4] * 4
    assert {each["seed"] for each in change.columns["sampling"].to_pylist()} == {17}
    turns = [turns_of(cell) for cell in change.columns["turns"].to_pylist()]
    assert turns[2] == groups["a"].trajectories[0].turns
    step.close()


def test_too_few_recorded_trajectories(tmp_path):
    fields = write_recording(tmp_path / "old.parquet", {"a": group_of("1", "2")})
    step = AgentRolloutMapper(n=3, **fields)
    assert step.apply(table_of("a")).reasons.to_pylist() == ["too_few_samples"]
    step.close()


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({"logprobs": None}, "lacks logprobs of turn 1 of a trajectory of 'a'"),
        ({"prompt_token_ids": None}, "lacks prompt_token_ids of turn 1 of a trajectory of 'a'"),
        ({"logprobs": (-1.0,)}, "has 2 token_ids and 1 logprobs of turn 1 of a trajectory of 'a'"),
    ],
)
def test_a_recording_that_is_not_exact(tmp_path, turn, message):
    fields = write_recording(tmp_path / "old.parquet", {"a": group_of("1", **turn)})
    step = AgentRolloutMapper(n=1, **fields)
    with pytest.raises(EngineError) as caught:
        step.apply(table_of("a"))
    assert str(caught.value) == (
        f"{tmp_path}/old.parquet {message}; set on_policy: false, or record it with on_policy: true"
    )
    step.close()
    loose = AgentRolloutMapper(n=1, on_policy=False, **fields)
    assert loose.apply(table_of("a")).reasons.to_pylist() == [None]
    loose.close()


def test_a_recording_of_single_responses_is_refused(tmp_path):
    path = tmp_path / "old.parquet"
    pq.write_table(pa.table({"prompt": table_of("a")["prompt"], "response": ["1"]}), path)
    step = AgentRolloutMapper(n=1, engine="recorded", recorded={"path": str(path)})
    with pytest.raises(EngineError) as caught:
        step.apply(table_of("a"))
    assert str(caught.value) == (
        f"{path} has no column 'turns'; name the export of a run that sampled"
    )


def test_a_recording_with_other_settings_is_refused(tmp_path):
    fields = write_recording(tmp_path / "old.parquet", {"a": group_of("1")}, max_tokens=7)
    step = AgentRolloutMapper(n=1, max_tokens=8, **fields)
    with pytest.raises(EngineError) as caught:
        step.apply(table_of("a"))
    assert str(caught.value) == f"{tmp_path}/old.parquet was sampled with max_tokens: 7; not with 8"
    step.close()


def test_a_tool_that_does_not_work_here_is_refused_where_it_is_needed(tmp_path):
    (tmp_path / "mine.py").write_text(
        MINE.replace('def reads(self): return ("pages",)', "def check(self): 1 / 0")
        .replace("1 / 0", "raise RecipeError('it does not work here', 'use another one')")
        .replace("from rejuice", "from rejuice.operators import RecipeError\nfrom rejuice", 1)
    )
    fields = {"flow": "read", "tools": ["pages"], "custom_operator_paths": [tmp_path / "mine.py"]}
    with pytest.raises(RecipeError) as caught:
        AgentRolloutMapper(**fields)
    assert str(caught.value) == "tools.pages: it does not work here; use another one"
    AgentRolloutMapper(**fields, engine="recorded", recorded={"path": "x.parquet"})


# ------------------------------------------------------------------------------ tool cache


def test_what_a_tool_gave_is_kept_and_found_without_calling_it(scripted, tmp_path, monkeypatch):
    fields = {"n": 1, "tool_cache_path": tmp_path / "tools.sqlite"}
    table = table_of("read x;answer 7")
    first = scripted(tool_cache="read_write", **fields)
    whole = first.apply(table)
    first.close()
    monkeypatch.setattr(type(first._tools()[0]), "call", None)  # It cannot be called any more.
    again = scripted(tool_cache="read_only", **fields)
    assert again.apply(table).columns["turns"].equals(whole.columns["turns"])
    assert cache_key_json(again) == cache_key_json(first)
