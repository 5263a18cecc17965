"""What Data-Juicer's loader and preflight take for the columns of a recipe with steps of ours.

The files run whole in `test_shipped_recipes.py`.
"""

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("data_juicer")
from data_juicer.config import config
from data_juicer.core import preflight
from data_juicer.core.data.dataset_builder import DatasetBuilder
from data_juicer.core.data.schema import Schema
from data_juicer.core.executor.base import ExecutorBase
from data_juicer.core.preflight import PipelineRuntimeError
from data_juicer.ops import load_ops

from rejuice.operators import RejuiceError
from rejuice.pipelines.data_juicer.tables import nested
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec, Selection

pytestmark = pytest.mark.slow

RECORDED = {"recorded_rollout_mapper": {"columns": ["output"]}}
LENGTH = {"text_length_filter": {"min_len": 1}}
SPACES = {"whitespace_normalization_mapper": {}}
FIELDS = {**RECORDED, "document_deduplicator": {"text_key": "response"}}
COLUMNS = ["prompt_id", "prompt", "output"]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """The configuration of a recipe over some rows, as `dj-process` reads it."""
    monkeypatch.setattr(config, "global_cfg", None)

    def make(process, rows=({"output": "x"},), **head):
        data = tmp_path / "data.jsonl"
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        head = {"dataset_path": str(data), "export_path": str(tmp_path / "out.parquet"), **head}
        path = tmp_path / "recipe.json"
        path.write_text(json.dumps({**head, "process": process}))
        return config.init_configs(["--config", str(path)], load_configs_only=True)

    return make


def loaded(settings):
    return DatasetBuilder(settings).load_dataset().to_list()


def test_the_loader_demands_no_column_and_drops_no_row(settings):
    rows = [{"output": "x"}, {"output": None}]
    found = settings([RECORDED, LENGTH], rows, text_keys="response")
    assert loaded(found) == rows
    assert found.text_keys == "response"
    assert found.process[1]["text_length_filter"]["text_key"] == "response"
    assert loaded(settings([RECORDED, LENGTH], rows, text_keys=["output", "response"])) == rows


def test_the_loader_reads_what_rejuice_run_reads(settings, tmp_path):
    rows = [
        {"output": "x", "scores": [None, 0.25], "id": 2**64, "odd": 1, "none": {}},
        {"output": "y", "scores": [0.5], "id": 0.5, "odd": "2", "none": {}},
    ]
    columns = ["output", "scores", "id", "none"]
    found = settings([RECORDED], rows, columns=columns)
    one = {"output": "x", "scores": [None, 0.25], "id": "18446744073709551616", "none": None}
    other = {"output": "y", "scores": [0.5], "id": "0.5", "none": None}
    assert loaded(found) == [one, other]
    names = tuple((name, name) for name in columns)
    spec = DatasetSpec((DatasetPart(tmp_path / "data.jsonl"),), selection=Selection(names))
    by_us = Dataset(spec).table().to_pylist()
    assert by_us == [{**row, "none": {}} for row in (one, other)], "Parquet has no empty objects"
    renamed = settings([RECORDED], rows, columns={"output": "output", "none": "empty"})
    renamed.export_path = str(tmp_path / "out.jsonl")
    assert loaded(renamed) == [{"output": "x", "empty": {}}, {"output": "y", "empty": {}}]


def schema_of(columns):
    return Schema(column_types=dict.fromkeys(columns, str), columns=list(columns))


def checked(settings, process, columns=COLUMNS, **head):
    Executor(settings(process, **head), schema_of(columns)).run()


class Executor(ExecutorBase):
    """What is left of Data-Juicer's without a dataset."""

    def __init__(self, cfg, schema):
        self.cfg, self.schema = cfg, schema
        self.exporter = SimpleNamespace(export_path=cfg.export_path)

    def run(self):
        ops = load_ops(self.cfg.process)
        if self.cfg.strict_preflight:
            preflight.post_instantiation_check(ops, self.schema, self.cfg)
        return ops

    def process(self, dataset):
        for op in self.run():
            dataset = op.run(dataset)
        return dataset


def refused(settings, *words, **fields):
    """The one line with which the run ends."""
    with pytest.raises(RejuiceError) as raised:
        checked(settings, *words, **fields)
    return str(raised.value)


def test_the_preflight_finds_what_our_steps_write(settings):
    checked(settings, [RECORDED, LENGTH, SPACES, LENGTH], text_keys="response")
    own = {"text_length_filter": {"text_key": "response"}}
    checked(settings, [RECORDED, own])


@pytest.mark.parametrize(
    ("process", "head", "line"),
    [
        (
            [RECORDED, LENGTH, {"pass_rate_filter": {}}],
            {"text_keys": "response"},
            "step 3 pass_rate_filter: column 'verdict' is missing; llm_verify_mapper, "
            "math_verify_mapper, unit_test_mapper or reward_function_mapper with correct_above "
            "writes it: put that step before this one",
        ),
    ],
)
def test_what_no_step_before_writes_is_one_line(settings, tmp_path, process, head, line):
    found = refused(settings, process, **head)
    assert found.startswith(f"{tmp_path / 'recipe.json'}, ")
    assert found.endswith(line)


def test_the_other_checks_of_the_preflight_are_made(settings):
    found = settings([RECORDED, LENGTH], text_keys="response")
    ops, schema = load_ops(found.process), schema_of(COLUMNS)
    with pytest.raises(PipelineRuntimeError, match="does not support executor mode"):
        preflight.post_instantiation_check(
            ops, schema, SimpleNamespace(executor_type="ray_partitioned")
        )


def test_without_a_preflight_no_column_of_the_users_is_replaced_either(settings):
    process = [{"length_filter": {"min": 1}}, {"math_verify_mapper": {}}]
    row = {"response": "1", "reference": "1", "verdict": "mine"}
    executor = Executor(settings(process, [row], strict_preflight=False), None)
    with pytest.raises(RejuiceError, match="math_verify_mapper: would replace column 'verdict'"):
        executor.process(nested(pa.Table.from_pylist([row])))


def test_deduplicators_of_theirs_are_allowed_on_ray(settings):
    """Whatever is checked. That they keep the same rows, `test_shipped_recipes.py` shows."""

    def on_ray(*names, strict_preflight=True):
        process = [{name: dict(FIELDS.get(name, {}))} for name in names]
        cfg = settings(process, strict_preflight=strict_preflight)
        cfg.executor_type = "ray"
        return Executor(cfg, schema_of(COLUMNS)).run()

    for strict in (True, False):
        both = ("recorded_rollout_mapper", "document_deduplicator")
        _, unique = on_ray(*both, strict_preflight=strict)
        assert unique._supported_exec_modes == ("default", "ray")
        assert unique.runtime_np() is None
    for names in (["document_deduplicator"], ["recorded_rollout_mapper", "random_selector"]):
        with pytest.raises(PipelineRuntimeError, match="does not support executor mode 'ray'"):
            on_ray(*names)


def test_columns_are_selected_and_renamed_once_the_rows_are_loaded(settings):
    rows = [{"output": "x", "n": 1}, {"output": None, "n": 2}]
    process = [{"text_length_filter": {"text_key": "text"}}]
    made = settings(process, rows, columns={"output": "text"})
    assert loaded(made) == [{"text": "x"}, {"text": None}]
    assert loaded(settings(process, rows, columns=["n", "output"])) == [
        {"n": 1, "output": "x"},
        {"n": 2, "output": None},
    ]
