"""The digest of a module's code changes with what the module uses, and with nothing else."""

import ast
import importlib
import os
import shutil
import sys
from types import ModuleType

import pytest

from rejuice.operators.cache_key import _hash, code_digest, digest_of_file

pytestmark = pytest.mark.slow

ACME = {
    "__init__.py": """
        '''All of Acme.'''
        from .other import Other
        from .ops import Scorer
        __all__ = ["Other", "Scorer"]
        __version__ = "1.0"
    """,
    "ops.py": """
        '''The operators of Acme.'''
        from __future__ import annotations
        from typing import TYPE_CHECKING
        import acme.plain
        from acme.constants import LIMIT
        from . import names
        from .near import distance, ends
        if TYPE_CHECKING:
            from .only_types import Table
        class Scorer:
            '''Scores.'''
            limit: int = LIMIT
            '''The most.'''
            def apply(self, table: Table) -> int:
                # What is imported late counts too.
                from .late.tool import tool
                return tool(distance(names.FIRST + acme.plain.X))
    """,
    "constants.py": "LIMIT = 10",
    "names.py": "FIRST = 1",
    "plain.py": "X = 1",
    "other.py": "class Other: ...",
    "only_types.py": "class Table: ...",
    "near/__init__.py": """
        from .far import distance
        from .unused import unused
        from .unused import another as ends
    """,
    "near/far.py": """
        from ..deep import deep
        def distance(x):
            return deep(x) + 1
    """,
    "near/unused.py": """
        from ..deeper import nothing
        def unused(): ...
        def another(): ...
    """,
    "near/alone.py": "A = 1",
    "deep.py": """
        from .deeper import X
        def deep(x):
            '''Deep.'''
            return x * X
    """,
    "deeper.py": "X = 2\nnothing = None",
    "late/__init__.py": """
        from .registration import register
        from .neighbour import neighbour
        STATE = register()
    """,
    "late/registration.py": "def register(): return 1",
    "late/neighbour.py": "def neighbour(): return 1",
    "late/tool.py": "def tool(x): return x",
}


def unindented(text):
    lines = text.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] for line in lines) + "\n"


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unindented(text))
    return folder


def digest_of(folder, module="acme.ops", imports=None):
    """The digest in a process of its own, which has read none of these files before."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            sys.path.insert(0, str(folder))
            importlib.import_module(imports or module)
            os.write(theirs, str(code_digest([module])).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        found = pipe.read().decode()
    os.waitpid(pid, 0)
    assert found
    return found


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    return written(tmp_path_factory.mktemp("before"), {f"acme/{k}": v for k, v in ACME.items()})


def edited(acme, tmp_path, name, old, new):
    shutil.copytree(acme / "acme", tmp_path / "acme")
    path = tmp_path / "acme" / name
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    return digest_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ops.py", "'''Scores.'''", "'''Scores well.'''"),
        ("ops.py", "'''The most.'''", "'''The most that counts.'''"),
        ("ops.py", "    '''The most.'''\n", ""),
        ("ops.py", "# What is imported late counts too.", "# A word."),
        ("ops.py", "from acme.constants import LIMIT", "from acme.constants import (\n LIMIT,\n)"),
        ("ops.py", "    from .only_types import Table", "    from .only_types import Table as T"),
        ("deep.py", "    '''Deep.'''\n", ""),
        ("deep.py", "def deep(x):", "def deep(\n    x,  # a number\n):"),
        ("other.py", "class Other: ...", "class Other: name = 1"),
        ("only_types.py", "class Table: ...", "class Table: name = 1"),
        ("near/alone.py", "A = 1", "A = 2"),
        ("late/neighbour.py", "return 1", "return 2"),
        ("__init__.py", "'''All of Acme.'''", "'''All.'''"),
        ("__init__.py", '__version__ = "1.0"', '__version__ = "1.1"'),
        ("__init__.py", "from .other import Other\n", "from .near.alone import A as Other\n"),
        ("near/__init__.py", "from .unused import unused\n", ""),
    ],
    ids=lambda text: text.strip().split("\n")[0],
)
def test_an_edit_that_changes_nothing_that_is_used(acme, tmp_path, name, old, new):
    assert edited(acme, tmp_path, name, old, new) == digest_of(acme)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ops.py", "limit: int", "limit: float"),
        ("ops.py", "-> int", "-> float"),
        ("ops.py", "= LIMIT", "= LIMIT + 1"),
        ("constants.py", "10", "11"),
        ("constants.py", "10", "10.0"),
        ("constants.py", "10", "'10'"),
        ("constants.py", "LIMIT = 10", "LIMIT = 10\nMORE = ''"),
        ("names.py", "1", "2"),
        ("plain.py", "1", "2"),
        ("near/far.py", "+ 1", "- 1"),
        ("near/unused.py", "def another(): ...", "def another(): return 1"),
        ("deep.py", "x * X", "X * x"),
        ("deeper.py", "X = 2", "X = 3"),
        ("late/tool.py", "return x", "return -x"),
        ("late/registration.py", "return 1", "return 2"),
        ("late/__init__.py", "STATE = register()", "STATE = None"),
        ("near/__init__.py", "from .far import distance", "from .unused import unused as distance"),
    ],
    ids=lambda text: text.strip().split("\n")[0],
)
def test_an_edit_of_what_is_used_however_far_away(acme, tmp_path, name, old, new):
    assert edited(acme, tmp_path, name, old, new) != digest_of(acme)


def test_neither_the_place_of_the_files_nor_what_is_loaded_matters(acme, tmp_path):
    shutil.copytree(acme / "acme", tmp_path / "acme")
    assert digest_of(tmp_path) == digest_of(acme)
    assert digest_of(tmp_path, imports="acme.late.tool") == digest_of(acme)


def test_all_of_a_package_counts_where_its_names_are_looked_up_later(acme, tmp_path):
    user = {"acme/user.py": "import acme\ndef f(): return acme.Other"}
    for name in ("before", "after"):
        shutil.copytree(acme / "acme", tmp_path / name / "acme")
        written(tmp_path / name, user)
    (tmp_path / "after" / "acme" / "other.py").write_text("class Other: name = 1")
    digests = [digest_of(tmp_path / name, "acme.user") for name in ("before", "after")]
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    "line", ["from .near import *", "from acme import *", "from .near import nothing_known as x"]
)
def test_a_name_that_cannot_be_traced_counts_as_the_whole_package(acme, tmp_path, line):
    for name in ("before", "after"):
        shutil.copytree(acme / "acme", tmp_path / name / "acme")
        text = f"def f():\n    {line}" if "known" in line else line
        (tmp_path / name / "acme" / "user.py").write_text(text)
    (tmp_path / "after" / "acme" / "near" / "unused.py").write_text("unused = another = 1")
    found = [digest_of(tmp_path / name, "acme.user") for name in ("before", "after")]
    assert found[0] != found[1]


def test_a_circle_of_imports_ends(tmp_path):
    files = {"ring/__init__.py": "", "ring/a.py": "from . import b", "ring/b.py": "from . import a"}
    first = digest_of(written(tmp_path, files), "ring.a")
    (tmp_path / "ring" / "b.py").write_text("from . import a\nX = 1\n")
    assert digest_of(tmp_path, "ring.a") != first


def test_a_lone_file_may_import_from_its_own_folder(tmp_path):
    files = {
        "mine.py": "import numpy\nfrom helpers.near import f\nimport beside",
        "helpers/near.py": "from .far import f",
        "helpers/far.py": "def f(): return 1",
        "beside.py": "X = 1",
        "unrelated.py": "X = 1",
    }
    first = digest_of(written(tmp_path, files), "mine")
    (tmp_path / "unrelated.py").write_text("X = 2")
    (tmp_path / "beside.py").write_text("# the same\nX = 1")
    assert digest_of(tmp_path, "mine") == first
    (tmp_path / "beside.py").write_text("X = 2")
    second = digest_of(tmp_path, "mine")
    (tmp_path / "helpers" / "far.py").write_text("def f(): return 2")
    third = digest_of(tmp_path, "mine")
    assert len({first, second, third}) == 3


def test_a_lone_file_is_read_through_a_link_too(tmp_path):
    files = {"mine.py": "import beside", "beside.py": "X = 1"}
    (tmp_path / "link").symlink_to(written(tmp_path / "real", files))
    first = digest_of(tmp_path / "link", "mine")
    assert digest_of(tmp_path / "real", "mine") == first
    (tmp_path / "real" / "beside.py").write_text("X = 2")
    assert digest_of(tmp_path / "link", "mine") != first


def test_what_is_loaded_from_elsewhere_is_not_what_a_file_that_is_not_loaded_imports(
    tmp_path, monkeypatch
):
    """A function's process imports the package beside its file, whatever is loaded here."""
    package = {"helpers/__init__.py": "", "helpers/part.py": "X = 1"}
    loaded = ModuleType("helpers.part")
    loaded.__file__ = str(written(tmp_path / "elsewhere", package) / "helpers" / "part.py")
    monkeypatch.setitem(sys.modules, "helpers.part", loaded)
    mine = {"mine.py": "from helpers.part import X", **package}
    folder = written(tmp_path / "here", mine)
    first = digest_of_file(folder / "mine.py")
    (folder / "helpers" / "part.py").write_text("X = 22")
    assert digest_of_file(folder / "mine.py") != first


def test_a_relative_import_in_a_lone_file_leads_nowhere(tmp_path):
    text = "try:\n    from . import beside\nexcept ImportError:\n    beside = None"
    first = digest_of(written(tmp_path, {"mine.py": text, "beside.py": "X = 1"}), "mine")
    (tmp_path / "beside.py").write_text("X = 2")
    assert digest_of(tmp_path, "mine") == first


def test_an_installed_module_of_one_file_stands_alone(tmp_path):
    site = written(tmp_path / "site-packages", {"mine.py": "import beside", "beside.py": "X = 1"})
    first = digest_of(site, "mine")
    (site / "beside.py").write_text("X = 2")
    assert digest_of(site, "mine") == first
    (site / "mine.py").write_text("import beside\nX = 1")
    assert digest_of(site, "mine") != first


def test_a_module_without_a_file_has_no_digest():
    assert code_digest(["builtins"]) is None
    assert code_digest(["not_loaded_at_all"]) is None


EVERY_VERSION = """
x, width = 1, 3
empty = f"{x:}" "" f""
texts = f"{x!r:>{width}}" f"{x=}" "tail", u"unicode", 'ä\\u200b', f"{x:%Y}{{}}"
def f(p, /, q: int = 1, *, r=None, k, **kw) -> "int": ...
class C: pass
match x:
    case None: pass
    case [1, *_] | {"a": 1, **_rest}: pass
"""


def test_versions_of_python_agree():
    """Python 3.10, 3.11, 3.12 and 3.13 all give this digest."""
    assert _hash(ast.parse(EVERY_VERSION)) == (
        "b626dd7b457b50858bca538a45fb001d55fcd0a2064414fddc7247efa5471805"
    )


class FunctionDef(ast.FunctionDef):
    """As Python 3.12 has it."""

    _fields = tuple(dict.fromkeys((*ast.FunctionDef._fields, "type_params")))


def test_what_python_versions_write_in_different_ways_is_left_out():
    plain, other = (ast.parse("def f(x): return f'{x:}'") for _ in range(2))
    fields = dict(ast.iter_fields(other.body[0]))
    other.body[0] = FunctionDef(**{**fields, "type_params": [], "type_comment": None})
    for node in ast.walk(other):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
    assert ast.dump(other) != ast.dump(plain)
    assert _hash(other) == _hash(plain)
    other.body[0].type_params.append(ast.Name("T"))
    assert _hash(other) != _hash(plain)


@pytest.mark.parametrize(
    ("name", "more", "used"),
    [
        # `import acme.plain` binds acme, so that acme.other may be used.
        ("ops.py", "def other(): return acme.other.Other\n", "other.py"),
        # It may register something; names that a package only re-exports do not count.
        ("near/__init__.py", "from . import alone\n", "near/alone.py"),
    ],
)
def test_what_counts_once_it_is_used(acme, tmp_path, name, more, used):
    def changed(folder, with_more):
        shutil.copytree(acme / "acme", folder / "acme")
        path = folder / "acme" / name
        path.write_text(path.read_text() + (more if with_more else ""))
        before = digest_of(folder)
        (folder / "acme" / used).write_text("Y = 7\nclass Other: name = 1\n")
        return digest_of(folder) != before

    assert changed(tmp_path / "with", True)
    assert not changed(tmp_path / "without", False)
