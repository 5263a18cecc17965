"""Which function a recipe names, which parameters it has, and a digest of its code.

    my_reward.py:compute_score                          a file
    verl.utils.reward_score:default_compute_score       a module that is installed

The parameters are read in the source, so that `rejuice check` runs nothing of it. Only where the
source does not say, as of an object that is made when the file runs, a process imports it.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Literal, NamedTuple

from ..cache_key import SITE, digest_of_file, digest_of_module, file_state
from .pool import FunctionSetup, shared_pool

FunctionStyle = Literal["verl", "trl", "columns"]
_MOST_STEPS = 8  # from a module that only imports the function to that which defines it


class FunctionTarget(NamedTuple):
    """A function as a recipe names it."""

    file: str | None  # absolute; None: it is in a module
    module: str
    name: str

    @classmethod
    def parse(cls, text: str) -> FunctionTarget:
        """Return the function of a field such as `my_reward.py:compute_score`.

        Raises:
            ValueError: it is not written like that, or there is no such file or module.
        """
        place, _, name = text.rpartition(":")
        if not place or not name.isidentifier():
            raise ValueError("write FILE.py:FUNCTION, or package.module:FUNCTION")
        if not place.endswith(".py"):
            if not all(part.isidentifier() for part in place.split(".")):
                raise ValueError("write FILE.py:FUNCTION, or package.module:FUNCTION")
            if module_file(place) is None:
                raise ValueError(f"there is no module {place}; install it, or name a .py file")
            return cls(None, place, name)
        file = Path(place).absolute()
        if not file.is_file():
            raise ValueError(f"{place} does not exist; give a .py file")
        return cls(str(file), file.stem, name)

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.name}"

    def digest(self) -> str:
        """Return a digest of its code: of its file and the files beside it that this imports.

        Of a module that is installed, the version of its distribution counts instead.
        """
        if self.file is not None:
            return digest_of_file(Path(self.file))
        file = module_file(self.module)
        if file is not None and not SITE.isdisjoint(file.parts):
            return f"{_distributions(self.module.partition('.')[0])} {file_state(file)}"
        if file is not None and "." not in self.module and file.name != "__init__.py":
            return digest_of_file(file)
        return digest_of_module(self.module)


class FunctionSignature(NamedTuple):
    """The parameters of a function."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_any: bool  # whether it has **kwargs
    # keys that it looks up in its **kwargs, as far as its source says
    looked_up: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Return whether it can be called with this argument."""
        return self.takes_any or name in self.required or name in self.optional

    def style(self) -> FunctionStyle:
        """Return by whose convention it is called."""
        named = {*self.required, *self.optional}
        if "solution_str" in named:
            return "verl"
        return "trl" if "completions" in named else "columns"


def signature_of(target: FunctionTarget) -> FunctionSignature:
    """Return the parameters of a function.

    Raises:
        ValueError: its file has a mistake of syntax.
        NotReadyError: it has to be imported to know them, and does not import.
    """
    file = Path(target.file) if target.file is not None else module_file(target.module)
    found = None
    if file is not None and file.suffix == ".py":
        state = file.stat()
        found = _in_source(file, target.module, target.name, state.st_mtime_ns, state.st_size)
    if found is not None:
        return found
    setup = FunctionSetup(*target, target.digest())
    return _of_parameters(dict(shared_pool(setup).check()))


@lru_cache(maxsize=64)
def _in_source(
    file: Path, module: str, name: str, mtime_ns: int, size: int
) -> FunctionSignature | None:
    node = _definition(file, module, name, _MOST_STEPS)
    return None if node is None else _of_node(node)


def _definition(
    file: Path, module: str, name: str, steps: int
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return where a function is defined, in this file or one that it imports it from."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file.name} is not Python: {error}") from None
    last: ast.stmt | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            last = node if node.name == name else last
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {each.id for each in targets if isinstance(each, ast.Name)}
            last = node if name in names else last
    if last is not None:
        is_function = isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef)
        return last if is_function and not last.decorator_list else None
    if steps == 0:
        return None
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for source, original in _imported_from(tree, package, name):
        beside = file.parent / f"{source}.py"
        found = beside if beside.is_file() and "." not in source else module_file(source)
        if found is not None and found.suffix == ".py":
            return _definition(found, source, original, steps - 1)
    return None


def _imported_from(tree: ast.Module, package: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield from which modules a name is imported, and its name there.

    Imports for type checkers count: lazy modules give what these say.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = package.split(".")
                base = parts[: len(parts) - node.level + 1]
                module = ".".join([*base, *filter(None, [module])])
            for alias in node.names:
                if (alias.asname or alias.name) == name and module:
                    yield module, alias.name


def _of_node(node: ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionSignature:
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    first_default = len(positional) - len(args.defaults)
    required = [each.arg for each in positional[:first_default]]
    optional = [each.arg for each in positional[first_default:]]
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        (required if default is None else optional).append(each.arg)
    looked_up = _looked_up(node, args.kwarg.arg) if args.kwarg else ()
    return FunctionSignature(
        tuple(required), tuple(optional), args.kwarg is not None, tuple(dict.fromkeys(looked_up))
    )


def _looked_up(node: ast.AST, kwargs: str) -> Iterator[str]:
    """Yield the keys in `kwargs["key"]` and `kwargs.get("key")`."""
    for each in ast.walk(node):
        key: ast.expr | None = None
        if isinstance(each, ast.Subscript) and _is_name(each.value, kwargs):
            key = each.slice
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.args:
            if each.func.attr in ("get", "pop") and _is_name(each.func.value, kwargs):
                key = each.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _of_parameters(parameters: Mapping[str, str]) -> FunctionSignature:
    def of(kind: str) -> tuple[str, ...]:
        return tuple(name for name, each in parameters.items() if each == kind)

    return FunctionSignature(of("required"), of("optional"), bool(of("any")))


# --- Modules --------------------------------------------------------------------------


def module_file(module: str) -> Path | None:
    """Return the file of a module, without running anything of it or of its packages."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    name = top
    for part in parts:
        name = f"{name}.{part}"
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return Path(spec.origin)


@lru_cache(maxsize=64)
def _distributions(top: str) -> str:
    """Return the distributions that a package is of, with their versions."""
    try:
        return f"{top}=={version(top)}"  # Mostly it is called the same, and then is found at once.
    except PackageNotFoundError:
        owners = packages_distributions().get(top, [])
        return " ".join(f"{name}=={version(name)}" for name in sorted(set(owners)))
