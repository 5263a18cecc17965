"""Arguments of a tool checked against a JSON schema that a server has written.

Neither the schema nor the arguments are trusted. No reference is fetched; regular expressions are
matched by an engine that takes linear time; and what would take long is not checked here: a server
checks its arguments itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

_LARGEST = 1 << 17  # bytes of a schema as JSON; it is in every prompt of the policy
_DEEPEST = 64  # objects and lists within each other
_MOST_PATTERNS = 10  # that are compiled, of one schema
_LONGEST_TEXT = 1 << 12  # characters that a pattern is matched with
_MOST_STEPS = 200_000  # of one check: less than a second
_STEPS_OF_A_REFERENCE = 20
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_LEFT_OUT = ("patternProperties", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")
"""Keywords that match patterns with Python's `re`, or take quadratic time."""
_OF_EACH = frozenset({"items", "additionalItems", "additionalProperties", "contains"})
"""Keywords whose value is a schema for each of many values."""

_Check = Callable[[Any, Any, Any, Mapping[str, Any]], "Iterator[Any] | None"]


class _TooMuchError(Exception):
    """A check takes too many steps."""


class ArgumentSchema:
    """The schema of a tool's arguments.

    Args:
        schema: an object of JSON.

    Raises:
        ValueError: it is no schema of an object, is too large, or refers to something outside.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for

        _check_size(schema)
        if not isinstance(schema.get("$schema", ""), str):
            raise ValueError("$schema is no text")
        kind = validator_for(schema, default=Draft202012Validator)
        _check_form(kind, schema)
        self._patterns: dict[str, SchemaValidator | None] = {}
        for each in _subschemas(schema):
            self._compile(each.get("pattern"))
            for pattern in each.get("patternProperties") or ():
                self._compile(pattern)
        self._steps = self._error_steps = 0
        self._validator = self._bounded(kind, schema)

    def problem(self, given: Mapping[str, Any]) -> str | None:
        """What is wrong with arguments; None: nothing, or the server has to say."""
        from jsonschema.exceptions import best_match

        try:
            # The message of an error has the value in it, which may be all of the arguments.
            self._steps, self._error_steps = 0, len(json.dumps(given, default=str)) >> 6
            error = best_match(self._validator.iter_errors(dict(given)))
        except Exception:  # Too many steps, or a number or a depth that the library cannot do.
            return None
        if error is None:
            return None
        where = ".".join(map(str, error.path))
        return f"{where}: {error.message}" if where else str(error.message)

    def _compile(self, pattern: Any) -> None:
        """Prepare a pattern, or leave it to the server.

        Raises:
            ValueError: it is no regular expression.
        """
        if not isinstance(pattern, str) or pattern in self._patterns:
            return
        if len(self._patterns) >= _MOST_PATTERNS or len(pattern) > _LONGEST_TEXT:
            return
        # The engine of the crate `regex` does not backtrack.
        text = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        try:
            self._patterns[pattern] = SchemaValidator(text)
        except SchemaError:
            # It does not know all that others do, such as looking ahead.
            self._patterns[pattern] = None
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                found = f"the pattern {pattern!r:.60} is no regular expression: {error!s:.60}"
                raise ValueError(found) from None

    def _bounded(self, kind: Any, schema: Mapping[str, Any]) -> Any:
        """A validator that fetches nothing and ends after so many steps."""
        from jsonschema.validators import extend
        from referencing import Registry

        own = dict(kind.VALIDATORS)
        own.update(dict.fromkeys(_LEFT_OUT, _unchecked), pattern=self._pattern)
        own["additionalProperties"] = partial(_additional, own["additionalProperties"])
        counted = {name: partial(self._counted, name, check) for name, check in own.items()}
        return extend(kind, counted)(schema, registry=Registry())

    def _counted(
        self,
        name: str,
        check: _Check,
        validator: Any,
        value: Any,
        instance: Any,
        schema: Mapping[str, Any],
    ) -> Iterator[Any]:
        self._spend(_STEPS_OF_A_REFERENCE if name in _REFERENCES else 1)
        self._spend(_size(value) + _size(instance))
        if name in _OF_EACH:
            self._spend(_size(value) * _size(instance))
        for error in check(validator, value, instance, schema) or ():
            self._spend(self._error_steps)
            yield error

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _TooMuchError

    def _pattern(
        self, validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]
    ) -> Iterator[Any]:
        from jsonschema import ValidationError

        compiled = self._patterns.get(pattern)
        if compiled is None or not isinstance(instance, str) or len(instance) > _LONGEST_TEXT:
            return
        if not compiled.isinstance_python(instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_size(schema: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is too large, or nested too deeply.
    """
    below: list[tuple[Any, int]] = [(schema, 1)]
    while below:
        value, depth = below.pop()
        if isinstance(value, (dict, list)):
            if depth > _DEEPEST:
                raise ValueError(f"it is nested more than {_DEEPEST} deep")
            inner = value.values() if isinstance(value, dict) else value
            below.extend((each, depth + 1) for each in inner)
    size = len(json.dumps(schema))
    if size > _LARGEST:
        raise ValueError(f"it has {size >> 10:,} KiB, more than {_LARGEST >> 10}")


def _check_form(kind: Any, schema: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: it is no schema of an object.
    """
    from jsonschema import SchemaError as NoSchemaError

    try:
        kind.check_schema(schema, format_checker=None)
    except NoSchemaError as error:
        where = ".".join(map(str, error.path))
        found = f"{where}: {error.message}" if where else error.message
        raise ValueError(" ".join(found.split())[:200]) from None
    if schema.get("type", "object") != "object":
        raise ValueError(f"it is of type {schema['type']!r:.40}, not 'object'")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schemas in a schema, and those that its references lead to.

    Raises:
        ValueError: a reference leads to something outside, or to nothing.
    """
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    below, seen = [root], set[int]()
    while below:
        each = below.pop()
        if not isinstance(each.contents, dict) or id(each.contents) in seen:
            continue
        seen.add(id(each.contents))
        yield each.contents
        below.extend(each.subresources())
        for name in _REFERENCES:
            reference = each.contents.get(name, "#")
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise ValueError(f"{name} leads outside the schema: {reference!r:.80}")
            try:
                found = resolver.lookup(reference).contents
            except (Unresolvable, ValueError):
                raise ValueError(f"{name} leads to nothing: {reference!r:.80}") from None
            below.append(DRAFT202012.create_resource(found))


def _unchecked(*_: Any) -> None:
    """A keyword that is left to the server."""


def _additional(
    check: _Check, validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any] | None:
    """Which properties are additional depends on the patterns, if there are any."""
    return None if "patternProperties" in schema else check(validator, value, instance, schema)


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) >> 6
    return len(value) if isinstance(value, (list, dict)) else 0
