"""Samples and scores that an earlier version kept are found by this one: nothing is paid twice.

`data/kept` was written by version 0.4.0 (see `write_kept.py`): for each case a recipe, what a run
of it left in its cache folder, and the table that it made. Here the same recipes are run where
nothing can be sampled. A test that fails because a key has changed must not be fixed by writing
the data again: users would sample again what they have.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from fake_server import FakeServer
from version_0_4 import as_it_was

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine import paid_rows_format as kept_chunk
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

DATA = Path(__file__).parent / "data" / "kept"
STEP = "policy_rollout_mapper"
CANNOT_SAMPLE = {
    # Those that name a server name one that nobody answers for.
    "openai_chat": {},
    "openai_completions": {},
    "openai_generate": {},
    "own": {},
    "recorded": {},
    "transformers": {
        f"{STEP}.transformers.device": "nowhere",
        f"{STEP}_2.transformers.device": "nowhere",
    },
    "vllm": {f"{STEP}.vllm.python": "/nowhere/python"},
}
_QUALITY = "llm_quality_reward_mapper."
_FIELDS = yaml.safe_load((DATA.parent / "tables" / "recipes.yaml").read_text("utf-8"))
FORMER_PROMPT = {
    _QUALITY + name: _FIELDS["grpo_gsm8k_quality"][_QUALITY + name]
    for name in ("system", "template")
}
"""What the scorer was asked by default before its texts were delimited by a mark."""
CHANGED = [
    ("openai_chat", "n"),
    pytest.param("transformers", "seed", marks=pytest.mark.slow),
    ("vllm", "max_tokens"),
]


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A function that puts a case, with what was kept, into the current folder."""

    def put(name):
        shutil.copytree(DATA / name, tmp_path, dirs_exist_ok=True)
        if (tmp_path / "kept").exists():
            (tmp_path / "out").mkdir()
            (tmp_path / "kept").rename(tmp_path / "out" / ".rejuice")
        monkeypatch.chdir(tmp_path)
        return pq.read_table("table.parquet")

    return put


def curate(overrides=None):
    run(load(Path("recipe.yaml"), overrides))
    return pq.read_table("out/curated.parquet")


def kept():
    """The rows that are kept, by chunk; they are written again, each chunk as what it is."""
    found = Path("out/.rejuice").glob("kept-*/*")
    return {str(file): keys_in(file) for file in found if file.suffix != ".lock"}


def keys_in(file):
    return file.read_text().split() if file.suffix == ".keys" else None


@pytest.mark.slow
@pytest.mark.parametrize("name", CANNOT_SAMPLE)
def test_samples_of_the_earlier_version_are_found(case, name):
    table = case(name)
    before = kept()
    found = as_it_was(curate(CANNOT_SAMPLE[name]))
    # The extracted answer stood where the dataset's `answer` had been.
    assert found.select(table.column_names).equals(table)
    assert set(found.column_names) == set(table.column_names)
    assert kept() == before
    for chunk in Path("out/.rejuice").glob("kept-*/*.arrow"):
        assert kept_chunk.keys_of(chunk) == keys_in(chunk.with_suffix(".keys"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "field"), CHANGED)
def test_it_cannot_sample_what_is_not_found(case, name, field):
    """Else the test above says nothing."""
    case(name)
    with pytest.raises(RejuiceError):
        curate({**CANNOT_SAMPLE[name], f"{STEP}.{field}": "1"})


def test_an_own_operator_that_was_edited_is_paid_for_again(case):
    """Else the test above says nothing of `own`."""
    case("own")
    source = Path("own.py").read_text()
    Path("own.py").write_text(source.replace("% len", "// 7 % len"))
    with pytest.raises(RejuiceError, match="could not be reached"):
        curate()


def test_a_killed_run_of_the_earlier_version_goes_on(case):
    """A journal has some of six prompts: only the others are requested."""
    table = case("killed")
    finished = journalled(next(Path("out/.rejuice").glob("kept-*/*.journal")))
    seeds = list(dict.fromkeys(row["seed"] for row in table["sampling"].to_pylist()))
    assert 0 < len(finished) < len(seeds) == 6
    with FakeServer() as server:
        options = {f"{STEP}.openai.base_url": server.url, f"{STEP}.openai.patience_s": "5"}
        found = curate(options)
        assert dict(server.attempts) == {seed: 1 for seed in seeds if seed not in finished}
    assert found.schema.equals(table.schema)
    assert found.equals(table)


def journalled(journal):
    """Seeds of the prompts of a journal, which is a stream of Arrow that may end in the middle."""
    seeds = set()
    with pa.OSFile(str(journal)) as source:
        reader = pa.ipc.open_stream(source)
        try:
            while True:
                batch = reader.read_next_batch()
                seeds |= set(pc.struct_field(batch["sampling"], "seed").to_pylist())
        except (StopIteration, pa.ArrowInvalid, OSError):
            return seeds


@pytest.mark.parametrize("name", ["judge", "judge_expected"])
def test_scores_of_the_earlier_version_are_found(case, name):
    """The scorer is gone, and a response without a kept answer would end the run."""
    table = case(name)
    found = curate({} if name == "judge_expected" else FORMER_PROMPT)
    assert found["reward_quality"].null_count == 0
    assert found.schema.equals(table.schema)
    assert found.equals(table)


def test_scores_by_the_former_prompt_are_not_taken_for_those_by_the_present_one(case):
    case("judge")
    with pytest.raises(RejuiceError, match="could not be reached"):
        curate()


@pytest.mark.parametrize("name", ["judge", "judge_expected"])
def test_without_the_kept_scores_the_scorer_is_missed(case, name):
    """Else the test above says nothing."""
    case(name)
    Path("scores.sqlite").unlink()
    with pytest.raises(RejuiceError, match="could not be reached"):
        curate()
