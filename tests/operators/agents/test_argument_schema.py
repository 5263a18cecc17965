"""Schemas of arguments that a hostile server has written, and hostile arguments."""

from functools import reduce

import pytest

from rejuice.operators.agents.tools.mcp import ArgumentSchema

pytest.importorskip("jsonschema")

AT_REF = {"properties": {"a": {"$ref": "#/$defs/x"}}}
INTEGER = "a: 'x' is not of type 'integer'"


def of_a(schema):
    return {"type": "object", "properties": {"a": schema}}


def nested(depth):
    return reduce(lambda inner, _: {"properties": {"a": inner}}, range(depth), {})


def problem(schema, given):
    return ArgumentSchema(schema).problem(given)


@pytest.fixture(autouse=True)
def _nothing_is_fetched(monkeypatch):
    def fetched(*_):
        raise AssertionError("fetched")

    monkeypatch.setattr("urllib.request.urlopen", fetched)


def test_schemas_that_are_refused():
    for schema, found in [
        (of_a({"$ref": "http://a/b"}), "$ref leads outside the schema: 'http://a/b'"),
        (of_a({"$ref": "file:///etc/x"}), "$ref leads outside the schema: 'file:///etc/x'"),
        (of_a({"not": {"$ref": "b.json"}}), "$ref leads outside the schema: 'b.json'"),
        (of_a({"$dynamicRef": "//a"}), "$dynamicRef leads outside the schema: '//a'"),
        ({"$id": "file:///etc/", **of_a({"$ref": "x"})}, "$ref leads outside the schema: 'x'"),
        ({**AT_REF, "$defs": {"x": {"$ref": "http://a"}}}, "$ref leads outside the schema: 'http://a'"),
        ({"properties": {"a": {"$ref": "#/other"}}, "other": {"not": {"$ref": "http://a"}}},
         "$ref leads outside the schema: 'http://a'"),
        (AT_REF, "$ref leads to nothing: '#/$defs/x'"),
        (of_a({"pattern": "("}), "the pattern '(' is no regular expression: missing ), "),
        ({"patternProperties": {"[": {}}}, "the pattern '[' is no regular expression: "),
        (nested(100), "it is nested more than 64 deep"),
        (of_a({"enum": ["x" * 1000] * 1000}), "it has 980 KiB, more than 128"),
        ({"type": "array"}, "it is of type 'array', not 'object'"),
        (of_a({"type": "int"}), "properties.a.type: 'int' is not valid under any of the given"),
        ({"required": 5}, "required: 5 is not of type 'array'"),
        ({"$schema": 7}, "$schema is no text"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r".") as error:
            ArgumentSchema(schema)
        assert found in str(error.value)
        assert "\n" not in str(error.value)


def test_what_is_wrong_with_arguments():
    integer = {"type": "integer"}
    draft_7 = "http://json-schema.org/draft-07/schema#"
    for schema, given, found in [
        (of_a(integer), {"a": "x"}, INTEGER),
        (of_a(integer), {"a": 1}, None),
        ({**AT_REF, "$defs": {"x": integer}}, {"a": "x"}, INTEGER),
        ({"$id": "https://a/b", **AT_REF, "$defs": {"x": integer}}, {"a": "x"}, INTEGER),
        (of_a({"$ref": "#y"}) | {"$defs": {"x": {"$anchor": "y", **integer}}}, {"a": "x"}, INTEGER),
        ({"$schema": draft_7, **of_a(integer)}, {"a": "x"}, INTEGER),
        ({"$schema": "http://a/unknown", **of_a(integer)}, {"a": "x"}, INTEGER),
        (of_a({"default": {"$ref": "http://a"}, **integer}), {"a": "x"}, INTEGER),
        ({"properties": {"$ref": integer}}, {"$ref": "x"}, "$ref: 'x' is not of type 'integer'"),
        ({"required": ["b"]}, {}, "'b' is a required property"),
        ({"additionalProperties": False}, {"b": 1}, "Additional properties are not allowed ('b' was unexpected)"),
        (of_a({"pattern": r"^\d{3}$"}), {"a": "12"}, r"a: '12' does not match '^\\d{3}$'"),
        (of_a({"pattern": r"^\p{L}+\/$"}), {"a": "é/"}, None),
    ]:  # fmt: skip
        assert problem(schema, given) == found


def test_what_would_take_long_or_fails_is_left_to_the_server():
    """Most of these would take hours or end in a traceback."""
    slow = 40 * "a" + "!"
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    for schema, given in [
        (of_a({"pattern": "(?=(a+)+$)"}), {"a": slow}),
        (of_a({"pattern": "b"}), {"a": 5000 * "a"}),
        ({"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}, {slow: 1}),
        ({"patternProperties": {"^(a+)+$": False}, "unevaluatedProperties": False}, {slow: 1}),
        (of_a({"uniqueItems": True}), {"a": [[n] if n % 2 else {"a": n} for n in range(20_000)]}),
        (of_a({"items": {"enum": list(range(9000))}}), {"a": [-1] * 9000}),
        (of_a({"items": {f"u{n}": 1 for n in range(5000)}}), {"a": [1] * 30_000}),
        (of_a({"$ref": "#/$defs/d0"}) | {"$defs": {**doubling, "d40": {}}}, {"a": 1}),
        ({"$ref": "#"}, {"a": 1}),
        (of_a({"multipleOf": 0.1}), {"a": 10**400}),
        ({"allOf": [{"type": "string"}] * 500}, {"a": ["x" * 100] * 1000}),
    ]:
        assert problem(schema, given) is None


def test_a_pattern_is_matched_without_backtracking():
    slow = 40 * "a" + "!"
    for schema in [of_a({"pattern": "^(a+)+$"}), {"propertyNames": {"pattern": "^(a+)+$"}}]:
        found = problem(schema, {"a" if "properties" in schema else slow: slow})
        assert found.endswith("does not match '^(a+)+$'")
