"""What a step of ours knows of the run of `dj-process` that it is in."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import get
from rejuice.pipelines.dataset.files import written
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.dataset.write import mark_written, written_columns
from rejuice.pipelines.dj_process.step_in_run import CurrentRun, StepInRun
from rejuice.pipelines.engine.report import AuditLog

pytestmark = pytest.mark.slow


def step_of(**settings):
    """The only step of a run with these settings."""
    process = [{"math_verify_mapper": {}}]
    run = CurrentRun(settings, [], process, "out/curated.parquet")
    return StepInRun(get("math_verify_mapper")(), process[0], run)


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        ({"dataset_path": "rows.jsonl", "dataset": None}, ["rows.jsonl"]),
        ({"dataset_path": "s3://rollouts/rows.parquet"}, ["s3://rollouts/rows.parquet"]),
        ({"dataset_path": "0.5 a.jsonl 2 b.jsonl"}, ["a.jsonl", "b.jsonl"]),
        (
            {"dataset_path": "", "dataset": {"configs": [{"type": "local", "path": "a.parquet"}]}},
            ["a.parquet"],
        ),
        (
            {
                "dataset": {
                    "configs": [{"type": "remote", "source": "s3", "path": "s3://b/a.jsonl"}]
                }
            },
            [],
        ),
        ({}, []),
    ],
)
def test_what_a_run_reads(settings, paths):
    assert [str(path) for path in step_of(**settings).dataset.paths] == paths


def test_without_a_run_nothing_is_known_of_its_dataset():
    dataset = StepInRun(get("math_verify_mapper")(), {"math_verify_mapper": {}}, None).dataset
    assert dataset.parts == ()
    assert written_columns(dataset) == frozenset()


def test_an_export_in_a_store_says_which_columns_were_computed(store):
    table = pa.table({"response": ["4"], "verdict": ["correct"]})
    with written(to_path(store) / "rows.parquet") as temporary:
        schema = mark_written(table.schema, ["verdict"])
        pq.write_table(table.replace_schema_metadata(schema.metadata), temporary)
    columns = {"response": "text", "verdict": "label"}
    for settings, names in [({}, {"verdict"}), ({"columns": columns}, {"label"})]:
        step = step_of(dataset_path=f"{store}/rows.parquet", **settings)
        assert written_columns(step.dataset) == names


def test_labels_stay_where_the_run_folder_is_replaced(tmp_path):
    folder = tmp_path / "curated.run"
    folder.mkdir()
    for name in ("audit.jsonl", "old.txt"):
        (folder / name).write_text("mine")
    process = [{"math_verify_mapper": {}}]
    run = CurrentRun({}, [], process, str(tmp_path / "curated.parquet"))
    step = StepInRun(get("math_verify_mapper")(), process[0], run)
    step.write(AuditLog().step("math_verify_mapper"))
    assert (folder / "audit.jsonl").read_text() == "mine"
    assert not (folder / "old.txt").exists()
    assert (folder / "report.json").exists()
