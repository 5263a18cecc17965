"""A mixture of datasets has the same rows in `dj-process` and in `rejuice run`, whoever draws them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from juicer_run import execute

from rejuice.operators import DataError
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow

PROCESS = [{"length_filter": {"min": 12}}, {"rule_quality_reward_mapper": {}}]


@pytest.fixture
def configs(tmp_path):
    """Two datasets of different formats, with responses of 10 to 19 characters."""
    sets = {
        name: [{"response": f"{name}{n:02d} " + "x" * (7 + n % 10), "n": n} for n in range(rows)]
        for name, rows in (("a", 30), ("b", 12))
    }
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in sets["a"]))
    pq.write_table(pa.Table.from_pylist(sets["b"]), tmp_path / "b.parquet")
    return [
        {"type": "local", "path": str(tmp_path / "a.jsonl"), "weight": 0.3},
        {"type": "local", "path": str(tmp_path / "b.parquet"), "weight": 0.7},
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"max_sample_num": 15}, {"max_sample_num": 100}],
    ids=lambda options: str(options.get("max_sample_num", "all")),
)
def test_the_rows_are_the_same(data_juicer, tmp_path, configs, options):
    document = {
        "dataset": {"configs": configs, **options},
        "export_path": str(tmp_path / "out" / "curated.parquet"),
        "np": 1,
        "open_monitor": False,
        "ds_cache_dir": str(tmp_path / "cache"),
        "process": PROCESS,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    found = execute(path)
    ours = tmp_path / "ours" / "curated.parquet"
    report = engine.run(load(path, {"export_path": str(ours)}))
    expected = pq.read_table(ours)
    assert report.rows_in == options.get("max_sample_num", 42)
    assert 0 < expected.num_rows < report.rows_in
    assert {text[0] for text in expected["response"].to_pylist()} == {"a", "b"}
    assert found.select(expected.column_names).to_pylist() == expected.to_pylist()


def test_a_split_is_the_one_that_is_named(data_juicer, tmp_path):
    folder = tmp_path / "sets"
    folder.mkdir()
    for split in ("train", "test"):
        row = {"response": f"of {split}, a longer text", "n": 1}
        (folder / f"{split}-00000-of-00001.jsonl").write_text(json.dumps(row))
    document = {
        "dataset_path": str(folder),
        "split": "test",
        "export_path": str(tmp_path / "out" / "curated.parquet"),
        "ds_cache_dir": str(tmp_path / "cache"),
        "open_monitor": False,
        "process": PROCESS,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    assert execute(path)["response"].to_pylist() == ["of test, a longer text"]
    path.write_text(yaml.safe_dump({**document, "split": None}, sort_keys=False))
    with pytest.raises(DataError, match="sets has the splits test, train; say `split: train`"):
        execute(path)
    theirs = {**document, "split": None, "load_dataset_kwargs": {"keep_in_memory": True}}
    path.write_text(yaml.safe_dump(theirs, sort_keys=False))
    with pytest.raises(DataError, match="sets has the splits test, train; let the path name its"):
        execute(path)
