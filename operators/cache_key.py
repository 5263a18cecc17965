"""What decides an operator's result, as text: two parts of the key under which results are kept.

key of a step = hash(key of the step before it, cache_key_json(operator), code_version(class))
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple
from uuid import uuid4

import xxhash

from .config import Named
from .disk import Header, in_user_cache, key_of, read_file, records_in, temporary_path
from .operator import COMMON_FIELDS, Operator, ResumableOperator, source_state, source_states

# --- Code digest ----------------------------------------------------------------------
# A digest of the code that a module runs: its own, and that of the modules that it imports.
#
# Two versions of a source file have the same digest where they do the same: hashed are syntax trees
# without comments, layout, docstrings, `__all__`, `__version__` and what is imported for type
# checkers only. The digest depends neither on where the files are nor on the version of Python.
#
# Imports are followed wherever they stand, in functions too, within the top-level packages of the
# modules asked for. A name that a package only re-exports leads to the module that defines it, so
# that a package's `__init__` does not stand for everything that it imports: of an `__init__` that
# is merely run on the way to a module, its own statements count, the imports that these use, and
# the submodules that it imports as modules, perhaps for what they register. A package with a
# module-level `__getattr__` re-exports what it imports for type checkers. A file that is part of no
# package (an operator of a recipe's `custom_operator_paths`, a script) may import modules from its
# own folder; those count as well.
#
# The modules of rejuice can be given instead of being read: none of them, where only the code of a
# user counts, or what they were in an earlier version.
#
# Not seen are modules that are imported by a name made at run time.

# --- What a source file contributes ---------------------------------------------------

_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of syntax tree nodes that do not change what runs."""
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields that hold statements, or what holds statements."""
_METADATA = frozenset({"__all__", "__version__"})


class Import(NamedTuple):
    """`import module` (without a name), or `from module import name`; module names are absolute."""

    module: str
    name: str | None


class Code(NamedTuple):
    """What a source file contributes."""

    digest: str  # of all that it does
    imports: tuple[Import, ...] = ()  # all that it imports at run time
    own_digest: str = ""  # of what it does besides importing; "" if nothing
    own_imports: tuple[Import, ...] = ()  # the imports that this needs
    # names of the module, each with the one import that binds it; None: defined here
    bindings: Mapping[str, Import | None] = MappingProxyType({})


def parse_code(name: str, file: str, is_package: bool) -> Code:
    """Return what a source file contributes."""
    content = Path(file).read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Those of the source were given when it was loaded.
            tree = ast.parse(content, file) if file.endswith(".py") else None
    except (SyntaxError, ValueError):
        tree = None
    if tree is None:  # A compiled module, such as one of Cython.
        return Code(hashlib.sha256(content).hexdigest())
    if not is_package:
        imports = [*_imports(tree, name.rpartition(".")[0]), *_attributes(tree)]
        return Code(_hash(tree), tuple(imports))
    own = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    own = list(_running(own, top=True))
    used = {node.id for each in own for node in _walk(each) if isinstance(node, ast.Name)}
    lazy = any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in ast.walk(tree))
    bindings = list(_bindings(tree.body, name, lazy=lazy))
    sources: dict[str, Import | None] = {}
    for bound, source in bindings:
        # `import a.b` binds a, though it loads a.b.
        is_parent = source and source.name is None and source.module.startswith(f"{bound}.")
        is_one = not is_parent and sources.get(bound, source) == source
        sources[bound] = source if is_one else None
    needed = [
        source
        for bound, source in bindings
        if source and (source.module == name or (own and (bound in used or bound == "*")))
    ]
    return Code(
        _hash(tree),
        (*_imports(tree, name), *_attributes(tree)),
        _hash(ast.Module(own, [])) if own else "",
        (*needed, *(found for node in own for found in _imports(node, name))),
        sources,
    )


def _running(body: Iterable[Any], *, top: bool = False) -> Iterator[Any]:
    """Yield the statements that do something: no docstrings, nothing for type checkers only."""
    for node in body:
        if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            yield from _running(node.orelse, top=top)
        elif isinstance(node, ast.Pass) or _is_text(node) or (top and _is_metadata(node)):
            continue
        else:
            yield node


def _is_text(node: Any) -> bool:
    # Below a field a text is the field's documentation; anywhere else it does nothing.
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)


def _is_metadata(node: Any) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) and target.id in _METADATA for target in targets)


def _is_for_type_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it that run."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_running(ast.iter_child_nodes(node)))


def _imports(node: ast.AST, package: str) -> Iterator[Import]:
    """Yield what a node imports, at once or when one of its functions is called."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (source for _, source in _bound_by(node, package))
        for block in _BLOCKS:
            stack.extend(_running(getattr(node, block, None) or ()))


def _attributes(tree: ast.Module) -> Iterator[Import]:
    """What is used of packages that `import a.b` binds: `a.c.d` is `c` of a, and `d` of a.c."""
    imported = [node for node in _walk(tree) if isinstance(node, ast.Import)]
    names = [alias.name for node in imported for alias in node.names if alias.asname is None]
    packages = {name.partition(".")[0] for name in names if "." in name}
    for node in _walk(tree) if packages else ():
        path = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        parts = path.split(".")
        if parts[0] in packages and all(part.isidentifier() for part in parts):
            yield Import(".".join(parts[:-1]), parts[-1])


def _bindings(
    body: Iterable[Any], package: str, *, lazy: bool = False
) -> Iterator[tuple[str, Import | None]]:
    """Yield the names that a module's statements bind, in any order; of a star import, `*`.

    If `lazy`, those that are imported for type checkers count: `__getattr__` gives them.
    """
    body = list(body)
    for node in body if lazy else ():
        if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            yield from _bindings(node.body, package)
    for node in _running(body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _bound_by(node, package)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, None
        else:
            for child in _walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id, None
                elif isinstance(child, ast.Import | ast.ImportFrom):
                    yield from ((bound, None) for bound, _ in _bound_by(child, package))


def _bound_by(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], Import(alias.name, None)
        return
    module = node.module or ""
    if node.level:
        parts = package.split(".")
        module = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [module])])
    for alias in node.names:
        yield alias.asname or alias.name, Import(module, alias.name)


def _hash(tree: ast.Module) -> str:
    """A digest of what a syntax tree does; versions of Python differ in fields that are empty."""
    out: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        out.append(type(item).__name__)
        below: list[Any] = []
        for field in _fields(item.__class__):
            value = getattr(item, field, None)
            if isinstance(value, list):
                value = list(_running(value, top=item is tree))
                if isinstance(item, ast.JoinedStr):
                    # Python 3.12 has empty texts in f-strings where other versions have none.
                    value = [each for each in value if getattr(each, "value", None) != ""]
                below += [field, "[", *(_shown(each) for each in value), "]"] if value else []
            elif value is not None:
                below += [field, _shown(value)]
        stack += [")", *reversed(below), "("]
    return hashlib.sha256(" ".join(out).encode()).hexdigest()


def _shown(value: Any) -> Any:
    return value if isinstance(value, ast.AST) else ascii(value)


@cache
def _fields(node_type: type[ast.AST]) -> tuple[str, ...]:
    return tuple(sorted(set(node_type._fields) - _SKIPPED_FIELDS))


# --- Parsed files ---------------------------------------------------------------------
# What was found in source files, kept between processes: parsing them takes longer than a start.
#
# JSON in the user's cache folder. An entry counts as long as its file has the same inode, size,
# time of modification and time of change. The file is one record, see `operators/disk.py`: one
# that is damaged counts as absent. Nothing depends on it: entries that are lost, or a folder that
# cannot be written to, cost the time of parsing the files once more.

_MOST = 4_096
"""Entries; with more of them, those that were not used by this process are dropped."""
_SETTLED_NS = 2_000_000_000
"""A file that was written a moment ago may be written again within the same tick of its clock."""


class ParsedFiles:
    """Entries by a name, each of them of one file.

    Args:
        parser: the source file of what makes the entries: another version of it makes others.
    """

    def __init__(self, parser: Path) -> None:
        self._parser = parser
        self._entries: dict[str, Any] | None = None
        self._new: dict[str, Any] = {}
        self._used: set[str] = set()

    def find(self, name: str, file: Path, parse: Callable[[], Any]) -> Any:
        """Return the entry of a file, which `parse` makes where there is none: JSON values."""
        stat = file.stat()
        state = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        key = f"{name} {file}"
        self._used.add(key)
        if self._entries is None:
            self._entries = self._read()
        known = self._new.get(key) or self._entries.get(key)
        if known is not None and known[0] == state:
            return known[1]
        found = parse()
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
            self._new[key] = [state, found]
        return found

    def save(self) -> None:
        """Write what is new."""
        if not self._new:
            return
        entries = {**self._read(), **self._new}  # Another process may have written since.
        if len(entries) > _MOST:
            entries = {key: entry for key, entry in entries.items() if key in self._used}
        self._entries, self._new = entries, {}
        path = self._path()
        temporary = temporary_path(path)
        content = json.dumps(entries).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(Header.of(key_of(path.name), 0, [content]).packed() + content)
            temporary.replace(path)
        except OSError:  # A full disk, or a home that is not ours: files are parsed each time.
            with suppress(OSError):
                temporary.unlink()

    def _read(self) -> dict[str, Any]:
        path = self._path()
        try:
            data = read_file(path)
        except OSError:  # There is none yet.
            return {}
        for record in records_in(memoryview(data)):
            if record.header.key == key_of(path.name):
                entries: dict[str, Any] = json.loads(bytes(record.payload))
                return entries
        return {}

    def _path(self) -> Path:
        version = f"{sys.version_info[:2]} {xxhash.xxh3_64_hexdigest(self._parser.read_bytes())}"
        return in_user_cache(f"code-{xxhash.xxh3_64_hexdigest(version.encode())}.parsed")


# --- The digest of modules ------------------------------------------------------------

REJUICE = __name__.partition(".")[0]
SITE = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""
_LONE = "<file>"
"""The name of a file that is not loaded."""
_parsed = ParsedFiles(Path(__file__))


class _Module(NamedTuple):
    """A module that may count."""

    name: str  # its full name
    file: str | None  # where it is
    folders: tuple[str, ...]  # where its submodules are, if it is a package
    code: Code | None = None  # where it is given; None: it is read


def code_digest(modules: Iterable[str], *, rejuice: Mapping[str, Code] | None = None) -> str | None:
    """Return a digest of the code of some loaded modules and of what they import.

    Args:
        modules: names in `sys.modules`, or in `rejuice`.
        rejuice: the modules of rejuice that can count, by name, with their code; None: all, as they
            are now.

    Returns:
        Hexadecimal digits, or None where a module has no file, as in a notebook.
    """
    walk = _Walk(frozenset(map(_importable_name, modules)), rejuice)
    _parsed.save()
    return walk.digest() if walk.is_complete else None


def digest_of_file(file: Path) -> str:
    """Return a digest of the code of a file that is not loaded, and of what this imports from its
    folder: a file that is part of no package."""
    return _digest_of(_Module("", str(file), ()), "")


def digest_of_module(name: str) -> str:
    """Return a digest of the code of a module that need not be loaded, and of what it imports
    within its top-level package.

    Raises:
        ModuleNotFoundError: there is no such top-level package.
    """
    top = name.partition(".")[0]
    spec = find_spec(top)
    if spec is None:
        raise ModuleNotFoundError(f"no module named {top}", name=top)
    file = spec.origin if spec.has_location else None
    return _digest_of(_Module(top, file, tuple(spec.submodule_search_locations or ())), name)


def _digest_of(seed: _Module, root: str) -> str:
    walk = _Walk(frozenset({root or _LONE}), None, seed._replace(name=seed.name or _LONE))
    _parsed.save()
    return walk.digest()


def modules_of(
    modules: Iterable[str], *, rejuice: Mapping[str, Code] | None = None
) -> frozenset[str]:
    """Return the modules whose code counts in `code_digest`, but for those run on the way only."""
    return frozenset(_Walk(frozenset(map(_importable_name, modules)), rejuice).whole)


def _importable_name(name: str) -> str:
    """Return the name of a module; that of `python -m package.module` is not `__main__`."""
    spec = getattr(sys.modules.get(name), "__spec__", None) if name == "__main__" else None
    return spec.name if spec is not None and "." in spec.name else name


class _Walk:
    """The modules that are reached from some others, each of them whole or only run on the way."""

    def __init__(
        self,
        roots: frozenset[str],
        rejuice: Mapping[str, Code] | None,
        seed: _Module | None = None,  # one that is not loaded
    ) -> None:
        self._rejuice = rejuice
        self._tops = {name.partition(".")[0] for name in roots}
        self._found: dict[str, _Module | None] = {}
        self._lone = {name for name in roots if _is_lone(name)}
        self._loads = seed is None or seed.name != _LONE
        if seed is not None:
            self._found[seed.name] = seed
            self._lone &= {_LONE}
        self._folders = [folder for name in self._lone if (folder := _own_folder(name))]
        if seed is not None and seed.file is not None and not self._loads:
            self._folders = [str(Path(seed.file).parent)]
        self.whole: dict[str, str] = {}
        self._passed: dict[str, str] = {}
        self._seen: set[Import] = set()
        self._todo: list[Import] = [Import(name, None) for name in roots]
        while self._todo:
            self._follow(self._todo.pop())
        self.is_complete = roots <= self.whole.keys()

    def digest(self) -> str:
        # The name of a lone file says where it is; whatever it is called, it does the same.
        named = [("" if name in self._lone else name, code) for name, code in self.whole.items()]
        passed = [item for item in self._passed.items() if item[0] not in self.whole and item[1]]
        lines = [f"{name}={code}" for name, code in sorted(named)]
        lines += [f"{name}:{code}" for name, code in sorted(passed)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _add(self, name: str) -> None:
        """Count a module whole."""
        module = self._find(name)
        if module is None or module.name in self.whole:
            return
        self._pass_parents(name)
        if module.file is not None:
            code = _read(module)
            self.whole[name] = code.digest
            self._todo += code.imports

    def _pass(self, name: str) -> None:
        """Count a package that is run on the way to one of its modules."""
        module = self._find(name)
        if module is not None and module.file is not None and name not in self._passed:
            code = _read(module)
            self._passed[name] = code.own_digest
            self._todo += code.own_imports

    def _pass_parents(self, name: str) -> None:
        while name := name.rpartition(".")[0]:
            self._pass(name)

    def _follow(self, each: Import) -> None:
        if each not in self._seen:
            self._seen.add(each)
            if each.name is None:
                self._add(each.module)
            else:
                self._resolve(each.module, each.name)

    def _resolve(self, name: str, member: str) -> None:
        """Count what `from name import member` needs."""
        package = self._find(name)
        if package is None:
            return
        code = _read(package) if package.file else Code("")
        source = code.bindings.get(member)
        if source == Import(name, member):  # `from . import member`, in the package itself.
            source = None
        submodule = f"{name}.{member}"
        if not package.folders or member == "*":
            self._add(name)
        elif source is not None:
            self._pass_parents(submodule)
            self._todo.append(source)
        elif (member not in code.bindings or code.bindings[member]) and self._find(submodule):
            self._add(submodule)
        else:
            self._add(name)

    def _find(self, name: str) -> _Module | None:
        if not name:
            return None  # A relative import in a file that is in no package: it cannot work.
        if name not in self._found:
            top = name.partition(".")[0]
            if top == REJUICE and self._rejuice is not None:
                self._found[name] = _given(name, self._rejuice)
            elif top in self._tops:
                self._found[name] = self._locate(name)
            else:
                self._found[name] = self._beside(name, top) if self._folders else None
        return self._found[name]

    def _beside(self, name: str, top: str) -> _Module | None:
        """Return a module in the folder of a lone file, or within a package there."""
        if name != top:
            return self._locate(name) if self._find(top) else None
        for folder in self._folders:
            spec = PathFinder.find_spec(top, [folder])
            loaded = sys.modules.get(top) if self._loads else None
            # One of the same name that is loaded from elsewhere is what the import gives.
            if spec and (loaded is None or _real_file(loaded) == spec.origin):
                return _Module(top, spec.origin, tuple(spec.submodule_search_locations or ()))
        return None

    def _locate(self, name: str) -> _Module | None:
        """Return a module by its name, without importing it."""
        loaded = sys.modules.get(name) if self._loads else None
        file, folders = getattr(loaded, "__file__", None), getattr(loaded, "__path__", ())
        if file or folders:
            return _Module(name, file, tuple(folders))
        parent = self._find(name.rpartition(".")[0]) if "." in name else None
        spec = PathFinder.find_spec(name, list(parent.folders)) if parent else None
        if spec is None:
            return None
        file = spec.origin if spec.has_location else None
        return _Module(name, file, tuple(spec.submodule_search_locations or ()))


def _given(name: str, modules: Mapping[str, Code]) -> _Module | None:
    """Return a module of which only the code is known."""
    code = modules.get(name)
    if code is None:
        return None
    is_package = any(each.startswith(f"{name}.") for each in modules)
    return _Module(name, name if code.digest else None, (name,) if is_package else (), code)


def _is_lone(name: str) -> bool:
    module = sys.modules.get(name)
    return "." not in name and not hasattr(module, "__path__")


def _real_file(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if file else None


def _own_folder(name: str) -> str | None:
    file = _real_file(sys.modules.get(name))
    folder = str(Path(file).parent) if file else None
    # An installed module of one file lies beside all other packages, which are not its own.
    return None if folder is None or Path(folder).name in SITE else folder


def _read(module: _Module) -> Code:
    if module.code is not None:
        return module.code
    file = str(module.file)
    state = Path(file).stat()  # A module that was edited and reloaded is other code.
    return _read_file(module.name, file, bool(module.folders), state.st_mtime_ns, state.st_size)


@cache
def _read_file(name: str, file: str, is_package: bool, mtime_ns: int, size: int) -> Code:
    kind = "package" if is_package else "module"
    parse = partial(_as_json, name, file, is_package)
    digest, imports, own_digest, own_imports, bindings = _parsed.find(
        f"{kind} {name}", Path(file), parse
    )
    return Code(
        digest,
        tuple(Import(*each) for each in imports),
        own_digest,
        tuple(Import(*each) for each in own_imports),
        {bound: source and Import(*source) for bound, source in bindings.items()},
    )


def _as_json(name: str, file: str, is_package: bool) -> list[Any]:
    code = parse_code(name, file, is_package)
    return [*code._replace(bindings=dict(code.bindings))]


# --- Former code ----------------------------------------------------------------------
# The code of rejuice's own files, as it was in the keys of what users had paid for.
#
# Until then the version of a user's resumable operator had the code of the files of rejuice that it
# uses, too (see `former_code_version`). `former_code.json` is what `parse_code` gave for
# them last, at commit 22504f3, and is never written again: from what is there now nobody could tell
# how folders were named.
#
#     "groups": [digest, imports]
#     "verifier": [digest, imports, own digest, own imports, {name: the import that binds it}]
#
# Names are those within `rejuice.operators`; an import is `module` or, of a package,
# `package:name`.

_PACKAGE = "rejuice.operators"
FORMER_CODES = {
    "AgentRolloutMapper": "1",
    "LlmQualityRewardMapper": "eb9d2f23d5bb0a870ee1479b32c79ea36a43fb563db17561a088b3f191c0bfd6",
    "LlmVerifyMapper": "63b4fec72f0eb9bacb7a848da9390c68f0882b179879dff0d3d630c7e9926c8c",
    "PolicyRolloutMapper": "1",
}
"""The `code` of each built-in resumable operator as it was then."""


@cache
def former_code() -> Mapping[str, Code]:
    """What each module of `rejuice.operators` contributed, by name; of a package, with bindings."""
    read = json.loads(Path(__file__).with_name("former_code.json").read_text("utf-8"))
    # What `from rejuice import operators` starts at is a package without a file.
    return {"rejuice": Code("")} | {_full(name): _code(*entry) for name, entry in read.items()}


def _code(
    digest: str,
    imports: str,
    own_digest: str = "",
    own_imports: str = "",
    bindings: Mapping[str, Any] | None = None,
) -> Code:
    bound = {name: _import(source) for name, source in (bindings or {}).items()}
    return Code(digest, _listed_imports(imports), own_digest, _listed_imports(own_imports), bound)


def _listed_imports(text: str) -> tuple[Import, ...]:
    return tuple(_import(each) for each in text.split(" ") if text)


def _import(text: str) -> Import:
    module, _, name = text.partition(":")
    return Import(_full(module), name or None)


def _full(name: str) -> str:
    return f"{_PACKAGE}.{name}" if name else _PACKAGE


# --- Cache key ------------------------------------------------------------------------

_LARGEST_HASHED = 64 << 20  # bytes


def cache_key_json(operator: Operator, *, of_row: bool = False) -> str:
    """Return the operator's name and its cache-key fields, as canonical JSON.

    Args:
        operator: the operator.
        of_row: whether it is for results that are kept row by row. A row that the condition of the
            step matches has the same result whatever the condition is.
    """
    fields = operator.cache_key_fields()
    fields = {name: value for name, value in fields.items() if name not in COMMON_FIELDS}
    if operator.where and not of_row:
        fields |= {"where": operator.model_dump(mode="json", include={"where"})["where"]}
    return json.dumps({operator.name(): fields}, sort_keys=True)


@cache
def code_version(operator_class: type[Operator]) -> str:
    """A digest of the code that an operator uses, so that edited code never finds old results.

    Hashed are the module of the class, the modules of the operator classes that it inherits from,
    and what these import within the same top-level packages (see `code_digest`), together with the
    versions of the distributions in `depends_on`. So an edit of a comment, of a docstring or of
    another operator costs nothing. The version of rejuice is not part of it, because the code
    itself is: a release recomputes the steps whose code it changed, and no others.

    Of a user's resumable operator only the user's own files are hashed, with the version that the
    nearest class of rejuice states that it inherits from: what was paid for is not lost because an
    upgrade has edited or moved files of rejuice.

    A class may state its version itself (`code`), which then counts instead; its subclasses state
    their own. A class whose source is in no file, as in a notebook, or in a file that was edited
    since, gets a new version in every process.
    """
    own = vars(operator_class).get("code")
    if own is not None:
        return str(own)
    if not _is_own_resumable(operator_class):
        return _digest(operator_class, _modules_of_bases(operator_class)) or uuid4().hex
    modules = {name for name in _modules_of_bases(operator_class) if not _is_of_rejuice(name)}
    stated = _nearest_code(operator_class)[1]
    return _digest(operator_class, modules, rejuice={}, stated=stated) or uuid4().hex


@cache
def former_code_version(operator_class: type[Operator]) -> str | None:
    """The version that a user's resumable operator had at commit 22504f3; None: the present one.

    It was a digest of the files of rejuice that the operator uses, too. What these were last is
    known (see `former_code`), so rows that are kept under it are found whatever becomes of them,
    as long as the built-in that the operator extends gives the same results. Not found are rows
    from before an earlier edit of these files; those of an operator that imports
    `rejuice.pipelines` or `rejuice.trainer`; and, once that is moved or not loaded, those of one
    that uses a built-in operator that depends on a distribution.
    """
    if vars(operator_class).get("code") is not None or not _is_own_resumable(operator_class):
        return None
    name, stated = _nearest_code(operator_class)
    if name in FORMER_CODES and stated != FORMER_CODES[name]:
        return None  # A release has changed the results on purpose.
    former = former_code()
    modules = _modules_of_bases(operator_class)
    modules = {name for name in modules if name in former or not _is_of_rejuice(name)}
    return _digest(operator_class, modules, rejuice=former)


@cache
def part_version(part_class: type[Named]) -> str:
    """Return the version of the code of a part of an operator, such as a tool, as `code_version`.

    It is what the class states itself, in `code`. Otherwise it is a digest of the module of the
    class, and of those of the classes that it inherits from, up to one that states its own.
    """
    modules, stated = _unstated(part_class)
    digest = (code_digest(modules) or uuid4().hex) if modules else None
    return " ".join(each for each in (stated, digest) if each is not None)


def file_state(file: Path) -> str:
    """Return a hash of a file's content; of a large file, its size and modification time."""
    stat = file.stat()
    if stat.st_size > _LARGEST_HASHED:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _nearest_code(kind: type[Named]) -> tuple[str, str | None]:
    """Return the name of the nearest base class that states its version, and the version."""
    for base in kind.__mro__:
        if (stated := vars(base).get("code")) is not None:
            return base.__name__, str(stated)
    return "", None


def _unstated(kind: type[Named]) -> tuple[set[str], str | None]:
    """The modules of a class and its base classes up to one that states its version; and that."""
    modules = set[str]()
    for base in kind.__mro__:
        stated = vars(base).get("code")
        if stated is not None:
            return modules, str(stated)
        if Named in base.__bases__:
            break
        if issubclass(base, Named):
            modules.add(base.__module__)
    return modules, None


def _modules_of_bases(operator_class: type[Operator]) -> set[str]:
    """Return the modules of a class and of all operator classes that it inherits from."""
    return {base.__module__ for base in operator_class.__mro__ if issubclass(base, Operator)}


def _is_own_resumable(operator_class: type[Operator]) -> bool:
    """Return whether it is a resumable operator of a user."""
    is_own = not _is_of_rejuice(operator_class.__module__)
    return is_own and issubclass(operator_class, ResumableOperator)


def _is_of_rejuice(module: str) -> bool:
    return module.partition(".")[0] == REJUICE


def _digest(
    operator_class: type[Operator],
    modules: set[str],
    *,
    rejuice: Mapping[str, Code] | None = None,
    stated: str | None = None,
) -> str | None:
    """Return a digest of the code of an operator, and of the versions of what it depends on.

    Returns:
        Hexadecimal digits; None where the code is in no file.
    """
    code = code_digest(modules, rejuice=rejuice)
    if code is None or source_states[operator_class] != source_state(operator_class):
        return None
    digest = hashlib.sha256((code if stated is None else f"{stated} {code}").encode())
    for name in _dependencies(operator_class, modules, rejuice):
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            digest.update(f"{name}=={version(name)}".encode())
    return digest.hexdigest()


def _dependencies(
    operator_class: type[Operator], modules: set[str], rejuice: Mapping[str, Code] | None = None
) -> list[str]:
    """Return what the operator depends on, and the operators of the modules that it uses."""
    found = set(operator_class.depends_on)
    for name in modules_of(modules, rejuice=rejuice) - set(modules):
        for each in list(vars(sys.modules.get(name, object)).values()):
            is_operator = isinstance(each, type) and issubclass(each, Operator)
            if is_operator and each.__module__ == name:
                found.update(each.depends_on)
    return sorted(found)
