"""The quickstart recipe: on-policy samples of the embedded policy, verified and curated."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from rounding import LOG_PROBS

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "quickstart.yaml"
PROMPTS = 40


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quickstart") / "prompts.jsonl"
    write_dataset(path, "arithmetic", DemoOptions(prompts=PROMPTS, levels=(1, 2)))
    return path


def curated(prompts: Path, folder: Path, chunk_rows: int | None = None, **fields: str) -> pa.Table:
    """What `rejuice run` makes of the prompts."""
    paths = {"dataset_path": str(prompts), "export_path": str(folder / "curated.parquet")}
    engine.run(load(RECIPE, {**paths, **fields}), chunk_rows=chunk_rows)
    return pq.read_table(folder / "curated.parquet")


@pytest.fixture(scope="module")
def table(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return curated(prompts, tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.smoke
def test_the_quickstart_curates(table: pa.Table) -> None:
    generated = table.filter(pc.equal(table["task"], "generate"))
    judged = table.filter(pc.equal(table["task"], "verify"))
    assert generated["advantage"].null_count == 0
    assert set(generated["finish_reason"].to_pylist()) == {"stop"}
    groups = generated.group_by("prompt_id").aggregate([("verdict", "count_distinct")])
    assert min(groups["verdict_count_distinct"].to_pylist()) == 2
    for row in generated.to_pylist():
        assert len(row["response_token_ids"]) == len(row["response_logprobs"]) > 0
        assert max(row["response_logprobs"]) <= 0
        assert (row["policy"], row["policy_version"]) == ("embedded", 0)
    labels = judged["label"].to_pylist()
    assert labels.count("Yes") == labels.count("No") > 10


@pytest.mark.slow
def test_chunks_and_workers_change_nothing(prompts: Path, table: pa.Table, tmp_path: Path) -> None:
    workers = {"policy_rollout_mapper.transformers.workers": "1", "np": "1"}
    rows = {"policy_rollout_mapper.transformers.rows": "24"}
    cut = curated(prompts, tmp_path, 7, **workers, **rows)
    assert without_logprobs(cut) == without_logprobs(table)
    for one, other in zip(cut["response_logprobs"], table["response_logprobs"], strict=True):
        assert (one.as_py() or []) == pytest.approx(other.as_py() or [], abs=LOG_PROBS)


def without_logprobs(table: pa.Table) -> list[dict[str, object]]:
    return table.drop_columns(["response_logprobs"]).to_pylist()


@pytest.mark.slow
def test_what_was_sampled_stands_in_for_the_policy(prompts: Path, tmp_path: Path) -> None:
    """`engine: recorded` on the raw rollouts gives what the policy gave."""
    raw, again = tmp_path / "raw", tmp_path / "again"
    sampled = curated(prompts, raw)
    record = tmp_path / "rollouts.parquet"
    rollouts_of(prompts, record, raw)
    fields = {"engine": "recorded", "recorded.path": str(record)}
    replayed = curated(
        prompts, again, **{f"policy_rollout_mapper.{name}": value for name, value in fields.items()}
    )
    assert replayed.to_pylist() == sampled.to_pylist()


def rollouts_of(prompts: Path, record: Path, cache: Path) -> None:
    """The rows after the sampling step, from its commits."""
    document = yaml.safe_load(RECIPE.read_text("utf-8"))
    document |= {"dataset_path": str(prompts), "export_path": str(record)}
    document["process"] = document["process"][:2]
    path = record.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(document), "utf-8")
    engine.run(load(path), cache=cache / ".rejuice")
