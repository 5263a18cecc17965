"""Data-Juicer's own tools with rejuice installed: search, servers, pickling, probes, analysis."""

import asyncio
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pydantic
import pytest
import yaml
from juicer_run import audit_log, execute, write_recipe

from rejuice.operators import Filter, RecipeError, get, installed
from rejuice.operators.operator import COMMON_FIELDS

pytest.importorskip("data_juicer.ops")
import cloudpickle
import dill
from data_juicer.core.data import NestedDataset
from data_juicer.ops import OPERATORS, load_ops
from data_juicer.tools import op_search
from datasets import Dataset

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

# Search


@pytest.fixture(scope="module")
def quick_search():
    """The searcher reads base classes for each operator again, and all of `site-packages/tests`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op_search, "find_test_by_searching_content", lambda *_: None)
        patch.setattr(inspect, "getsource", cache(inspect.getsource))
        yield


@pytest.fixture(scope="module")
def searcher(quick_search):
    return op_search.OPSearcher()


def test_the_searcher_lists_every_operator(searcher):
    assert len(searcher.op_records) == len(OPERATORS.modules)
    assert set(installed()) <= {found["name"] for found in searcher.search(op_type="pipeline")}
    for name in installed():
        record, kind = searcher.all_ops[name], get(name)
        assert (record.type, record.tags) == ("pipeline", ["cpu"])
        assert record.desc == kind.__doc__
        own = [name for name in record.param_desc_map if name not in COMMON_FIELDS]
        assert own == list(kind.own_fields())
        assert set(record.param_desc_map) == set(kind.model_fields)
        file = Path(op_search.PROJECT_ROOT, record.source_path)
        assert file.resolve() == Path(inspect.getfile(kind)).resolve()
        assert inspect.getsource(OPERATORS.modules[name]) == inspect.getsource(kind)


@pytest.mark.parametrize("source", ["a console", "a file on disk"])
def test_an_operator_of_another_place_does_not_end_the_search(
    source, tmp_path, monkeypatch, quick_search
):
    text = (
        "from rejuice.operators import Filter, drop\n"
        "class ElsewhereFilter(Filter):\n"
        '    """Drops nothing."""\n'
        "    def decide(self, table):\n"
        "        return drop({})\n"
    )
    try:
        if source == "a console":
            exec(text, {"__name__": "__console__"})
            shown = inspect.getsource(Filter)  # The nearest base class that has any.
        else:
            (tmp_path / "elsewhere.py").write_text(text)
            monkeypatch.syspath_prepend(tmp_path)
            importlib.import_module("elsewhere")
            shown = "".join(line + "\n" for line in text.splitlines()[1:])
        record = op_search.OPSearcher(["elsewhere_filter"]).all_ops["elsewhere_filter"]
        assert (record.type, record.desc) == ("pipeline", "Drops nothing.")
        assert inspect.getsource(OPERATORS.modules["elsewhere_filter"]) == shown
    finally:
        OPERATORS.modules.pop("elsewhere_filter", None)
        sys.modules.pop("elsewhere", None)


# dj-mcp


class StandIn:
    """FastMCP, where `mcp` is not installed: it makes a model of each tool's parameters."""

    def __init__(self, name, port):
        self.tools = {}

    def tool(self):
        def add(function):
            fields = {
                name: (object, parameter.default)
                for name, parameter in inspect.signature(function).parameters.items()
            }
            self.tools[function.__name__] = pydantic.create_model(function.__name__, **fields)
            return function

        return add

    async def list_tools(self):
        return [SimpleNamespace(name=name) for name in self.tools]


@pytest.fixture
def mcp(monkeypatch):
    try:
        importlib.import_module("mcp.server.fastmcp")
    except ImportError:
        for name in ("mcp", "mcp.server", "mcp.server.fastmcp"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["mcp.server.fastmcp"].FastMCP = StandIn


def tools(module):
    server = importlib.import_module(f"data_juicer.tools.{module}").create_mcp_server(port="8123")
    return {tool.name for tool in asyncio.run(server.list_tools())}


def test_the_server_of_operators_starts(mcp, quick_search, monkeypatch):
    monkeypatch.delenv("DJ_OPS_LIST_PATH", raising=False)
    assert set(installed()) <= tools("DJ_mcp_granular_ops")


# Pickling


def operator():
    (built,) = load_ops([{"pass_rate_filter": {"min": 0.3, "num_proc": 2}}])
    built.batch_size = 7
    return built


@pytest.mark.parametrize("pickler", [pickle, dill, cloudpickle], ids=lambda each: each.__name__)
def test_operators_are_pickled(pickler, rows):
    before = operator()
    after = pickler.loads(pickler.dumps(before))
    assert type(after) is type(before)
    assert (after.operator, after.batch_size) == (before.operator, 7)
    dataset = NestedDataset(Dataset(rows))
    assert after.run(dataset).to_list() == before.run(dataset).to_list()


def test_another_process_reads_an_operator():
    """As a spawned worker, which has imported nothing before."""
    code = (
        "import pickle, sys\n"
        "read = pickle.load(sys.stdin.buffer)\n"
        "print(type(read)._name, read.operator.min, read.batch_size, read._op_cfg)"
    )
    entry = operator()._op_cfg
    for pickler in (pickle, dill, cloudpickle):
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, input=pickler.dumps(operator()), capture_output=True)
        assert ran.returncode == 0, ran.stderr.decode()
        assert ran.stdout.decode() == f"pass_rate_filter 0.3 7 {entry}\n"


# Fusion and probes

FUSIBLE = [
    {"group_size_filter": {"min": 2}},
    {"words_num_filter": {"text_key": "response", "min_num": 1}},
    {"text_length_filter": {"text_key": "response", "min_len": 2}},
    {"word_repetition_filter": {"text_key": "response", "rep_len": 2}},
    {"pass_rate_filter": {"min": 0.01}},
    {"grpo_advantage_mapper": {}},
    {"specified_numeric_field_filter": {"field_key": "advantage", "min_value": -9.0}},
    {"text_length_filter": {"text_key": "response", "max_len": 500}},
]


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"op_fusion": True}, "fusion_strategy 'probe' runs each step"),
        ({"adaptive_batch_size": True}, "adaptive_batch_size runs each step"),
        (
            {"op_fusion": True, "fusion_strategy": "greedy"},
            "text_length_filter, used twice",
        ),
    ],
)
def test_what_would_run_our_steps_on_a_sample_is_refused_in_one_line(
    tmp_path, rows, data_juicer, settings, facts
):
    with pytest.raises(RecipeError) as raised:
        execute(write_recipe(tmp_path, FUSIBLE, rows, **settings))
    assert facts in str(raised.value)
    assert "leave" in raised.value.right or "greedy" in raised.value.right


def test_fused_filters_give_the_same_rows(tmp_path, rows, data_juicer):
    plain, fused = tmp_path / "plain", tmp_path / "fused"
    plain.mkdir()
    fused.mkdir()
    expected = execute(write_recipe(plain, FUSIBLE[:-1], rows))
    how = {"op_fusion": True, "fusion_strategy": "greedy"}
    assert execute(write_recipe(fused, FUSIBLE[:-1], rows, **how)).equals(expected)
    assert 0 < expected.num_rows < rows.num_rows
    assert audit_log(fused) == audit_log(plain)


# dj-analyze


def test_analysis_takes_the_statistics_of_the_dataset(tmp_path, rows, data_juicer):
    recipe = write_recipe(tmp_path, FUSIBLE[:6], rows)
    command = Path(sys.executable).with_name("dj-analyze")
    environment = {**os.environ, "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    ran = subprocess.run(
        [command, "--config", recipe],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert ran.returncode == 0, ran.stderr
    lines = (tmp_path / "out" / "curated_stats.jsonl").read_text().splitlines()
    assert len(lines) == rows.num_rows
    assert yaml.safe_load(lines[0])["__dj__stats__"]["text_len"] == len(rows["response"][0].as_py())
    assert not (tmp_path / "out" / "curated.run").exists()


# A wheel
