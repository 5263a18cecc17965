"""Data-Juicer's Python interface with operators of ours: errors, logging, audit log."""

import sys

import pytest
import yaml
from juicer_run import audit_log, execute, write_recipe

from rejuice.operators import RecipeError, RejuiceError
from rejuice.pipelines.engine.report import Report

pytest.importorskip("data_juicer.ops")
from data_juicer.config import init_configs
from data_juicer.core.data import NestedDataset
from data_juicer.ops import load_ops
from datasets import Dataset
from loguru import logger

from rejuice.pipelines.dj_process.step_in_run import stop

pytestmark = pytest.mark.slow

PROCESS = [{"group_size_filter": {"min": 2}}, {"grpo_advantage_mapper": {}}]
BAD = [{"pass_rate_filter": {"min": 0.9, "max": 0.1}}]
LINE = "pass_rate_filter: min 0.9 is above max 0.1"


@pytest.fixture
def logged():
    lines = []
    sink = logger.add(lines.append, format="{name} {message}")
    yield lines
    logger.remove(sink)


def data_juicer_logs(lines):
    """Whether what a module of Data-Juicer's logs arrives."""
    exec("logger.info('hello')", {"__name__": "data_juicer.core", "logger": logger})
    return lines[-1:] == ["data_juicer.core hello\n"]


def test_a_step_that_fails_is_an_exception_of_the_executor(tmp_path, rows, data_juicer):
    recipe = write_recipe(tmp_path, PROCESS, rows.drop_columns(["reward"]))
    with pytest.raises(RejuiceError, match="step 2 grpo_advantage_mapper: column 'reward' is miss"):
        execute(recipe)


def test_dj_mcp_answers_with_the_line(tmp_path, rows, data_juicer, monkeypatch):
    """Its server goes on after an error, if the error is an exception."""
    from data_juicer.tools.mcp_tool import execute_op

    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, [], rows)
    export = str(tmp_path / "out" / "curated.parquet")
    call = {"dataset_path": str(tmp_path / "data.parquet"), "export_path": export}
    assert LINE in execute_op({**call, "process": BAD})
    assert execute_op({**call, "process": PROCESS}) == f"Result dataset is saved in: {export}"
    assert [line.step for line in Report.read(tmp_path / "out" / "curated.parquet").steps] == [
        "group_size_filter",
        "grpo_advantage_mapper",
    ]


def test_a_dataset_of_the_command_line_is_read_instead_of_the_generated_one(
    tmp_path, data_juicer, rows
):
    """It is written once the whole command line is known, and only where the recipe names it."""
    recipe = write_recipe(tmp_path, PROCESS, rows)
    document = yaml.safe_load(recipe.read_text())
    given, named = document["dataset_path"], tmp_path / "named.jsonl"
    generated = {str(named): {"type": "arithmetic", "prompts": 2}}
    document |= {"dataset_path": str(named), "generated_datasets": generated}
    recipe.write_text(yaml.safe_dump(document))
    arguments = ["--config", str(recipe)]
    settings = init_configs([*arguments, "--dataset_path", given], load_configs_only=True)
    assert (settings.dataset_path, named.exists()) == (given, False)
    init_configs(arguments, load_configs_only=True)
    assert len(named.read_text().splitlines()) == 2


@pytest.mark.parametrize("command", ["dj-process", "dj-analyze", "tools/process_data.py"])
def test_the_command_line_ends_with_the_line(monkeypatch, logged, command):
    monkeypatch.setattr(sys, "argv", [f"bin/{command}", "--config", "recipe.yaml"])
    try:
        with pytest.raises(SystemExit) as stopped:
            stop(RecipeError("wrong", "right"))
        assert not data_juicer_logs(logged)
    finally:
        logger.enable("data_juicer")
    assert stopped.value.code == 1
    assert logged == ["rejuice.pipelines.dj_process.step_in_run wrong; right\n"]


def test_a_step_after_a_run_leaves_the_audit_log_of_that_run_alone(tmp_path, rows, data_juicer):
    from data_juicer.config import config

    execute(write_recipe(tmp_path, PROCESS, rows))
    export = tmp_path / "out" / "curated.parquet"
    before, report = audit_log(tmp_path), Report.read(export)
    assert len(before) == 2
    dataset = NestedDataset(Dataset(rows))
    # Entries of the configuration that was run, which stays in Data-Juicer, and another one.
    for operators in (load_ops(config.global_cfg.process), load_ops([{"group_size_filter": {}}])):
        assert len(dataset.process(operators, open_monitor=False)) > 0
        assert audit_log(tmp_path) == before
        assert Report.read(export) == report


def test_the_audit_log_is_of_the_run_under_way_whatever_was_configured_last(
    tmp_path, rows, data_juicer
):
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    settings = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        recipe = write_recipe(tmp_path / name, PROCESS, rows)
        settings[name] = init_configs(["--config", str(recipe)])
    DefaultExecutor(settings["a"]).run()
    assert sorted(audit_log(tmp_path / "a")) == [
        "01_group_size_filter/decisions.parquet",
        "02_grpo_advantage_mapper/decisions.parquet",
    ]
    assert not audit_log(tmp_path / "b")
