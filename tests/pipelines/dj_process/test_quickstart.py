"""The quickstart recipe by `dj-process`: the policy samples what it samples in `rejuice run`."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "quickstart.yaml"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("quickstart") / "prompts.jsonl"
    write_dataset(path, "arithmetic", DemoOptions(prompts=24, levels=(1, 2)))
    return path


@pytest.fixture(scope="module")
def ours(prompts, tmp_path_factory):
    """What `rejuice run` makes of the prompts."""
    export = tmp_path_factory.mktemp("ours") / "curated.parquet"
    engine.run(load(RECIPE, {"dataset_path": str(prompts), "export_path": str(export)}))
    return pq.read_table(export)


@pytest.mark.parametrize("executor", [pytest.param("default", marks=pytest.mark.smoke), "ray"])
def test_dj_process_samples_the_same(prompts, ours, dj_process_of, tmp_path, executor):
    export = tmp_path / "curated.parquet"
    words = ["--config", RECIPE, "--dataset_path", prompts, "--export_path", export]
    words += ["--executor_type", executor, "--ray_address", "local"]
    ended = dj_process_of(executor)(tmp_path, *map(str, words))
    assert ended.returncode == 0, ended.log[-3000:]
    rows = pq.read_table(export).select(ours.column_names)
    assert ours.num_rows > 0
    assert without_logprobs(rows) == without_logprobs(ours)


def without_logprobs(table):
    return table.drop_columns(["response_logprobs"]).to_pylist()
