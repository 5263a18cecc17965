"""The row contract: names and types of the columns that operators agree on.

A row is one response (or one prompt, before sampling). Rows of a `prompt_id` are contiguous.
Columns of the user that are not listed here pass through untouched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from .arrow_compute import pc
from .errors import DataError
from .json_text import list_in

# --- References -----------------------------------------------------------------------
# References of datasets: the answer in a worked solution, and several right answers.

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_EITHER = re.compile(r"\s+(?:or|OR)\s+|\s*\\(?:text|mathrm)\{\s*or\s*\}\s*")
_NUMBER = re.compile(
    r"[-+]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?: ?[A-Za-z]{1,12})?|\$[-+]?\d[\d,]*(?:\.\d+)?\$|[A-J]"
)
_QUOTED = re.compile(r"\s*\[\s*[\"']")


def has_box(text: str) -> bool:
    """Whether a box begins, closed or not."""
    return bool(_BOX.search(text))


def last_box(text: str) -> str | None:
    """The content of the last box; None where its braces are not balanced."""
    opened = list(_BOX.finditer(text))
    return until_closed(text, opened[-1].end()) if opened else None


def until_closed(text: str, start: int) -> str | None:
    r"""What is in the braces that are open at `start`; escaped ones, as in `\{1, 2\}`, are none."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start : brace.start()]
    return None


def listed_answers(text: str) -> list[str] | None:
    """The right answers in a JSON list that begins with a string; of numbers it is one answer, such
    as an interval. `['12']` is how Python writes a list."""
    answers = list_in(text) if _QUOTED.match(text) else None
    given = [each for each in answers or () if each is not None]
    if answers is None or not all(isinstance(each, str | int | float) for each in given):
        return None
    return [each if isinstance(each, str) else json.dumps(each) for each in given]


def as_text(answers: Sequence[str]) -> str:
    """Right answers as one reference: the answer, or a JSON list of several."""
    distinct = list(dict.fromkeys(answers))
    if len(distinct) <= 1:
        return "".join(distinct)
    return json.dumps(distinct, ensure_ascii=False)


def alternatives(reference: str) -> list[str]:
    """The answers each of which is right, in the order in which they are compared: of `11 or 13`
    itself, 11 and 13."""
    several = listed_answers(reference)
    if several:
        return several
    parts = _EITHER.split(reference.strip())
    # Of equations both hold: they are one answer.
    is_either = len(parts) > 1 and all(map(_NUMBER.fullmatch, parts))
    return [reference, *parts] if is_either else [reference]


# --- Options of multiple choice, in the layouts of public datasets --------------------

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OWN_LABEL = r"(?i)\A\(?(?:{}\s?[).:]|{}(?:\)|\.\s))\s*(?=\S)"
"""What may be in front of an option, with its letter and number: `B)`, `(B)`, `b )`, `B.`, `2.`."""


class Choices(NamedTuple):
    """Options as a prompt shows them, and the names of the right one: none where it is unknown."""

    texts: list[str]
    right: list[str]

    @classmethod
    def of(cls, cell: Any, named: Any, first: int, *, is_first: bool, lists: bool) -> Choices | str:
        """The options of a cell and the one that is `named`, or what was found instead of them.
        An order is drawn if the right one `is_first`, or marked. Where no prompt `lists` them under
        letters, the dataset's own label is right, too."""
        found = _labels_and_texts(cell)
        if isinstance(found, str):
            return found
        labels, texts = found
        marks = list(map(str, named)) if isinstance(named, list) else []
        is_marked = len(marks) == len(texts) and {*marks} <= {"0", "1"}
        if is_marked:
            named = [at + first for at, mark in enumerate(marks) if mark == "1"]
        at = _place(labels, texts, named, first)
        order, salt = list(range(len(texts))), "\n".join(sorted(texts))
        if is_first or is_marked:  # It depends on nothing but the texts.
            order.sort(key=lambda n: xxhash.xxh3_64_digest((texts[n] + salt).encode()))
        shown = [texts[n] for n in order]
        if at < 0:
            return cls(shown, [])
        letters, own = list(_LETTERS[: len(texts)]), str(at + 1) if first else labels[at]
        names = [texts[at]] if lists or own in texts else [texts[at], own]
        others = [name for name in names if name.upper() not in letters]
        return cls(shown, [letters[order.index(at)], *others])

    def shown(self) -> str:
        return "\n".join(f"{at}. {text}" for at, text in zip(_LETTERS, self.texts, strict=False))


def _labels_and_texts(cell: Any) -> tuple[list[str], list[str]] | str:
    """Those in a list of texts, of {label, text} or {key, value}, in {text: [...], label: [...]} or
    {A: ...}, else what was found. Labels are the texts where the dataset has none."""
    given = list_in(cell) if isinstance(cell, str) else cell
    if isinstance(given, Mapping):
        listed = given.get("text") or given.get("choices")
        named = {name: text for name, text in given.items() if text not in (None, "")}
        labels, texts = list(named), list(named.values())
        if isinstance(listed, list):
            labels, texts = list(given.get("label") or listed), list(listed)
    else:
        items = given if isinstance(given, list) else []
        objects = [each if isinstance(each, Mapping) else {"text": each} for each in items]
        texts = [each.get("text", each.get("value")) for each in objects]
        names = [each.get("label", each.get("key")) for each in objects]
        labels = [text if name is None else name for name, text in zip(names, texts, strict=True)]
    while texts and texts[-1] in (None, ""):
        texts.pop()
        del labels[len(texts) :]
    if any(text in (None, "") for text in texts):
        return "an option before other options is empty"
    if not 0 < len(texts) <= len(_LETTERS):
        found = f"{len(texts) or 'no'} options"
        return f"{found} in a text that is no list" if cell and given is None else found
    if any(isinstance(text, list | dict) for text in texts):
        return "options that are not texts"
    if len(labels) != len(texts):
        return f"{len(labels)} labels for {len(texts)} options"
    texts = [str(text).strip() for text in texts]
    own = [_OWN_LABEL.format(_LETTERS[at], at + 1) for at in range(len(texts))]
    bare = [re.sub(label, "", text) for label, text in zip(own, texts, strict=True)]
    is_labelled = all(a != b for a, b in zip(bare, texts, strict=True))
    return [str(label).strip() for label in labels], bare if is_labelled else texts


def _place(labels: list[str], texts: list[str], named: Any, first: int) -> int:
    """Where the option is that a label, letter, text or number names, or all items of a list; -1
    where none is."""
    if isinstance(named, str):
        letter, letters = named.strip("() .").upper(), list(_LETTERS[: len(texts)])
        for names, name in ((labels, named), (letters, letter), (texts, named)):
            if names.count(name) == 1:
                return names.index(name)
        named = list_in(named) or named
    if isinstance(named, list):
        places = {_place(labels, texts, each, first) for each in named}
        return places.pop() if len(places) == 1 else -1
    at = int(named) - first if str(named).isdecimal() else -1
    return at if at < len(texts) else -1


# --- The row contract: names and types of the columns that operators agree on ---------

BoolArray: TypeAlias = NDArray[np.bool_]  # bool[N]

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

TURNS = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),  # policy, tool, or the name of a frozen model
            ("text", pa.string()),  # as a model wrote it
            ("prompt_token_ids", pa.list_(pa.int32())),  # what the policy saw
            ("token_ids", pa.list_(pa.int32())),  # what it sampled
            ("logprobs", pa.list_(pa.float32())),
            ("finish_reason", pa.string()),
            ("tool", pa.string()),
            ("arguments", pa.string()),  # of the call, as JSON
            ("observation", pa.string()),  # what the call gave
            ("status", pa.string()),  # ok, or what was wrong with the call
            ("policy_version", pa.int64()),
            ("seed", pa.int64()),
        ]
    )
)
"""The turns of a trajectory. No wall times: the same seed gives the same bytes."""

ROW_CONTRACT: dict[str, pa.DataType] = {
    "prompt_id": pa.string(),  # content hash of prompt and reference: the group
    "response_id": pa.string(),  # content hash of prompt_id, index in the group, response
    "prompt": MESSAGES,
    "reference": pa.string(),
    "response": pa.string(),
    "finish_reason": pa.string(),  # stop, length, or as the engine reports it
    "prompt_token_ids": pa.list_(pa.int32()),
    "response_token_ids": pa.list_(pa.int32()),
    "response_logprobs": pa.list_(pa.float32()),
    "sampling": pa.struct(
        [
            ("temperature", pa.float64()),
            ("top_p", pa.float64()),
            ("max_tokens", pa.int64()),
            ("seed", pa.int64()),  # of the prompt
        ]
    ),
    "policy": pa.string(),
    "policy_version": pa.int64(),
    "verdict": pa.string(),  # correct, wrong_answer, no_answer, timeout, verifier_error
    "extracted_answer": pa.string(),  # the final answer found in the response
    "pass_rate": pa.float64(),  # share of correct among the graded responses of the group
    "group_n": pa.int64(),  # responses of the group, as it was sampled
    "reward": pa.float64(),  # weighted sum of the reward_<component> columns
    "advantage": pa.float64(),  # what the row trains on; null: it does not train
    "turn_advantage": pa.list_(pa.float64()),  # of each turn of the policy, in its place
    "token_weight": pa.list_(pa.float32()),  # of each response token; 0 masks it
    "loss_weight": pa.float64(),  # of the row, 0 to 1
    "task": pa.string(),  # generate or verify
    "label": pa.string(),  # the right judgement of a verification prompt: Yes or No
    "turns": TURNS,  # of a trajectory
    "turn_count": pa.int32(),  # turns of the policy itself
    "tool_calls": pa.int32(),
    "tool_errors": pa.int32(),  # calls that did not work, and malformed actions
}

ADVANTAGES = ("advantage", "turn_advantage")
"""Columns of which training needs one: what a row, or each of its turns, trains on."""
CREDIT = (*ADVANTAGES, "token_weight", "loss_weight")
"""Columns that training reads, whichever step wrote them (docs/credit.md)."""

SHARED_IN_GROUP = frozenset({"prompt_id", "prompt", "reference", "pass_rate", "group_n"})
"""Columns in which all rows of a group have the same value."""

NOT_APPLICABLE = "not_applicable"
"""Why a component is missing in a row that the `where` of its step does not match: no failure."""

RIGHT, WRONG = "correct", ("wrong_answer", "no_answer")
"""Verdicts on responses that were graded; all others are failures to grade."""


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """The type that holds all values of some types; one without values may have none of its own."""
    schemas = [pa.schema([("", kind)]) for kind in kinds]
    return pa.unify_schemas(schemas, promote_options="permissive").field("").type


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def flat(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def at_path(table: pa.Table, path: str) -> pa.Array:
    """A column, or with dots a field of its objects, in lists, too.

    `response.body.choices` is a field of a field. Of a list of objects `choices.text` is the list
    of their texts. A column whose own name has dots is found by that name.
    """
    if (found := find_path(table, path)) is not None:
        return found
    if (column := column_of(path, table.column_names)) is None:
        right = f"there are: {', '.join(sorted(table.column_names))}"
        raise DataError(f"there is no column '{path}'", right)
    what = f"there is no '{path}': column '{column}' is {table[column].type}"
    raise DataError(what, "name a field of it")


def find_path(table: pa.Table, path: str) -> pa.Array | None:
    """As `at_path`; None where there is no such field."""
    column = column_of(path, table.column_names)
    if column is None:
        return None
    values = table[column]
    if pa.types.is_dictionary(values.type):  # Those of two chunks may not fit into one.
        values = values.cast(values.type.value_type)
    return field_at(flat(values), path[len(column) + 1 :])


def column_of(path: str, columns: Collection[str]) -> str | None:
    """The column in which a path begins: of several the one with the longest name."""
    return next((name for name in beginnings(path) if name in columns), None)


def columns_of(paths: Iterable[str], columns: Collection[str] | None = None) -> tuple[str, ...]:
    """The columns that paths need, each once. Where it is not known which are there, a dot is that
    of a path."""
    found = (
        (columns is not None and column_of(path, columns)) or path.partition(".")[0]
        for path in paths
    )
    return tuple(dict.fromkeys(found))


def beginnings(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:size]) for size in range(len(parts), 0, -1)]


def with_items(lists: pa.Array, items: pa.Array, kind: pa.ListType | None = None) -> pa.ListArray:
    """Lists of the same lengths, and null where they are, with other items in place of `flatten`'s,
    which has none of a list that is null."""
    sizes_N = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
    return lists_of(items, sizes_N, np.asarray(lists.is_valid()), kind)


def lists_of(
    items: Any, lengths_N: NDArray[Any], given_N: BoolArray, kind: pa.ListType | None = None
) -> pa.ListArray:
    """Lists of so many items each, one after the other, and null where none is given."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths_N)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=pa.array(~given_N))


def field_at(values: pa.Array, path: str) -> pa.Array | None:
    """As `at_path`; None where the values have no such field."""
    kind = values.type
    if not path or pa.types.is_null(kind):
        return values
    if is_list(kind):
        inner = field_at(values.flatten(), path)
        return None if inner is None else with_items(values, inner)
    if not pa.types.is_struct(kind):
        return None
    field = column_of(path, [each.name for each in kind])
    if field is None:
        return None
    return field_at(pc.struct_field(values, field), path[len(field) + 1 :])


def content_ids(parts: Iterable[Sequence[str | None]]) -> pa.Array:
    """Stable ids, string[N]: 128-bit xxh3 (hex) of each row's parts.

    Each part is preceded by its length, so that ("ab", "c") and ("a", "bc") differ; a null has a
    length that no text has.
    """
    ids = []
    for row in parts:
        content = bytearray()
        for part in row:
            if part is None:
                content += b"null:"
            else:
                raw = part.encode("utf-8", "surrogatepass")
                content += b"%d:%b" % (len(raw), raw)
        ids.append(xxhash.xxh3_128_hexdigest(bytes(content)))
    return pa.array(ids, pa.string())


def of_task(table: pa.Table, task: str) -> BoolArray:
    """bool[N]; a null belongs to no task."""
    return np.asarray(pc.fill_null(pc.equal(table["task"].cast(pa.string()), task), False))


def right_and_wrong(verdicts: pa.ChunkedArray) -> tuple[BoolArray, BoolArray]:
    """bool[N] each, of a column `verdict`: the rest are ungraded, and `no_answer` is wrong."""
    known = verdicts.cast(pa.string())
    right, wrong = pa.array([RIGHT]), pa.array(WRONG)
    return np.asarray(pc.is_in(known, right)), np.asarray(pc.is_in(known, wrong))


def component_columns(component: str) -> tuple[str, str]:
    """Return the two columns of a reward component: its value, and why the value is missing."""
    return f"reward_{component}", f"reward_{component}_missing"


def component(
    name: str, values_N: NDArray[Any], missing: pa.Array | None = None
) -> dict[str, pa.Array]:
    """Return both columns of a reward component.

    Args:
        name: the component, such as `accuracy`.
        values_N: float64[N]; ignored where `missing` gives a reason.
        missing: string[N], null where there is a value. None: no value is missing.
    """
    missing = pa.nulls(len(values_N), pa.string()) if missing is None else missing
    absent = np.asarray(missing.is_valid())
    value, reason = component_columns(name)
    return {value: pa.array(values_N, pa.float64(), mask=absent), reason: missing}


_NO_NUMBER = ("", "n/a", "#n/a", "<na>", "n.a.", "na", "none", "null", "-", "?", "unknown")
"""What datasets write in place of a number that there is not, in small letters."""


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """float64[N], nan where there is no number; a DataError where the column has another type."""
    return np.asarray(pc.fill_null(as_numbers(table[name], f"column '{name}'"), np.nan))


def as_numbers(column: Any, where: str) -> Any:
    """A column of numbers or booleans, also as texts, with `N/A`, `nan` and the like for null, as
    float64; `where` it is, for errors."""
    kind, right = column.type, "name a column of numbers"
    if is_text(kind):
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
        texts = pc.if_else(pc.is_in(texts, pa.array(_NO_NUMBER)), None, texts)
        for word, digit in (("true", "1"), ("false", "0")):
            texts = pc.if_else(pc.equal(texts, word), digit, texts)
        try:
            read = texts.cast(pa.float64())
        except pa.ArrowInvalid as error:
            right = "write 0.5 for 50%, true for yes; reward_function_mapper makes rewards of words"
            raise DataError(f"{where} is {kind}, not numeric ({error})", right) from None
        return pc.if_else(pc.is_finite(read), read, None)
    types = pa.types
    known = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    if not any(is_kind(kind) for is_kind in known):
        raise DataError(f"{where} is {kind}, not numeric", right)
    # Not safe: integers beyond 2**53 round to the nearest float64 instead of failing.
    return column.cast(pa.float64(), safe=False)


def mean_of_lists(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """float64[N]: null where there is no list, or an empty one; nan where an element is null."""
    lists = ItemsOfLists.of(flat(column))
    return lists.mean(lists.values_M)


def share_of_zeros(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """float64[N]: null where there is no list, or an empty one."""
    lists = ItemsOfLists.of(flat(column))
    return lists.mean(lists.values_M == 0)


class ItemsOfLists(NamedTuple):
    """The items of a column of lists of numbers, one list after the other; M of them."""

    given_N: BoolArray  # whether there is a list
    lengths_N: NDArray[np.int64]  # how many items it has; 0 where there is none
    values_M: NDArray[np.float64]  # nan for null

    @classmethod
    def of(cls, lists: pa.Array) -> ItemsOfLists:
        if pa.types.is_null(lists.type):
            return cls(np.zeros(len(lists), bool), np.zeros(len(lists), np.int64), np.zeros(0))
        lengths_N = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
        values_M = np.asarray(pc.list_flatten(lists).cast(pa.float64()).fill_null(np.nan))
        return cls(np.asarray(lists.is_valid()), lengths_N, values_M)

    @property
    def rows_M(self) -> NDArray[np.int64]:
        """The row of each item, int64[M]."""
        return np.repeat(np.arange(len(self.lengths_N)), self.lengths_N)

    def sum(self, values_M: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(self.rows_M, values_M, len(self.lengths_N)).astype(np.float64)

    def mean(self, values_M: NDArray[Any]) -> pa.Array:
        mean_N = self.sum(values_M) / np.maximum(self.lengths_N, 1)
        return pa.array(mean_N, mask=self.lengths_N == 0)

    def any(self, found_M: BoolArray) -> BoolArray:
        return self.sum(found_M) > 0

    def only(self, wanted_N: BoolArray) -> ItemsOfLists:
        """Items of these rows; the others have no list."""
        lengths_N = np.where(wanted_N, self.lengths_N, 0)
        return ItemsOfLists(
            self.given_N & wanted_N, lengths_N, self.values_M[wanted_N[self.rows_M]]
        )

    def check_lengths(self, what: str, other: ItemsOfLists, of_other: str) -> None:
        """Refuse a row that has a list here, and another number of items in the other lists."""
        wrong_N = self.given_N & (self.lengths_N != other.lengths_N)
        if wrong_N.any():
            row = int(np.argmax(wrong_N))
            found = f"row {row} has {self.lengths_N[row]} values in {what} and "
            raise DataError(f"{found}{other.lengths_N[row]} {of_other}", "give one for each token")

    def check_finite(self, what: str, right: str) -> None:
        invalid_M = ~np.isfinite(self.values_M)
        if invalid_M.any():
            row = int(self.rows_M[invalid_M][0])
            raise DataError(f"row {row} has {what} that is null or not finite", right)
