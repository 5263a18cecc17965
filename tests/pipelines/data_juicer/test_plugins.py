"""Operators that other distributions register in Data-Juicer are steps like its own."""

import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import RecipeError, registry
from rejuice.operators.cache_key import cache_key_json, code_version
from rejuice.pipelines.data_juicer import catalogue, run_operator, steps
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import compute_change
from rejuice.pipelines.recipe.recipe import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

FILTER = '''
from pydantic import PositiveInt
from data_juicer.ops import OPERATORS, Filter
from .more import NAME

OP_NAME = "vowel_count_filter"

@OPERATORS.register_module(OP_NAME)
class VowelCountFilter(Filter):
    """Keep texts with vowels."""

    def __init__(self, least: PositiveInt = 1, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.least = least

    def compute_stats_single(self, sample, context=False):
        sample["__dj__stats__"]["vowels"] = sum(map(sample[self.text_key].count, "aeiou"))
        return sample

    def process_single(self, sample):
        return sample["__dj__stats__"]["vowels"] >= self.least
'''
MORE = """
from data_juicer.ops.base_op import OPERATORS, Mapper

NAME = "x"

@OPERATORS.register_module("shout_mapper")
class ShoutMapper(Mapper):
    _batched_op = True

    def process_batched(self, samples):
        samples[self.text_key] = [text.upper() for text in samples[self.text_key]]
        return samples
"""
BY_CALL = """
from data_juicer.ops.base_op import OPERATORS, Mapper

class Whisper(Mapper):
    def process_single(self, sample):
        sample[self.text_key] = sample[self.text_key].lower()
        return sample

OPERATORS.register_module("whisper_" + "mapper", Whisper)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution with operators for Data-Juicer on the path."""
    caches = (
        catalogue.plugins, registry.all_entry_points, catalogue._digest, catalogue._registered, catalogue.find, steps._kind,
    )  # fmt: skip
    tops = set()

    def add(module, files, version="1.0"):
        top = module.split(".")[0]
        tops.add(top)
        info = tmp_path / "site" / f"{top}_dist-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {top}-dist\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[data_juicer.ops]\n{top} = {module}\n")
        for name, code in files.items():
            path = tmp_path / "site" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
        forget()
        return info

    def forget():
        for each in caches:
            each.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(run_operator, "_instances", {})
    yield add
    from data_juicer.ops import OPERATORS

    for name, kind in list(OPERATORS.modules.items()):
        if kind.__module__.split(".")[0] in tops:
            del OPERATORS.modules[name]
    for name in list(sys.modules):
        if name.split(".")[0] in tops:
            del sys.modules[name]
    monkeypatch.undo()
    forget()


PACKAGE = {
    "vowels/__init__.py": "from . import filters",
    "vowels/filters.py": FILTER,
    "vowels/more.py": MORE,
}


def test_their_names_are_known_without_an_import(install, tmp_path):
    install("vowels", PACKAGE)
    assert {"vowel_count_filter", "shout_mapper"} <= set(catalogue.names())
    assert "vowels" not in sys.modules
    found = catalogue.find("vowel_count_filter")
    assert found.kind == "filter"
    assert found.plugin.distribution == "vowels-dist"
    assert {"least", "text_key", "reversed_range"} <= set(found.known)
    code = (
        "import sys; from rejuice.pipelines.data_juicer import catalogue;"
        "assert catalogue.exists('vowel_count_filter');"
        "print({'data_juicer', 'vowels', 'torch'} & set(sys.modules))"
    )
    env = {"PYTHONPATH": str(tmp_path / "site"), "PATH": ""}
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        env=env,
    )
    assert out.stdout.strip() == "set()"


def test_their_fields_are_checked(install):
    install("vowels", PACKAGE)
    for fields, message in [
        ({"least": 0}, "field 'least' is 0; input should be greater than 0"),
        ({"leats": 1}, "unknown field 'leats'; did you mean 'least'?"),
    ]:
        with pytest.raises(RecipeError) as raised:
            steps.step("vowel_count_filter", fields)
        assert str(raised.value) == message


def test_they_run_as_steps(install, recipe_file, tmp_path):
    install("vowels", PACKAGE)
    rows = [{"text": "aa"}, {"text": "xyz"}, {"text": "ab"}]
    path = recipe_file([{"vowel_count_filter": {"least": 1}}, "shout_mapper"], rows)
    report = engine.run(load(path))
    texts = pq.read_table(tmp_path / "out" / "curated.parquet")["text"].to_pylist()
    assert texts == ["AA", "AB"]
    assert [step.dropped for step in report.steps] == [{"vowel_count_filter": 1}, {}]
    step = steps.step("vowel_count_filter", {"least": 2})
    assert pickle.loads(pickle.dumps(step)) == step


def test_version_and_code_of_the_distribution_are_in_the_key(install):
    def key():
        step = steps.step("shout_mapper", {})
        return cache_key_json(step), code_version(type(step))

    info = install("vowels", PACKAGE)
    assert steps.step("shout_mapper", {}).depends_on == ("py-data-juicer", "vowels-dist")
    first = key()
    for file in sorted(info.iterdir()):
        file.unlink()
    info.rmdir()
    install("vowels", PACKAGE, version="1.1")
    second = key()
    assert (second[0] == first[0], second[1] == first[1]) == (True, False)
    (info.parent / "vowels" / "more.py").write_text(MORE.replace("upper", "title"))
    catalogue._digest.cache_clear()
    assert key()[0] != second[0]


def test_one_that_registers_by_a_call_is_imported(install):
    install("whispers", {"whispers.py": BY_CALL})
    assert "whisper_mapper" not in catalogue.names()
    rows = pa.table({"text": ["AB"]})
    change = compute_change(steps.step("whisper_mapper", {}), Frame.of(rows))
    assert change.columns["text"].to_pylist() == ["ab"]


def test_one_that_does_not_import(install):
    install("broken", {"broken.py": MORE.replace("NAME =", "import no_such_module\nNAME =")})
    with pytest.raises(RecipeError) as raised:
        steps.step("shout_mapper", {})
    assert str(raised.value) == (
        "broken-dist 1.0 cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_a_name_that_nobody_registers(install, recipe_file):
    install("vowels", PACKAGE)
    with pytest.raises(RecipeError, match="unknown operator; did you mean 'vowel_count_filter'"):
        load(recipe_file(["vowel_count_filtr"], [{"text": "a"}]))
