"""Rules about the layout of the code that no linter checks."""

import ast
import configparser
import re
from collections import defaultdict
from pathlib import Path

import pytest
from each import check_each

from rejuice.operators import Filter, Kind, Mapper, get, installed
from rejuice.operators.config import field_docs
from rejuice.operators.servers.judged_mapper import ScoringMapper

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("operators", "pipelines", "recipes", "trainer")
OF_USERS = ROOT / "recipes" / "small_model"  # Its code is what a user writes beside a recipe.
SOURCES = [
    file
    for folder in FOLDERS
    for file in sorted((ROOT / folder).rglob("*.py"))
    if file.parent != OF_USERS
]


@pytest.fixture(scope="module")
def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_folder_with_code_is_a_package_that_is_shipped(setup_cfg):
    listed = setup_cfg["options"]["packages"].split()
    found = {f"rejuice.{'.'.join(file.parent.relative_to(ROOT).parts)}" for file in SOURCES}
    assert listed == sorted(found)


def test_folders_are_imported_relatively():
    def check(file):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            for module in modules:
                assert module.split(".")[0] not in (*FOLDERS, "rejuice")

    check_each(SOURCES, check)


def test_a_type_name_has_one_meaning():
    """Private or not: one name for two types makes a reader look at the imports."""
    homes = defaultdict(set)
    for file in SOURCES:
        for node in ast.parse(file.read_text("utf-8")).body:
            if name := _type_name(node):
                homes[name.lstrip("_")].add(str(file.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def _type_name(node):
    """The name of a class or of an alias of a type, such as `Columns = tuple[str, ...]`."""
    if isinstance(node, ast.ClassDef):
        return node.name
    if isinstance(node, ast.AnnAssign) and getattr(node.annotation, "id", "") == "TypeAlias":
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        name = getattr(node.targets[0], "id", "")
        return name if name.lstrip("_")[:1].isupper() and not name.isupper() else None
    return None


def test_few_files_name_data_juicer():
    """What works on its steps does so by what each operator says of itself."""
    its_own = ("pipelines/data_juicer", "pipelines/dj_process", "pipelines/recipe", "pipelines/cli")
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in SOURCES}
    named = {name for name, text in files.items() if re.search("data.?juicer", text, re.IGNORECASE)}
    assert {name for name in named if not name.startswith(its_own)} == {
        # A method of Data-Juicer's that is our own code, and says where it is from.
        "operators/mapper/llm_quality_reward_mapper.py",
        "operators/mapper/rule_quality_reward_mapper.py",
        "operators/servers/judge_prompt.py",
        "operators/servers/verdict.py",
        "pipelines/dataset/read.py",
        # What users read about its operators.
        "pipelines/analysis/funnel.py",
        "pipelines/analysis/reference.py",
    }


def test_a_built_in_operator_is_documented_whole():
    def check(name):
        kind = get(name)
        assert kind.__doc__
        assert kind.__module__ == f"rejuice.operators.{kind.kind.value}.{name}"
        assert name.endswith(f"_{kind.kind.value}")
        for field in kind.model_fields:
            assert field_docs(kind).get(field), f"{name}.{field} has no docstring"
        drops = issubclass(kind, Filter)
        assert kind.reasons or not drops
        assert issubclass(kind, Filter | Mapper | ScoringMapper) or "apply" in vars(kind)
        assert (
            (ROOT / "tests" / kind.__module__.removeprefix("rejuice.").replace(".", "/"))
            .with_name(f"test_{name}.py")
            .exists()
        )

    check_each(installed(), check)


def test_the_entry_points_are_sorted_by_kind_and_name(setup_cfg):
    lines = setup_cfg["options.entry_points"]["rejuice.operators"].split("\n")
    names = [line.split(" =")[0] for line in lines if line]
    kinds = list(Kind)
    assert names == sorted(names, key=lambda name: (kinds.index(get(name).kind), name))
