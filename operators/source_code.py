"""What a source file contributes to the digest of the code that uses it, see `code_digest`."""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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
    """What a source file contributes.

    Attributes:
        digest: of all that it does.
        imports: all that it imports at run time.
        own_digest: of what it does besides importing; "" if nothing.
        own_imports: the imports that this needs.
        bindings: names of the module, each with the one import that binds it; None: defined here.
    """

    digest: str
    imports: tuple[Import, ...] = ()
    own_digest: str = ""
    own_imports: tuple[Import, ...] = ()
    bindings: Mapping[str, Import | None] = MappingProxyType({})


def parse_code(name: str, file: str, is_package: bool) -> Code:
    """What a source file contributes.

    Args:
        name: of the module.
        file: its file.
        is_package: whether that is the `__init__` of a package.
    """
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
    """The statements that do something: no docstrings, nothing for type checkers only."""
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
    """A node and all below it that run."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_running(ast.iter_child_nodes(node)))


def _imports(node: ast.AST, package: str) -> Iterator[Import]:
    """What a node imports, at once or when one of its functions is called."""
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
    """The names that a module's statements bind, in any order; of a star import, `*`.

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
