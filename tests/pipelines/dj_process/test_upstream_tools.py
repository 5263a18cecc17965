"""Data-Juicer's own tools with rejuice installed: search, servers, pickling, probes, analysis."""

import asyncio
import importlib
import inspect
import os
import pickle
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pydantic
import pytest
import yaml
from juicer_run import audit_log, execute, write_recipe

from rejuice.operators import Filter, get, installed
from rejuice.operators.operator import COMMON_FIELDS

pytest.importorskip("data_juicer.ops")
import cloudpickle
import dill
from data_juicer.core.adapter import Adapter
from data_juicer.core.data import NestedDataset
from data_juicer.ops import OPERATORS, load_ops
from data_juicer.tools import op_search
from datasets import Dataset
from datasets.fingerprint import Hasher

from rejuice.pipelines.dj_process import plugin

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


def test_the_searcher_finds_ours_by_what_their_docs_say(searcher):
    found = searcher.search_by_regex("whose pass rate is outside")
    assert [each["name"] for each in found] == ["pass_rate_filter"]
    described = {k: v for k, v in found[0]["param_desc_map"].items() if k not in COMMON_FIELDS}
    assert described == {"min": "Lowest pass rate to keep.", "max": "Highest pass rate to keep."}


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


def test_the_server_of_recipes_starts(mcp, quick_search, monkeypatch):
    monkeypatch.delenv("DJ_OPS_LIST_PATH", raising=False)
    monkeypatch.delitem(sys.modules, "data_juicer.tools.DJ_mcp_recipe_flow", raising=False)
    assert "search_ops" in tools("DJ_mcp_recipe_flow")
    flow = sys.modules["data_juicer.tools.DJ_mcp_recipe_flow"]
    found = flow.search_ops(query="grpo_advantage", search_mode="regex")
    assert ":param  epsilon:" in found["grpo_advantage_mapper"]
    assert set(installed()) <= set(flow.search_ops(op_type="pipeline"))


# Pickling


def operator():
    (built,) = load_ops([{"pass_rate_filter": {"min": 0.3, "num_proc": 2}}])
    built.batch_size = 7
    return built


def state(built):
    """What an operator has; its methods are wrapped in functions of its own."""
    return {name: value for name, value in vars(built).items() if not callable(value)}


@pytest.mark.parametrize("pickler", [pickle, dill, cloudpickle], ids=lambda each: each.__name__)
def test_operators_are_pickled(pickler, rows):
    before = operator()
    after = pickler.loads(pickler.dumps(before))
    assert type(after) is type(before)
    assert state(after) == state(before)
    dataset = NestedDataset(Dataset(rows))
    assert after.run(dataset).to_list() == before.run(dataset).to_list()


def test_the_cache_of_hugging_face_tells_operators_apart():
    other = load_ops([{"pass_rate_filter": {"min": 0.4, "num_proc": 2}}])[0]
    assert Hasher.hash(operator()) == Hasher.hash(operator()) != Hasher.hash(other)


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


def test_a_worker_of_ray_reads_an_operator():
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        read = ray.get(
            ray.remote(lambda built: (type(built)._name, built.operator.min)).remote(operator())
        )
    finally:
        ray.shutdown()
    assert read == ("pass_rate_filter", 0.3)


# Fusion and adaptive batches

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


@pytest.fixture(scope="module")
def plain():
    """The run without fusion and with batches of the usual size."""
    return {}


@pytest.fixture
def calls(monkeypatch):
    """The steps of ours as they are run."""
    names, run = [], plugin.run_on_default
    monkeypatch.setattr(
        plugin, "run_on_default", lambda step, *rest: (names.append(step.name), run(step, *rest))[1]
    )
    return names


@pytest.mark.parametrize(
    "settings",
    [
        {"op_fusion": True},
        {"op_fusion": True, "fusion_strategy": "greedy"},
        {"adaptive_batch_size": True},
        {"op_fusion": True, "adaptive_batch_size": True},
    ],
    ids=lambda settings: "+".join(settings),
)
def test_fusion_and_adaptive_batches_give_the_same_rows(
    tmp_path, rows, data_juicer, settings, calls, plain
):
    """The rows of the dataset have no advantage, which a filter of Data-Juicer's asks for."""
    if not plain:
        (tmp_path / "plain").mkdir()
        table = execute(write_recipe(tmp_path / "plain", FUSIBLE, rows))
        plain.update(table=table, log=audit_log(tmp_path / "plain"))
        calls.clear()
    found = execute(write_recipe(tmp_path, FUSIBLE, rows, **settings))
    assert found.equals(plain["table"])
    assert 0 < found.num_rows < rows.num_rows
    assert calls == ["group_size_filter", "pass_rate_filter", "grpo_advantage_mapper"]
    assert audit_log(tmp_path) == plain["log"]


def test_recipes_without_ours_are_probed(rows, monkeypatch):
    operator()  # Building one of ours is what makes the difference.
    probed = []

    def probe(dataset, operators, sample_interval=0.5):
        probed.extend(operator._name for operator in operators)
        return []

    monkeypatch.setattr(Adapter, "execute_and_probe", staticmethod(probe))
    adapter = Adapter({})
    theirs = load_ops([{"text_length_filter": {}}])
    adapter.probe_small_batch(NestedDataset(Dataset(rows)), theirs)
    assert probed == ["text_length_filter"]
    assert adapter.probe_small_batch(None, [operator()]) == (None, 0)
    assert probed == ["text_length_filter"]


# dj-analyze


def test_analysis_takes_the_statistics_of_the_dataset(tmp_path, rows, data_juicer):
    recipe = write_recipe(tmp_path, FUSIBLE[:6], rows, op_fusion=True)
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


def test_analysis_ends_with_the_line_of_a_bad_value(tmp_path, rows, data_juicer):
    recipe = write_recipe(tmp_path, [{"pass_rate_filter": {"min": 0.9, "max": 0.1}}], rows)
    command = Path(sys.executable).with_name("dj-analyze")
    ran = subprocess.run(
        [command, "--config", recipe],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert ran.returncode == 1
    assert (ran.stdout + ran.stderr).count("pass_rate_filter: min 0.9 is above max 0.1") == 1
    assert "Traceback" not in ran.stdout + ran.stderr


# A wheel

IN_A_WHEEL = """
import sys
from pathlib import Path
from data_juicer.tools import op_search
op_search.find_test_by_searching_content = lambda *_: None
import rejuice.operators
records = op_search.OPSearcher().all_ops
for name in rejuice.operators.installed():
    file = Path(op_search.PROJECT_ROOT, records[name].source_path).resolve()
    assert file.is_relative_to(sys.argv[1]), file
    assert records[name].type == "pipeline"
print(len(rejuice.operators.installed()), "of a wheel")
"""


def test_the_searcher_reads_a_wheel(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ("operators", "pipelines", "recipes", "trainer"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("rejuice-*.whl")
    install = [*pip, "install", *offline, "--target", str(folder), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_WHEEL, str(folder)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert ran.returncode == 0, ran.stderr
    assert f"{len(installed())} of a wheel" in ran.stdout
