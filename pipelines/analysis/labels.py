"""The file for a person to label: one JSON object per line, and reading it back.

    {"kind": "sample", "set": "", "row": 3, "stratum": "right, recheck wrong", "stratum_rows": 11,
     "response_id": ..., "prompt": ..., "response": ..., "reference": ..., "extracted_answer": ...,
     "verdict": "correct", "recheck": "wrong_answer", "label": null}

The person sets `label` to `right`, `wrong` or `unsure`: whether the *response* is right. Lines of
kind `metamorphic` are pairs that failed a check, to look at; they take no label.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from ...operators import DataError
from ...operators.groups import Array
from .audit import RIGHT_STRATA, STRATA, WRONG_STRATA, Counted, ErrorRate, error_rate
from .verdicts import FailingPair, GradedRows

LABELS = ("right", "wrong", "unsure")
_SAMPLE, _FAILING = "sample", "metamorphic"
_SHOWN = ("set", "row", "response_id", "prompt", "response", "reference", "extracted_answer")


def sample_lines(
    graded: GradedRows, recheck_N: Sequence[str | None], strata_N: Array, rows: Sequence[int]
) -> Iterator[str]:
    """A line for each row of a sample, without a label."""
    sizes = Counter(strata_N.tolist())
    names = [name for name in _SHOWN if name in graded.table.column_names]
    taken = graded.table.select(names).take(pa.array(rows, pa.int64()))
    for row, values in zip(rows, taken.to_pylist(), strict=True):
        stratum = int(strata_N[row])
        yield _line(
            {
                "kind": _SAMPLE,
                "stratum": STRATA[stratum],
                "stratum_rows": sizes[stratum],
                **values,
                "verdict": graded.table["verdict"][row].as_py(),
                "recheck": recheck_N[row],
                "label": None,
            }
        )


def failing_lines(failing: Sequence[FailingPair]) -> Iterator[str]:
    """A line for each pair that failed a metamorphic check."""
    for each in failing:
        yield _line({"kind": _FAILING, **each._asdict()})


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a file of lines.

    Raises:
        DataError: it cannot be written.
    """
    try:
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be written", error.strerror or "") from error


def check_replaceable(path: Path) -> None:
    """Refuse to write over labels, or over a file that no audit has written.

    Raises:
        DataError: such a file is at the path.
    """
    if not path.exists():
        return
    other = "give another --output"
    try:
        lines = [line for _, line in _objects(path)]
    except DataError:
        lines = [{}]
    if not all(line.get("kind") in (_SAMPLE, _FAILING) for line in lines):
        raise DataError(f"{path} is there, and was not written by an audit", other)
    if any(line.get("label") for line in lines):
        raise DataError(f"{path} has labels", f"read it with --labels, or {other}")


class LabelledErrors(NamedTuple):
    """What labels say about a verifier."""

    labelled: int  # rows that are right or wrong by their label
    unsure: int  # rows with that label; they count as without one
    unlabelled: int  # rows of the sample without a label
    errors: ErrorRate  # the rate of wrong verdicts among all
    false_right: ErrorRate  # among the responses graded right, those that are wrong
    false_wrong: ErrorRate  # among the responses graded wrong, those that are right


def labelled_errors(path: Path, graded: GradedRows) -> LabelledErrors:
    """The error rates that follow from a labelled file.

    Strata and their sizes are those of the file, as the sample was drawn from them.

    Raises:
        DataError: it cannot be read, a label is none of `LABELS`, or a row is not of this run.
    """
    rows = _RowsByPlace(graded)
    seen: dict[int, int] = {}
    labels: Counter[str | None] = Counter()
    sizes: dict[str, int] = {}
    known: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for number, line in _objects(path):
        if line.get("kind") == _FAILING:
            continue
        where = f"{path}, line {number}"
        label, stratum = _label(line, where), _stratum(line, where)
        row = rows.find(line, where)
        if row in seen:
            found = f"the row is on line {seen[row]}, too"
            raise DataError(found, "label it once", where=where)
        seen[row] = number
        if sizes.setdefault(stratum, line["stratum_rows"]) != line["stratum_rows"]:
            raise DataError("stratum_rows is not as above", "leave it as it was", where=where)
        labels[label] += 1
        if label in ("right", "wrong"):
            known[stratum] += 1
            errors[stratum] += (label == "right") != (stratum in RIGHT_STRATA)
    if not seen:
        raise DataError(f"{path} has no rows to label", "give the file that an audit has written")
    counted = {name: Counted(size, known[name], errors[name]) for name, size in sizes.items()}
    right = _with_removed(counted, RIGHT_STRATA, rows.right, path)
    wrong = _with_removed(counted, WRONG_STRATA, graded.table.num_rows - rows.right, path)
    return LabelledErrors(
        known.total(),
        labels["unsure"],
        labels[None],
        error_rate({**right, **wrong}),
        error_rate(right),
        error_rate(wrong),
    )


def _with_removed(
    counted: Mapping[str, Counted], names: Sequence[str], rows: int, path: Path
) -> dict[str, Counted]:
    """Some strata, with those whose lines were removed from the file as one without a label."""
    there = {name: counted[name] for name in names if name in counted}
    removed = rows - sum(each.rows for each in there.values())
    if removed < 0:
        raise DataError("it is of a run with more rows", "give its own labels", where=str(path))
    return {**there, f"removed, {names[0]}": Counted(removed, 0, 0)} if removed else there


class _RowsByPlace:
    """The rows of a run by set and place."""

    def __init__(self, graded: GradedRows) -> None:
        names = ("set", "row", "response_id", "verdict")
        lists = [graded.table[name].to_pylist() for name in names]
        self._at = {(a, b): at for at, (a, b) in enumerate(zip(*lists[:2], strict=True))}
        self._ids, self._verdicts = lists[2], lists[3]
        self.right = self._verdicts.count("correct")

    def find(self, line: Mapping[str, Any], where: str) -> int:
        key = (line.get("set"), line.get("row"))
        at = self._at.get(key) if all(isinstance(each, str | int) for each in key) else None
        same = at is not None and (
            self._ids[at] == line.get("response_id") and self._verdicts[at] == line.get("verdict")
        )
        if at is None or not same:
            raise DataError("the row is not in this run", "give its own labels", where=where)
        return at


def _label(line: Mapping[str, Any], where: str) -> str | None:
    label = line.get("label")
    if label is None or label == "":
        return None
    if label not in LABELS:
        shown = ascii(label)[:40]
        raise DataError(f"label is {shown}", "write right, wrong or unsure", where=where)
    return str(label)


def _stratum(line: Mapping[str, Any], where: str) -> str:
    stratum, size = line.get("stratum"), line.get("stratum_rows")
    if stratum not in STRATA or not isinstance(size, int) or size < 1:
        found = "stratum or stratum_rows is not as it was written"
        raise DataError(found, "change nothing but label", where=where)
    return str(stratum)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with the number of their line."""
    try:
        lines = path.read_bytes().split(b"\n")  # Nothing else ends a line, U+2028 does not.
    except OSError as error:
        raise DataError(f"{path} cannot be read", error.strerror or "") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            right = "write one JSON object on each line"
            raise DataError("this is no JSON object", right, where=f"{path}, line {number}")
        yield number, found


def _line(values: Mapping[str, Any]) -> str:
    """JSON on one line, readable, in which nothing can change a terminal or the order of text."""
    text = json.dumps(values, ensure_ascii=False, default=str)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
