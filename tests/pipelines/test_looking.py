"""Every command that looks at a run: on responses of a real model, and on the quickstart."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from command import runner
from every_command import check_every_command, check_whatif_by_hand, sampled_rows
from real_responses import RECIPE, overrides

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytestmark = pytest.mark.slow
QUICKSTART = RECIPE.with_name("quickstart.yaml")


@pytest.fixture(scope="module")
def real(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    fields = overrides(shared_data / "gsm8k" / "test.jsonl", folder)
    return Path(run(load(RECIPE, fields)).export_path)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    write_dataset(folder / "prompts.jsonl", "arithmetic", DemoOptions(prompts=40, levels=(1, 2)))
    paths = {
        "dataset_path": str(folder / "prompts.jsonl"),
        "export_path": str(folder / "curated.parquet"),
    }
    return Path(run(load(QUICKSTART, paths)).export_path)


@pytest.mark.parametrize("name", ["real", "quickstart"])
def test_every_command(request, monkeypatch, capsys, tmp_path, name):
    path = request.getfixturevalue(name)
    table = pq.read_table(path)
    if "task" in table.column_names:  # The quickstart adds prompts to judge answers.
        table = table.filter(pc.equal(table["task"], "generate"))
    rejuice = runner(monkeypatch, capsys, tmp_path)
    out = check_every_command(rejuice, path, table, tmp_path, sampled=sampled_rows(path))
    check_whatif_by_hand(out, table)
