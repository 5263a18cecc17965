"""What went wrong in an operator of Data-Juicer's, in one line."""

from __future__ import annotations

import ast
import errno
import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...operators import OperatorError, RejuiceError
from ...operators.errors import first_line
from .catalogue import find
from .installs import NotInstalledError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NETWORK = {"aiohttp", "httpcore", "httpx", "huggingface_hub", "requests", "urllib", "urllib3"}
"""Packages whose errors are about something that could not be fetched."""


class NotReadyError(OperatorError):
    """An operator of Data-Juicer's cannot be made, or misses something: no row is the reason."""


@contextmanager
def described(
    name: str,
    fields: Mapping[str, Any],
    table: pa.Table | None,
    *,
    is_made: Callable[[], bool],
) -> Iterator[None]:
    """Turn whatever an operator raises into one line.

    Args:
        name: the operator's.
        fields: as the recipe has them.
        table: the rows that it works on; None: it is only made.
        is_made: whether there is an instance: without one, no row is the reason.

    Raises:
        OperatorError: it failed on the rows.
        NotReadyError: it cannot be made, or misses a package or something from the network.
    """
    try:
        yield
    except (RejuiceError, MemoryError):
        raise
    except NotInstalledError as error:
        found = f"needs {error.package}, which is not installed"
        raise NotReadyError(found, f"pip install {shlex.quote(error.package)}") from error
    except Exception as error:
        # A full disk is not the operator's failure, and the runner knows what to say.
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise
        if _is_network(error):
            found = f"could not fetch {_wanted(name, fields, error)}: {_summary(error)}"
            right = "it has to be reached, or named by a path on this disk"
            raise NotReadyError(found, right) from error
        kind = OperatorError if is_made() else NotReadyError
        note, hint = _hint(name, fields, table, error)
        raise kind(f"failed with {_summary(error)}{note}", hint) from error


def _summary(error: Exception) -> str:
    """Its type and the first line of its message, or where it was raised."""
    first = first_line(error)
    if not first:
        at = traceback.extract_tb(error.__traceback__)[-1]
        first = f"no message, at {Path(at.filename).name}:{at.lineno}"
    return f"{type(error).__name__}: {first}"


def _is_network(error: BaseException | None) -> bool:
    """Whether it, or what it came from, is about a connection."""
    while error is not None:
        package = type(error).__module__.split(".")[0]
        if isinstance(error, ConnectionError | TimeoutError) or package in _NETWORK:
            return True
        error = error.__cause__ or error.__context__
    return False


def _wanted(name: str, fields: Mapping[str, Any], error: BaseException) -> str:
    """What could not be fetched: an address, or the model that a field names."""
    texts = list[str]()
    each: BaseException | None = error
    while each is not None:
        texts.append(str(getattr(getattr(each, "request", None), "url", "") or ""))
        each = each.__cause__ or each.__context__
    address = next(filter(None, texts), "")
    models = {
        field: value
        for field, value in _values(name, fields).items()
        if re.search("model|tokenizer", field) and "/" in value
    }
    if not models:
        return address or "something that it needs"
    return " or ".join(f"{value} ({field})" for field, value in models.items())


def _values(name: str, fields: Mapping[str, Any]) -> dict[str, str]:
    """The fields of an operator that have a text, with their defaults."""
    found = find(name)
    values = dict[str, Any]()
    for field in found.fields if found else ():
        with suppress(ValueError, SyntaxError):  # Not written out, such as a constant.
            values[field.name] = ast.literal_eval(field.default or "None")
    return {key: value for key, value in {**values, **fields}.items() if isinstance(value, str)}


def _hint(
    name: str, fields: Mapping[str, Any], table: pa.Table | None, error: Exception
) -> tuple[str, str]:
    """What else the rows show, and what would be right."""
    if table is None:
        return "", ""
    text_key = fields.get("text_key", "text")
    if text_key not in table.column_names:
        return "", f"it may need column '{text_key}': set text_keys or text_key"
    keys = {value for key, value in _values(name, fields).items() if key.endswith("_key")}
    # Columns that it may not read at all have to be named by more than their nulls.
    others = keys - {text_key} if "NoneType" in str(error) else ()
    for column in (text_key, *sorted(others)):
        if column in table.column_names and table[column].null_count:
            return f" (column '{column}' is null)", "drop rows in which it is null"
    return "", ""
