"""Mutations of the files that commands read: of their bytes, and of what they hold.

`Values` are what such files should not hold, as JSON and as YAML: numbers that are no numbers of a
machine, text that is no text, what is nested too deeply or is of a type that nobody expects.
"""

import base64
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

_HOLE = "a-hole-for-a-value"
_DEEP = 20_000
_DIGITS = 5_000
_SHARED = (
    "0", "-1", "1e400", "-1e400", "1e-400", "-0.0", "9" * _DIGITS, "-" + "9" * _DIGITS,
    "9" * 400, str(2**63), str(-(2**63) - 1), str(2**64), "0.1", "3.0", "true", "null", '""',
    '" "', '"a"', "[]", "{}", "[null]", "[[]]", '[1, "a", null]', '{"": 1}', '{"a": {"b": []}}',
    '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\ud800\\udc00"', '"a\\nb"', '"\\u001b[31m"', '"nan"',
    '"/dev/null"', '"/dev/zero"', '"/"', '"."', '".."', '"~"', '"s3://"', '"s3:///"', '"file:///"',
    '"//"', '"a/../../.."', '"http://["', '"hf://"', '"hf://a?b"', '"*"', '"**"', '"["', '"[a"',
    '"{"', '"}"', '"{0}"', '"{a.b}"', '"{a[0]}"', '"("', '"(?P<"', '"\\\\"', '"%s"', '"' + "x" * 5000 + '"',
    '"' + "x" * 300 + '.jsonl"', "[" + "1, " * 3000 + "1]", '"1_000"', '"\\u202e"', '"9999999999999999999"',
)  # fmt: skip
JSON_VALUES = (
    *_SHARED, "NaN", "Infinity", "-Infinity", '{"a": 1, "a": 2}', "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP, "[" * _DEEP, "[" * 900 + "]" * 900, "01", "'a'", "",
)  # fmt: skip
YAML_VALUES = (
    *_SHARED, ".nan", ".inf", "-.inf", "1:30:99", "0x" + "f" * 400, "0x" + "f" * _DIGITS, "0b" + "1" * 70,
    "0" + "7" * 5000, "1:" * 3000 + "1", "0x", "0b_", "0_", "_", "-", "=", "~", "yes", "off", "2001-01-01",
    "2001-99-99", "2001-01-01 25:61:61", "!!python/object/apply:os.system ['true']", "!!python/name:os.system",
    "!!binary 'aGFsbG8='", "!!binary '='", "!!binary 'ä'", "!!binary [a]", "!!set {a, b}", "!!set [a]", "!!set x",
    "!!omap [a: 1]", "!!omap x", "!!omap [[a]]", "!!pairs [a: 1]", "!!pairs [1]", "!!timestamp '2001-01-01'",
    "!!timestamp x", "!!timestamp 2001-99-99", "!!timestamp [a]", "!!int x", "!!int ''", "!!int 1.5", "!!int [1]",
    "!!float x", "!!float ''", "!!float {}", "!!bool x", "!!bool ''", "!!bool [a]", "!!null x", "!!str [a]", "!!str 1",
    "!!seq {a: 1}", "!!seq x", "!!map [a]", "!!map x", "!mine x", "!<tag:x> y", "! x", "!!merge x", "!!value =",
    "&a [*a]", "&a {b: *a}", "*nowhere", "&a x", "{<<: 1}", "{<<: [1]}", "{<<: {a: 1}, a: 2}", "{<<: [{a: 1}, {a: 2}]}",
    "{<<: &b {a: *b}}", "{a: 1, a: 2}", "{1: 2}", "{null: 1}", "{true: 1}", "{1.5: 2}", "{[a]: 1}", "{{a: b}: c}",
    "{? [a, b] : c}", "{.nan: 1, .nan: 2}", "{=: 1}", "{!!binary 'aGFsbG8=': 1}", "{!!set {a}: 1}", "{2001-01-01: 1}",
    "{" + "9" * _DIGITS + ": 1}", "[" * 300 + "]" * 300, "[" * _DEEP + "]" * _DEEP, "{a: " * 300 + "1" + "}" * 300,
    '"\\xff"', '"\\UFFFFFFFF"', '"\\U00110000"', '"\\uD800"', "'", '"', "|", ">", "%", "@", "`", "---", "...", "#", "\t", "- -", "? ", ": ", "[a", "{a", "\ufeff",
)  # fmt: skip


def hostile_json(rng: random.Random, text: str) -> str:
    """A JSON document of which a value is another one, or its text another one."""
    if rng.random() < 0.25:
        return _edited(rng, text)
    document = _holed(rng, json.loads(text))
    found = rng.choice(JSON_VALUES)
    if rng.random() < 0.05:  # The whole document.
        return found
    return json.dumps(document).replace(f'"{_HOLE}"', found)


def hostile_yaml(rng: random.Random, text: str) -> str:
    """A YAML document of which a value is another one, or its text another one."""
    if rng.random() < 0.25:
        return _edited(rng, text)
    document = yaml.safe_load(text)
    for _ in range(rng.choice((1, 1, 1, 2))):
        document = _holed(rng, document)
    found = rng.choice(YAML_VALUES)
    if rng.random() < 0.03:
        return found
    dumped = yaml.safe_dump(document, sort_keys=False, width=10**6, allow_unicode=True)
    return dumped.replace(_HOLE, found)


def encoded(text: str) -> bytes:
    """A text as UTF-8; what is none is written as it is, for the reader to find out."""
    return text.encode(errors="surrogatepass")


def hostile_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bytes of which some are flipped, cut out, repeated or others."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(found) + 1)
        length = rng.choice((1, 1, 4, 16))
        kind = rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at : at + length]
        elif kind == 2:
            found[at:at] = rng.randbytes(length)
        elif kind == 3:
            found[at:at] = found[at : at + length] * rng.choice((1, 3, 100))
        elif kind == 4:
            found[at : at + length] = rng.choice((b"\0", b"\xff", b"\x80")) * length
        elif rng.random() < 0.2:
            del found[at:]
    return bytes(found)


def hostile_parquet(rng: random.Random, content: bytes) -> bytes:
    """A Parquet file with other metadata, or another footer."""
    if rng.random() < 0.5:
        # The footer, its length and the mark at the end: what the rows are is not touched.
        length = min(int.from_bytes(content[-8:-4], "little") + 8, len(content))
        rows, footer = content[:-length], content[-length:]
        if rng.random() < 0.15:
            size = rng.choice((0, 1, length * 2, 2**31 - 1, 2**31, 2**32 - 1))
            return rows + footer[:-8] + size.to_bytes(4, "little") + footer[-4:]
        return rows + hostile_bytes(rng, footer)
    table = pq.read_table(pa.BufferReader(content))
    metadata = dict(table.schema.metadata or {})
    for _ in range(rng.choice((1, 2))):
        key, text = rng.choice(_METADATA)
        value = rng.choice((hostile_json(rng, text), rng.choice(JSON_VALUES)))
        metadata[key.encode()] = encoded(value) if rng.random() < 0.8 else rng.randbytes(20)
    if rng.random() < 0.3:
        table = _with_types(rng, table)
    sink = pa.BufferOutputStream()
    store = rng.random() < 0.5
    if not store and rng.random() < 0.4:
        schema = base64.b64encode(table.schema.serialize().to_pybytes())
        metadata[b"ARROW:schema"] = hostile_bytes(rng, schema)
    pq.write_table(table.replace_schema_metadata(metadata), sink, store_schema=store)
    return bytes(sink.getvalue())


_PANDAS = json.dumps(
    {
        "index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 4, "step": 1}],
        "column_indexes": [{"name": None, "field_name": None, "pandas_type": "unicode",
                            "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}],
        "columns": [{"name": "prompt", "field_name": "prompt", "pandas_type": "unicode",
                     "numpy_type": "object", "metadata": None}],
        "creator": {"library": "pyarrow", "version": "1"}, "pandas_version": "2",
    }
)  # fmt: skip
_FEATURES = json.dumps(
    {"info": {"features": {"prompt": {"dtype": "string", "_type": "Value"},
                           "label": {"names": ["a", "b"], "_type": "ClassLabel"}}}}
)  # fmt: skip
_METADATA = (
    ("pandas", _PANDAS),
    ("huggingface", _FEATURES),
    ("rejuice.written", '["prompt", "reward"]'),
    ("rejuice.steps", '[{"name": "a", "columns": ["b"], "without": []}]'),
    ("a", '"b"'),
)


def _with_types(rng: random.Random, table: pa.Table) -> pa.Table:
    """The table, of which a column has another type, or another name."""
    at = rng.randrange(table.num_columns)
    n = table.num_rows
    column = rng.choice(
        (
            lambda: pa.nulls(n),
            lambda: pa.nulls(n, pa.list_(pa.string())),
            lambda: pa.nulls(n, pa.struct([("a", pa.int64())])),
            lambda: pa.array([{"a": 1}] * n),
            lambda: pa.array([[1, 2]] * n),
            lambda: pa.array([b"\xff\xfe"] * n),
            lambda: pa.array(["a"] * n).dictionary_encode(),
            lambda: pa.array([0] * n, pa.timestamp("us", "UTC")),
            lambda: pa.array([2**62] * n, pa.timestamp("us")),
            lambda: pa.array([2**31 - 1] * n, pa.date32()),
            lambda: pa.array([1] * n, pa.decimal128(38, 0)),
            lambda: pa.array([1] * n, pa.duration("ns")),
            lambda: pa.array([2**64 - 1] * n, pa.uint64()),
            lambda: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
            lambda: pa.array([float("nan")] * n),
            lambda: pa.array([True] * n),
        )
    )()
    name = rng.choice((table.column_names[at], "", "a.b", "\x00", "x" * 300, "__dj__stats__"))
    return table.set_column(at, name, column)


def _edited(rng: random.Random, text: str) -> str:
    """A text in which characters, or whole lines, are others."""
    if rng.random() < 0.5:
        return hostile_bytes(rng, text.encode()).decode(errors="replace")
    lines = text.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines[at] = lines[other]
    elif kind == 2:
        lines.insert(at, lines[other])
    else:
        lines[at] = rng.choice((" ", "  ", "- ", "\t", "? ", "!!set ")) + lines[at]
    return "".join(lines)


def _holed(rng: random.Random, document: Any) -> Any:
    """A copy of which a value is a hole, or a key is one, or something is gone or moved."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    if not places:
        return _HOLE
    around, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.7:
        around[key] = _HOLE
    elif kind < 0.8 and isinstance(around, dict):
        around[_HOLE] = around.pop(key)
    elif kind < 0.88:
        del around[key]
    elif kind < 0.94:
        around[key] = rng.choice(([around[key]], {"a": around[key]}, [around[key]] * 3))
    else:
        other, at = rng.choice(places)
        around[key] = copy.deepcopy(other[at])
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where each value within a document is: its list or mapping, and its place there."""
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)
