"""What decides an operator's result, as text: two parts of the key under which results are kept.

key of a step = hash(key of the step before it, cache_key_json(operator), code_version(class))

Rejuice's own code counts as a whole: any edit of `rejuice.operators` changes the version of every
step that states none, and they are cheap. Of a user's file its syntax tree counts, without comments
and layout, and that of each module that an import statement anywhere in it names, within its
top-level package or, for a file that is in no package, in its folder; and so on from there.
Not seen are modules that are imported from elsewhere, or by a name made at run time, and an
`__init__.py` from which nothing is imported by name.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, version
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from uuid import uuid4

import xxhash

from .config import Named
from .operator import COMMON_FIELDS, Operator, ResumableOperator, source_state, source_states

SITE = frozenset({"site-packages", "dist-packages"})  # folders of installed packages
_REJUICE = __name__.partition(".")[0]
_OPERATORS = __name__.rpartition(".")[0]
_LARGEST_HASHED = 64 << 20  # bytes


def cache_key_json(operator: Operator, *, of_row: bool = False) -> str:
    """As canonical JSON. A row that the condition of the step matches has the same result whatever
    the condition is, so results `of_row`, kept row by row, do without it."""
    fields = operator.cache_key_fields()
    fields = {name: value for name, value in fields.items() if name not in COMMON_FIELDS}
    if operator.where and not of_row:
        fields |= {"where": operator.model_dump(mode="json", include={"where"})["where"]}
    return json.dumps({operator.name(): fields}, sort_keys=True)


def file_state(file: Path) -> str:
    """A hash of a file's content; of a large file, its size and modification time."""
    stat = file.stat()
    if stat.st_size > _LARGEST_HASHED:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


# --- The version of a class -----------------------------------------------------------


@cache
def code_version(kind: type[Named]) -> str:
    """The version of the code of an operator, a tool or a flow: edited code finds no old results.

    A class may state it itself (`code`); its subclasses state their own. Otherwise it is a hash of
    its code, of the version that the nearest base class states, and of the installed versions of
    `depends_on`. A user's class that was paid for (a resumable operator, a tool or a flow) has only
    the user's own code in it, so that no upgrade of rejuice loses what it gave.

    A class whose source is in no file, as in a notebook, or in a file that was edited since it was
    loaded, gets a new version in every process.
    """
    if (own := vars(kind).get("code")) is not None:
        return str(own)
    modules = {base.__module__ for base in kind.__mro__ if issubclass(base, Named)}
    of_user = sorted(name for name in modules if name.partition(".")[0] != _REJUICE)
    codes = [_module_digest(name) for name in of_user]
    is_edited = issubclass(kind, Operator) and source_states[kind] != source_state(kind)
    if is_edited or None in codes:
        return uuid4().hex
    used = {*kind.__mro__}
    was_paid_for = issubclass(kind, ResumableOperator) or not issubclass(kind, Operator)
    if not (of_user and was_paid_for):
        # The operators count, and the packages of modules of rejuice elsewhere.
        own = (name for name in modules - {*of_user} if not name.startswith(f"{_OPERATORS}."))
        codes += map(_package_digest, sorted({_OPERATORS, *(n.rpartition(".")[0] for n in own)}))
        for name in of_user:
            types = [each for each in [*vars(sys.modules[name]).values()] if isinstance(each, type)]
            used.update(each for each in types if each.__module__ != name)
    parts = [getattr(kind, "code", None), *codes, *_depends_on(used)]
    return xxhash.xxh3_128_hexdigest("\n".join(map(str, parts)).encode())


def _module_digest(name: str) -> str | None:
    module = sys.modules.get(name)
    file = Path(getattr(module, "__file__", None) or "")
    return code_digest(file, getattr(module, "__package__", None) or "") if file.is_file() else None


@cache
def _package_digest(name: str) -> str:
    """All its source files count; the version of rejuice is in one of them."""
    folder = Path(str(sys.modules[name].__file__)).parent
    digest = xxhash.xxh3_128()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"\n{file.relative_to(folder)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _depends_on(used: set[type]) -> Iterator[str]:
    """What those of some classes that are operators depend on, as it is installed."""
    operators = [each for each in source_states if each in used]
    for name in sorted({name for each in operators for name in each.depends_on}):
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            yield f"{name}=={version(name)}"


# --- The code of a file ---------------------------------------------------------------


def code_digest(file: Path, package: str = "") -> str:
    """A digest of the code of a Python file and of what it imports beside it; nothing is run.
    `package` is the full name of the package that it is in, or is the `__init__.py` of, if there is
    one."""
    top, folder = package.partition(".")[0], file.parents[package.count(".")]
    # An installed module of one file lies beside all other packages, which are not its own.
    is_alone = not top and folder.name in SITE
    codes: dict[Path, str] = {}
    todo = [file]
    while todo:
        each = todo.pop()
        if each not in codes:
            parts = (top, *each.parent.relative_to(folder).parts)
            codes[each], names = _parsed(each.read_bytes(), ".".join(filter(None, parts)))
            for name in () if is_alone else names:
                of_module = _file_of(name.rpartition(".")[0], top, folder)
                todo += filter(None, [_file_of(name, top, folder) or of_module])
    first = codes.pop(file)  # Whatever it is called, it does the same.
    others = sorted(f"{each.relative_to(folder)} {code}" for each, code in codes.items())
    return xxhash.xxh3_128_hexdigest("\n".join([first, *others]).encode())


def imported_names(file: Path) -> frozenset[str]:
    """Full names, such as `package.module.function`."""
    return _parsed(file.read_bytes(), "")[1]


def _file_of(module: str, top: str, folder: Path) -> Path | None:
    """The file of a module, if it is in the folder: that of the package `top` or, if that is
    empty, of a file that is in no package."""
    first, _, rest = module.partition(".")
    if first in ("", _REJUICE) or (top and first != top):
        return None
    path = folder / (rest if top else module).replace(".", "/")
    files = (Path(f"{path}{suffix}") for suffix in ("/__init__.py", *all_suffixes()))
    return next((each for each in files if each.is_file()), None)


@lru_cache(maxsize=512)
def _parsed(content: bytes, package: str) -> tuple[str, frozenset[str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Those of the source were given when it was loaded.
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Such as a compiled module.
        return xxhash.xxh3_128_hexdigest(content), frozenset()
    shown = content
    with suppress(RecursionError):
        shown = ast.dump(tree).encode()
    return xxhash.xxh3_128_hexdigest(shown), frozenset(_imported(tree, package))


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):  # `import a.b` binds a.
            for alias in node.names:
                yield from accumulate(alias.name.split("."), "{}.{}".format)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # A relative one that leads out of the package.
                module = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{module}.{alias.name}" for alias in node.names)
