"""A digest of the code that a module runs: its own, and that of the modules that it imports.

Two versions of a source file have the same digest where they do the same: hashed are syntax trees
without comments, layout, docstrings, `__all__`, `__version__` and what is imported for type
checkers only. The digest depends neither on where the files are nor on the version of Python.

Imports are followed wherever they stand, in functions too, within the top-level packages of the
modules asked for. A name that a package only re-exports leads to the module that defines it, so
that a package's `__init__` does not stand for everything that it imports: of an `__init__` that is
merely run on the way to a module, its own statements count, the imports that these use, and the
submodules that it imports as modules, perhaps for what they register. A package with a module-level
`__getattr__` re-exports what it imports for type checkers. A file
that is part of no package (an operator of a recipe's `custom_operator_paths`, a script) may import
modules from its own folder; those count as well.

The modules of rejuice can be given instead of being read: none of them, where only the code of a
user counts, or what they were in an earlier version.

Not seen are modules that are imported by a name made at run time.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from . import source_code
from .parsed_files import ParsedFiles
from .source_code import Code, Import, parse_code

REJUICE = __name__.partition(".")[0]
_SITE = frozenset({"site-packages", "dist-packages"})
_parsed = ParsedFiles(Path(source_code.__file__))


class _Module(NamedTuple):
    """A module that may count.

    Attributes:
        name: its full name.
        file: where it is.
        folders: where its submodules are, if it is a package.
        code: where it is given; None: it is read.
    """

    name: str
    file: str | None
    folders: tuple[str, ...]
    code: Code | None = None


def code_digest(modules: Iterable[str], *, rejuice: Mapping[str, Code] | None = None) -> str | None:
    """A digest of the code of some loaded modules and of what they import.

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


def modules_of(
    modules: Iterable[str], *, rejuice: Mapping[str, Code] | None = None
) -> frozenset[str]:
    """The modules whose code counts in `code_digest`, but for those run on the way only."""
    return frozenset(_Walk(frozenset(map(_importable_name, modules)), rejuice).whole)


def _importable_name(name: str) -> str:
    """The name of a module; that of `python -m package.module` is not `__main__`."""
    spec = getattr(sys.modules.get(name), "__spec__", None) if name == "__main__" else None
    return spec.name if spec is not None and "." in spec.name else name


class _Walk:
    """The modules that are reached from some others, each of them whole or only run on the way."""

    def __init__(self, roots: frozenset[str], rejuice: Mapping[str, Code] | None) -> None:
        self._rejuice = rejuice
        self._tops = {name.partition(".")[0] for name in roots}
        self._lone = {name for name in roots if _is_lone(name)}
        self._folders = [folder for name in self._lone if (folder := _own_folder(name))]
        self._found: dict[str, _Module | None] = {}
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
        """A module in the folder of a lone file, or within a package there."""
        if name != top:
            return self._locate(name) if self._find(top) else None
        for folder in self._folders:
            spec = PathFinder.find_spec(top, [folder])
            loaded = sys.modules.get(top)
            # One of the same name that is loaded from elsewhere is what the import gives.
            if spec and (loaded is None or _real_file(loaded) == spec.origin):
                return _Module(top, spec.origin, tuple(spec.submodule_search_locations or ()))
        return None

    def _locate(self, name: str) -> _Module | None:
        """A module by its name, without importing it."""
        loaded = sys.modules.get(name)
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
    """A module of which only the code is known."""
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
    return None if folder is None or Path(folder).name in _SITE else folder


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
