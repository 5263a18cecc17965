"""Small inputs of others, where they are at hand: read as they were meant, or one clear line."""

import json
import re
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rejuice.operators import RejuiceError
from rejuice.pipelines.cli.main import app

FOLDER = Path(__file__).resolve().parents[2] / "../shared/data/strangers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.exists(), reason="the inputs are not at hand"),
]
RIGHT, WRONG, NONE = "correct", "wrong_answer", None

VERDICTS = {
    "01-leading-null": [NONE, RIGHT, RIGHT, WRONG, RIGHT, NONE],
    "02-leading-null-logprobs": [RIGHT, RIGHT],
    "03-big-integers": [RIGHT, RIGHT],
    "04-bigint-answer": [RIGHT, WRONG, RIGHT, RIGHT],
    "08-content-mixed": [RIGHT, RIGHT],
    "09-sharegpt": [RIGHT],
    "10-sft-messages-with-answer": [RIGHT],
    "12-skywork-json-list-gt": [RIGHT] * 4,
    "14-openr1-parallel-lists": [RIGHT, WRONG, RIGHT],
    "16-openai-batch": [RIGHT, WRONG],
    "17-openai-choices-top": [RIGHT],
    "18-lmeval-samples": [RIGHT, WRONG] * 2,
    "19-empty-struct-parquet": [RIGHT] * 2,
    "20-surrogate": [RIGHT] * 2,
    "25-unrelated-mixed-column": [RIGHT] * 2,
    "28-drift-int-float-nested": [RIGHT] * 2,
    "29-parquet-types": [RIGHT] * 2,
    "30-parquet-dict-role": [RIGHT] * 2,
    "33-chat-as-json-string": [RIGHT],
    "37-nested-text-key": [RIGHT],
    "39-verl-rollout-dump": [RIGHT, WRONG],
    "42-math-solution-whole": [RIGHT, RIGHT, WRONG],
    "47-hf-save-to-disk": [RIGHT] * 2,
    "51-polars-categorical-in-struct": [RIGHT],
    "59-vllm-logprobs-dict-2": [RIGHT] * 200,
    "61-trl-implicit-preference": [RIGHT, WRONG],
    "69-leading-null-structs": [NONE, RIGHT] * 3,
}
LINES = {
    "07-content-parts": "messages in column 'messages' have a field 'image', which the policy",
    "22-json-array": "data.json is a JSON array; write one object per line: `python -c",
    "32-struct-as-json-string": "there is no 'reward_model.ground_truth': column 'reward_model' is",
    "38-csv": "data.csv is not a dataset file; convert it, with pandas: `python -c",
    "40-mixed-sources-gt": "b.parquet: column 'reward_model.ground_truth' is int64, but string",
    "44-utf16": "data.jsonl is UTF-16; convert it to UTF-8: `iconv",
    "45-truncated-last-line": "data.jsonl, line 2: the file is cut off here",
    "48-hf-datasetdict-to-disk": "saved has the splits train; say `split: train` in the recipe, or name its files, such as saved/train",
    "49-hf-json-type": "messages in column 'messages' have a field 'tool_calls', which the policy",
    "54-tool-calls-sampled": "messages in column 'messages' have a field 'tool_calls', which the",
    "57-vllm-logprobs-dict": "the objects in column 'outputs.logprobs' have more than 1,000 different",
    "62-interleaved-groups": "rows 1 and 3 have the same prompt but are not next to each other",
    "63-yaml-backslash": "it has a control character, as YAML reads \\b in double quotes; put the pattern in",
}  # fmt: skip


@pytest.fixture
def rejuice(tmp_path, monkeypatch):
    """The command in a copy of a folder: its exit status, and what it printed."""

    def run(name, *words):
        folder = tmp_path / name
        if not folder.exists():
            copytree(FOLDER / "data" / name, folder)
        monkeypatch.chdir(folder)
        ran = CliRunner().invoke(app, words)
        assert ran.exception is None or isinstance(ran.exception, RejuiceError)
        return ran.exit_code, re.sub(r"\s+", " ", f"{ran.output} {ran.exception or ''}"), folder

    return run


def rows_of(folder):
    for path in (folder / "out.jsonl", folder / "out.parquet"):
        if path.exists():
            if path.suffix == ".parquet":
                return pq.read_table(path).to_pylist()
            return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    raise AssertionError(f"no export in {folder}")


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_what_is_read(rejuice, name):
    status, printed, folder = rejuice(name, "run", "recipe.yaml", "--quiet")
    assert status == 0, printed
    assert [row.get("verdict") for row in rows_of(folder)] == VERDICTS[name]


@pytest.mark.parametrize("name", sorted(LINES))
def test_what_is_refused(rejuice, name):
    for command in ("check", "run"):
        status, printed, _ = rejuice(name, command, "recipe.yaml")
        assert status, printed
        assert LINES[name] in printed


def test_values_stay_in_place(rejuice):
    _, _, folder = rejuice("02-leading-null-logprobs", "run", "recipe.yaml", "--quiet")
    found = [row["prompt_logprobs"] for row in rows_of(folder)]
    assert found == [[None, -0.5, -0.25], [None, -1.5, -1.25]]
    _, _, folder = rejuice("03-big-integers", "run", "recipe.yaml", "--quiet")
    data = (folder / "data.jsonl").read_text()
    assert all(str(row["row_hash"]) in data for row in rows_of(folder))
    _, _, folder = rejuice("61-trl-implicit-preference", "run", "recipe.yaml", "--quiet")
    assert [row["response"] for row in rows_of(folder)] == ["It is 4.", "It is 5."]


def test_what_check_says(rejuice):
    lines = {
        "13-numina-proof-sentinels": "50.0% of the first 4 references cannot be graded against",
        "42-math-solution-whole": "the reference is the content of the last \\boxed{} of column",
    }
    for name, line in lines.items():
        status, printed, _ = rejuice(name, "check", "recipe.yaml")
        assert status == 0
        assert line in printed
