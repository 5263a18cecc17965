"""YAML text to values, and back: the same values that `dj-process` reads from the same file.

PyYAML, and not ruamel.yaml, although ruamel.yaml finds a key that is given twice by itself. Both
runners read one file, and Data-Juicer reads it by jsonargparse, that is by PyYAML's YAML 1.1 with
two changes: `1e-6` is a number, and a date is text. Of ruamel.yaml 0.19.1's two modes, YAML 1.2
reads `yes`, `off`, `010`, `0o10`, `09`, `+.5` and `1:30` otherwise, and YAML 1.1 takes `n: 8` for
`false: 8` and a date for a date. It takes 12 ms for a recipe where PyYAML takes 7. So the changes
of jsonargparse are made here, and a test compares the two readers value by value.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import yaml
from yaml import YAMLError

from ...operators.config import check_integer, check_text
from ...operators.errors import first_line, shown

__all__ = ["Document", "YAMLError", "describe", "dump", "line_of", "parse", "parse_document"]

_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_FLOATS = re.compile(
    r"""^(?:
     [-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9_]+(?:[eE][-+][0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN)
    )$""",
    re.VERBOSE,
)


class Document(NamedTuple):
    """A YAML document with the lines, from 1, that messages name."""

    value: Any  # what it holds
    # of a mapping, the line of each key; of a key within a key, by `KEY.KEY`
    key_lines: Mapping[str, int]
    # of a mapping, for each key whose value is a list, the line of each item
    item_lines: Mapping[str, tuple[int, ...]]


def parse(text: str) -> Any:
    """The value of a YAML document of names and literals.

    Raises:
        YAMLError: not YAML, a key given twice, or a tag that would make an object.
    """
    with _errors_of_text():
        return yaml.load(text, _Loader)


def parse_document(text: str) -> Document:
    """The value of a YAML document, with its lines.

    Raises:
        YAMLError: as `parse`.
    """
    with _errors_of_text():
        return _document(text)


def _document(text: str) -> Document:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Document(None, {}, {})
        # Built first: that also puts the keys of `<<: *anchor` among those of their mapping.
        value = loader.construct_document(root)
        pairs = root.value if isinstance(root, yaml.MappingNode) else []
        item_lines = {
            str(key.value): tuple(_line(item) for item in node.value)
            for key, node in pairs
            if isinstance(node, yaml.SequenceNode)
        }
        return Document(value, dict(_key_lines(root)), item_lines)
    finally:
        loader.dispose()


@contextmanager
def _errors_of_text() -> Iterator[None]:
    """What PyYAML raises of a text, but does not name: it has no place."""
    try:
        yield
    except RecursionError:
        raise YAMLError("its values are nested too deeply") from None
    except (ValueError, OverflowError) as error:  # Such as "\UFFFFFFFF", which is no character.
        raise YAMLError(str(error)) from None


def dump(document: Mapping[str, Any]) -> str:
    """A document as YAML text, its keys in their order, that `parse` reads back as it is."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False)


def line_of(error: YAMLError) -> int | None:
    """The line on which a document is wrong, as far as that is known."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return None if mark is None else mark.line + 1


def describe(error: YAMLError) -> tuple[str, str]:
    """What is wrong with a document, and what would be right, on one line each."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"not YAML ({first_line(error)})", "fix the line"
    problem = str(error.problem)
    tag = re.search(r"constructor for the tag '([^']+)'", problem)
    if tag:
        return f"tag '{tag[1]}' is not allowed", "a recipe holds names and values, never code"
    return f"not YAML ({problem})", "fix the line"


def _key_lines(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield f"{prefix}{key.value}", _line(key)
        yield from _key_lines(value, f"{prefix}{key.value}.")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Loader(yaml.SafeLoader):
    """Names and literals only; a key that is given twice is an error."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node.

        Raises:
            YAMLError: an alias of a list or mapping that it is in, such as `&a [*a]`.
        """
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            node = self.anchors.get(event.anchor)
            if node is not None and node.end_mark is None:  # Set where a node ends.
                raise yaml.composer.ComposerError(
                    None,
                    None,
                    f"'*{event.anchor}' is inside of what it stands for",
                    event.start_mark,
                )
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node.

        Raises:
            YAMLError: it has none, or one that neither a file nor a number of the machine holds.
        """
        try:
            found = super().construct_object(node, deep)
            if isinstance(found, str):
                check_text(found)
            elif isinstance(found, int):
                check_integer(found)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            # What is no number, and is tagged as one: PyYAML raises whatever comes of it.
            why = f": {error}" if type(error) is ValueError else ""
            problem = f"{shown(node.value)} is not of the type {node.tag.rpartition(':')[2]}{why}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
        return found


def _refuse_tag(loader: _Loader, node: yaml.Node) -> NoReturn:
    """Sets, dates and bytes are no values of a recipe: JSON has none of them."""
    problem = f"could not determine a constructor for the tag '{node.tag}'"
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


class _Dumper(yaml.SafeDumper):
    """Quotes each text that a reader of YAML could take for something else."""


def _unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            continue  # `<<: *anchor`: its keys may be given again.
        key: Hashable = loader.construct_object(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is a list or a mapping", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key '{key}' is given twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_keys)
for _kind in ("binary", "omap", "pairs", "set", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _refuse_tag)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag not in (_FLOAT, _TIMESTAMP)]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_FLOAT, _FLOATS, list("-+0123456789."))
# The dumper keeps PyYAML's forms beside these: what any of the two would not read as text is
# quoted.
_Dumper.add_implicit_resolver(_FLOAT, _FLOATS, list("-+0123456789."))
