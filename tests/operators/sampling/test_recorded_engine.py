"""Recorded responses stand in for a policy, exactly as they were sampled."""

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from rejuice.operators import EngineError
from rejuice.operators.columns import ROW_CONTRACT
from rejuice.operators.sampling import Failure, Group, Prompt, Sample, Settings
from rejuice.operators.sampling.recorded_engine import RecordedEngine

TWO = Settings(n=2, max_tokens=9)
NAMES = (
    "prompt", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip


def chat(text):
    return [{"role": "system", "content": "s"}, {"role": "user", "content": text}]


def prompt(text, seed=5):
    return Prompt((("system", "s"), ("user", text)), seed)


def row(text, k, **other):
    return {
        "prompt": chat(text),
        "response": f"{text}{k}",
        "finish_reason": "length",
        "prompt_token_ids": [1, 2],
        "response_token_ids": [3, k],
        "response_logprobs": [-0.5, -k],
        "policy": "p",
        "policy_version": 4,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "seed": 77},
        **other,
    }


@pytest.fixture
def record(tmp_path):
    def record(rows, *without):
        schema = pa.schema([(name, ROW_CONTRACT[name]) for name in NAMES])
        path = tmp_path / "run.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema).drop_columns(list(without)), path)
        return path

    return record


def test_what_was_sampled_comes_back(record):
    path = record([row("a", 0), row("b", 0), row("a", 1), row("a", 2)])
    found = dict(RecordedEngine(path, exact=True).sample([prompt("a"), prompt("b")], TWO))
    assert found == {
        0: Group(
            "p", 4, 77, (1, 2),
            (
                Sample("a0", (3, 0), (-0.5, 0.0), "length"),
                Sample("a1", (3, 1), (-0.5, -1.0), "length"),
            ),
        ),
        1: Failure("too_few_samples", "1 of 2 responses were recorded"),
    }  # fmt: skip


def test_a_prompt_that_is_not_there(record):
    path = record([row("a", 0), row("a", 1)])
    # The whole chat counts, not its last message alone.
    other = Prompt((("user", "a"),), 0)
    ((_, found),) = RecordedEngine(path, exact=True).sample([other], TWO)
    assert found == Failure("not_recorded", f"{path} does not have the prompt")


def test_text_alone_is_enough_where_it_is_not_for_training(tmp_path):
    path = tmp_path / "run.jsonl"
    line = '{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]'
    path.write_text(f'{line}, "response": "x"}}\n{line}, "response": "y"}}\n')
    ((_, found),) = RecordedEngine(path, exact=False).sample([prompt("a")], TWO)
    samples = (Sample("x", None, None, "stop"), Sample("y", None, None, "stop"))
    assert found == Group("recorded", 0, None, None, samples)
    with pytest.raises(EngineError, match="has no column 'prompt_token_ids'"):
        RecordedEngine(path, exact=True)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"max_tokens": 8}, "was sampled with max_tokens: 9; not with 8"),
        ({"temperature": 0.5}, "was sampled with temperature: 1; not with 0.5"),
    ],
)
def test_other_settings_than_it_was_sampled_with(record, setting, said):
    path = record([row("a", 0), row("a", 1)])
    with pytest.raises(EngineError) as caught:
        list(RecordedEngine(path, exact=True).sample([prompt("a")], TWO._replace(**setting)))
    assert str(caught.value) == f"{path} {said}"


def test_files_that_are_no_recording(record, tmp_path):
    with pytest.raises(EngineError, match=r"no\.parquet does not exist; name the export of a run"):
        RecordedEngine(tmp_path / "no.parquet", exact=True)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(EngineError, match=r"notes\.txt has no known format"):
        RecordedEngine(tmp_path / "notes.txt", exact=True)
    (tmp_path / "bad.parquet").write_text("x")
    with pytest.raises(EngineError, match=r"bad\.parquet cannot be read"):
        RecordedEngine(tmp_path / "bad.parquet", exact=True)
    with pytest.raises(EngineError, match="has no column 'response'"):
        RecordedEngine(record([row("a", 0)], "response"), exact=True)
