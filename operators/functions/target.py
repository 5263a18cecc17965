"""Which function a recipe names, a digest of its code, and what its source says that it takes.

    my_reward.py:compute_score                          a file
    verl.utils.reward_score:default_compute_score       a module that is installed

Nothing of either is run.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Literal, NamedTuple

from ..cache_key import SITE, code_digest, file_state


class FunctionTarget(NamedTuple):
    """A function as a recipe names it."""

    file: str | None  # absolute; None: it is in a module
    module: str
    name: str

    @classmethod
    def parse(cls, text: str) -> FunctionTarget:
        """The function of a field such as `my_reward.py:compute_score`."""
        place, _, name = text.rpartition(":")
        is_file = place.endswith(".py")
        if not name.isidentifier() or not (is_file or all(map(str.isidentifier, place.split(".")))):
            raise ValueError("write FILE.py:FUNCTION, or package.module:FUNCTION")
        if not is_file:
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
        """A digest of its code: of its file and the files beside it that this imports.

        Of a module that is installed, the version of its distribution counts instead.
        """
        if self.file is not None:
            return code_digest(Path(self.file))
        file = module_file(self.module)
        if file is None:
            return ""  # It was there when the recipe was read.
        parent, _, _ = self.module.rpartition(".")
        if not SITE.isdisjoint(file.parts):
            return f"{_distributions(self.module.partition('.')[0])} {file_state(file)}"
        return code_digest(file, self.module if file.name == "__init__.py" else parent)

    def signature(self) -> FunctionSignature | None:
        """Its parameters, as far as its source says."""
        file = Path(self.file) if self.file is not None else module_file(self.module)
        if file is None or file.suffix != ".py":
            return None
        # Not of the file alone: the function may be defined in one that this imports.
        return _in_source(file, self.module, self.name, self.digest())


# --- Modules --------------------------------------------------------------------------


def module_file(module: str) -> Path | None:
    """The file of a module, without running anything of it or of its packages."""
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
    try:
        return f"{top}=={version(top)}"  # Mostly it is called the same, and then is found at once.
    except PackageNotFoundError:
        owners = packages_distributions().get(top, [])
        return " ".join(f"{name}=={version(name)}" for name in sorted(set(owners)))


# --- The parameters of a function, and by whose convention it is called ---------------
# They are read in the source, so that `rejuice check` runs nothing of it.

FunctionStyle = Literal["verl", "trl", "columns"]
_MOST_STEPS = 8  # from a module that only imports the function to that which defines it


class FunctionSignature(NamedTuple):
    """The parameters of a function."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_any: bool  # whether it has **kwargs
    # keys that it looks up in its **kwargs, as far as its source says
    looked_up: tuple[str, ...] = ()
    place: str = ""  # where its source begins, such as `lib.py, line 4`, if that was read
    gives: bool = True  # whether it may return something else than None

    def takes(self, name: str) -> bool:
        return self.takes_any or name in self.required or name in self.optional

    def style(self) -> FunctionStyle:
        """By whose convention it is called."""
        named = {*self.required, *self.optional}
        if "solution_str" in named:
            return "verl"
        return "trl" if "completions" in named else "columns"


@lru_cache(maxsize=64)
def _in_source(file: Path, module: str, name: str, digest: str) -> FunctionSignature | None:
    found = _definition(file, module, name, _MOST_STEPS)
    return None if found is None else _of_node(*found)


def _definition(
    file: Path, module: str, name: str, steps: int
) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, Path] | None:
    """A function's definition, and its file: this one, or one that it is imported from."""
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
        if isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) and not last.decorator_list:
            return last, file
        return None
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
    """From which modules a name is imported, for type checkers too, and its name there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # A relative one that leads out of the package.
                module = importlib.util.resolve_name(
                    "." * node.level + (node.module or ""), package
                )
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        yield module, alias.name


def _of_node(node: ast.FunctionDef | ast.AsyncFunctionDef, file: Path) -> FunctionSignature:
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    first_default = len(positional) - len(args.defaults)
    required = [each.arg for each in positional[:first_default]]
    optional = [each.arg for each in positional[first_default:]]
    for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        (required if default is None else optional).append(each.arg)
    looked_up = _looked_up(node, args.kwarg.arg) if args.kwarg else ()
    return FunctionSignature(
        tuple(required),
        tuple(optional),
        args.kwarg is not None,
        tuple(dict.fromkeys(looked_up)),
        f"{file.name}, line {node.lineno}",
        _gives(node),
    )


def _gives(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function returns or yields anything, or says with `...` that it is not here."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    left = list[ast.AST](function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Return):
            is_none = isinstance(node.value, ast.Constant) and node.value.value is None
            gives = node.value is not None and not is_none
        else:
            is_elsewhere = isinstance(node, ast.Constant) and node.value is ...
            gives = is_elsewhere or isinstance(node, ast.Yield | ast.YieldFrom | ast.Raise)
        if gives:
            return True
        left.extend([] if isinstance(node, (*inner, ast.Return)) else ast.iter_child_nodes(node))
    return False


def _looked_up(node: ast.AST, kwargs: str) -> Iterator[str]:
    """The keys in `kwargs["key"]` and `kwargs.get("key")`."""
    for each in ast.walk(node):
        key: ast.expr | None = None
        if isinstance(each, ast.Subscript) and _is_name(each.value, kwargs):
            key = each.slice
        elif (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in ("get", "pop")
            and each.args
            and _is_name(each.func.value, kwargs)
        ):
            key = each.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
