"""The quickstart recipe on a little made-up data."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from typer.testing import CliRunner

from rejuice.pipelines.arithmetic.recorded import write_recorded
from rejuice.pipelines.cli import app

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "quickstart.yaml"


def test_the_quickstart_curates(tmp_path: Path):
    write_recorded(tmp_path / "rollouts.jsonl", prompts=60)
    export = tmp_path / "curated.parquet"
    paths = ["--dataset_path", str(tmp_path / "rollouts.jsonl"), "--export_path", str(export)]
    result = CliRunner().invoke(app, ["run", str(RECIPE), *paths, "--np", "1", "--quiet"])
    assert result.exit_code == 0, result.output
    table = pq.read_table(export)
    generated = table.filter(pc.equal(table["task"], "generate"))
    judged = table.filter(pc.equal(table["task"], "verify"))
    assert generated["advantage"].null_count == 0
    assert set(generated["finish_reason"].to_pylist()) == {"stop"}
    groups = generated.group_by("prompt_id").aggregate([("verdict", "count_distinct")])
    assert min(groups["verdict_count_distinct"].to_pylist()) == 2
    labels = judged["label"].to_pylist()
    assert labels.count("Yes") == labels.count("No") > 20
