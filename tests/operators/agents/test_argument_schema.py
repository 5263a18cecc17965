"""Schemas of arguments that an MCP server has written."""

from functools import reduce

import pytest

from rejuice.operators.agents.tools.mcp import check_schema

pytest.importorskip("jsonschema")

AT_REF = {"properties": {"a": {"$ref": "#/$defs/x"}}}
INTEGER = {"type": "integer"}


def of_a(schema):
    return {"type": "object", "properties": {"a": schema}}


def nested(depth):
    return reduce(lambda inner, _: {"properties": {"a": inner}}, range(depth), {})


@pytest.fixture(autouse=True)
def _nothing_is_fetched(monkeypatch):
    def fetched(*_):
        raise AssertionError("fetched")

    monkeypatch.setattr("urllib.request.urlopen", fetched)


def test_schemas_that_are_refused():
    for schema, found in [
        (of_a({"$ref": "http://a/b"}), "$ref leads to nothing in it: 'http://a/b'"),
        (of_a({"$ref": "file:///etc/x"}), "$ref leads to nothing in it: 'file:///etc/x'"),
        (of_a({"not": {"$ref": "b.json"}}), "$ref leads to nothing in it: 'b.json'"),
        (of_a({"$ref": "http://["}), "$ref leads to nothing in it: 'http://['"),
        ({"$id": "file:///etc/", **of_a({"$ref": "x"})}, "$ref leads to nothing in it: 'x'"),
        ({**AT_REF, "$defs": {"x": {"$ref": "http://a"}}}, "$ref leads to nothing in it: 'http://a'"),
        (AT_REF, "$ref leads to nothing in it: '#/$defs/x'"),
        (nested(150), "maximum recursion depth exceeded"),
        ({"type": "array"}, "it is of type 'array', not 'object'"),
        (of_a({"type": "int"}), "properties.a.type: 'int' is not valid under any of the given"),
        ({"required": 5}, "required: 5 is not of type 'array'"),
        ({"$schema": 7}, ""),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r".") as error:
            check_schema(schema)
        assert found in str(error.value)
        assert "\n" not in str(error.value)


def test_schemas_that_are_fine():
    for schema in [
        of_a(INTEGER),
        {**AT_REF, "$defs": {"x": INTEGER}},
        {"$id": "https://a/b", **AT_REF, "$defs": {"x": INTEGER}},
        of_a({"$ref": "#y"}) | {"$defs": {"x": {"$anchor": "y", **INTEGER}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", **of_a({"items": [INTEGER]})},
        {"$schema": "http://a/unknown", **of_a(INTEGER)},
        of_a({"default": {"$ref": "http://a"}, **INTEGER}),
        {"properties": {"$ref": INTEGER}},
        of_a({"pattern": r"^\p{L}+\/$"}),
        {"properties": {"a": {"$ref": "#"}}},
    ]:
        check_schema(schema)
