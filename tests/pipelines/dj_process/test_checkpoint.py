"""`use_checkpoint` of Data-Juicer in recipes with steps of ours."""

import json

import pytest
from juicer_run import audit_log, execute, exported, write_recipe

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine.report import Report

pytest.importorskip("data_juicer.ops")

from rejuice.pipelines.dj_process import plugin

pytestmark = pytest.mark.slow

PROCESS = [
    {"group_size_filter": {"min": 2}},
    {"text_length_filter": {"text_key": "response", "min_len": 2}},
    {"pass_rate_filter": {"min": 0.01}},
    {"whitespace_normalization_mapper": {"text_key": "response"}},
    {"grpo_advantage_mapper": {}},
    {"group_size_filter": {"min": 3}},
    {"exact_deduplicator": {}},
]
FOLDERS = [
    "01_group_size_filter",
    "03_pass_rate_filter",
    "05_grpo_advantage_mapper",
    "06_group_size_filter_2",
    "07_exact_deduplicator",
]


def funnel(folder):
    """The lines of the report, without their seconds."""
    steps = Report.read(folder / "out" / "curated.parquet").steps
    return [step.model_copy(update={"seconds": 0.0}) for step in steps]


@pytest.fixture(scope="module")
def wholes():
    return {}


@pytest.fixture
def whole(tmp_path, rows, data_juicer, wholes):
    """The run that was never stopped: its rows, its audit log, its funnel."""
    if not wholes:
        folder = tmp_path / "whole"
        folder.mkdir()
        table = execute(write_recipe(folder, PROCESS, rows))
        wholes["run"] = table, audit_log(folder), funnel(folder)
    return wholes["run"]


def resumable(folder, rows, process=PROCESS):
    return write_recipe(folder, process, rows, use_checkpoint=True, job_id="one")


def end_at(monkeypatch, recipe, name, error):
    """A run that ends before a step of ours."""
    run = plugin.run_on_default

    def ending(step, dataset):
        if step.name == name:
            raise error
        return run(step, dataset)

    with monkeypatch.context() as patch:
        patch.setattr(plugin, "run_on_default", ending)
        with pytest.raises(type(error)):
            execute(recipe)


def saved_steps(folder):
    return len(json.loads((folder / "out" / "one" / "ckpt" / "ckpt_op.json").read_text()))


def check_whole(folder, whole):
    table, log, lines = whole
    assert exported(folder).equals(table)
    assert audit_log(folder) == log
    assert sorted({name.split("/")[0] for name in log}) == FOLDERS
    assert funnel(folder) == lines


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("group_size_filter_2", RejuiceError("no")),
        ("pass_rate_filter", RejuiceError("no")),
        ("grpo_advantage_mapper", KeyboardInterrupt()),
        ("exact_deduplicator", RejuiceError("no")),
    ],
)
def test_a_resumed_run_ends_as_if_it_had_never_stopped(
    tmp_path, rows, whole, monkeypatch, name, error
):
    """Before, it read the files of the checkpoint while Data-Juicer wrote the next one over them."""
    recipe = resumable(tmp_path, rows)
    end_at(monkeypatch, recipe, name, error)
    assert 0 < saved_steps(tmp_path) < len(PROCESS)
    execute(recipe)
    check_whole(tmp_path, whole)


def test_a_step_that_wrote_its_audit_log_and_is_not_in_the_checkpoint_is_listed_once(
    tmp_path, rows, whole, monkeypatch
):
    recipe = resumable(tmp_path, rows)
    with monkeypatch.context() as patch:

        def interrupt(operator, report):
            if report.step == "grpo_advantage_mapper":
                raise KeyboardInterrupt

        patch.setattr(plugin, "empty_result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            execute(recipe)
    assert saved_steps(tmp_path) == 4
    assert funnel(tmp_path)[-1].step == "grpo_advantage_mapper"
    execute(recipe)
    check_whole(tmp_path, whole)


def test_a_changed_recipe_begins_again(tmp_path, rows, whole, monkeypatch):
    """The checkpoint is of other steps: neither its rows nor its audit log are used."""
    other = [{"group_size_filter": {"min": 1}}, *PROCESS[1:]]
    end_at(monkeypatch, resumable(tmp_path, rows, other), "exact_deduplicator", RejuiceError("no"))
    assert saved_steps(tmp_path) == 6
    execute(resumable(tmp_path, rows))
    check_whole(tmp_path, whole)
