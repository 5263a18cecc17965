"""Columns of chats: building prompts from templates, their ids, and checks of their type.

A chat is a list of messages (role, content), as in `columns.MESSAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

import numpy as np
import pyarrow as pa

from .columns import MESSAGES, content_ids, is_list, is_text
from .compute import pc
from .errors import DataError
from .groups import Array


def prompt_ids(prompts: pa.Array, references: pa.Array | None) -> pa.Array:
    """Ids of prompts, string[N]: content hash of all roles and contents, then the reference."""
    sizes_N = np.asarray(pc.fill_null(pc.list_value_length(prompts), 0))
    messages = pc.list_flatten(prompts)
    roles, contents = (pc.struct_field(messages, name).to_pylist() for name in ("role", "content"))
    flat = list(chain.from_iterable(zip(roles, contents, strict=True)))
    ends = 2 * np.cumsum(sizes_N)
    starts = ends - 2 * sizes_N
    last = [None] * len(prompts) if references is None else references.to_pylist()
    return content_ids(
        (*flat[start:end], reference)
        for start, end, reference in zip(starts.tolist(), ends.tolist(), last, strict=True)
    )


def fill(template: str, values: Mapping[str, pa.Array]) -> pa.Array:
    r"""The template with each placeholder replaced, string[N]; null where a value is null.

    All placeholders are filled in at once: one that occurs in a value is plain text.

    Example:
        >>> fill("{a}, {b}: \\boxed{Yes}", {"{a}": pa.array(["{b}"]), "{b}": pa.array(["x"])})[0]
        <pyarrow.StringScalar: '{b}, x: \\boxed{Yes}'>
    """
    parts = re.split("|".join(f"({re.escape(name)})" for name in values), template)
    pieces = [values.get(part, part) for part in parts if part]
    # One array at least, so that the result is an array even without a placeholder.
    return pc.binary_join_element_wise(*pieces, "")


def user_messages(texts: pa.Array) -> pa.Array:
    """Prompts of one user message each, MESSAGES[N]."""
    return nest_messages(user_roles(len(texts)), texts, np.ones(len(texts), np.int64))


def user_roles(n: int) -> pa.Array:
    """The role `user`, n times."""
    return pa.repeat(pa.scalar("user"), n)


def nest_messages(roles: pa.Array, contents: pa.Array, sizes_N: Array) -> pa.Array:
    """MESSAGES[N] from flat messages; null where there are none.

    Args:
        roles: string[M], of all messages of all chats in order.
        contents: string[M], the same.
        sizes_N: int64, how many messages each chat has.
    """
    values = pa.StructArray.from_arrays([roles, contents], fields=list(MESSAGES.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes_N)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=MESSAGES, mask=pa.array(sizes_N == 0))


def last_user_message(prompts: pa.Array) -> pa.Array:
    """Content of each prompt's last user message, string[N]; null where there is none."""
    messages = pc.list_flatten(prompts)
    is_user = pc.fill_null(pc.equal(pc.struct_field(messages, "role"), "user"), False)
    at = np.flatnonzero(np.asarray(is_user))
    last_N = np.full(len(prompts), -1, np.int64)
    # Of several assignments to one place the last one stays.
    last_N[np.asarray(pc.list_parent_indices(prompts))[at]] = at
    contents = pc.struct_field(messages, "content").cast(pa.string())
    return contents.take(pa.array(last_N, mask=last_N < 0))


def is_chat(kind: pa.DataType) -> bool:
    """Whether values of this type are lists of messages with role and content, both strings."""
    if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return all(
        name in fields and (is_text(fields[name]) or pa.types.is_null(fields[name]))
        for name in ("role", "content")
    )


def check_chats(prompts: pa.ChunkedArray) -> None:
    """Refuse a column that holds no chats, or chats of which the policy would not see a part.

    Raises:
        DataError: the column is not null throughout, and not a list of messages with nothing
            but role and content.
    """
    right = "prompt_template_mapper makes prompts: lists of messages with role and content"
    kind = prompts.type
    if pa.types.is_null(kind):
        return
    if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
        raise DataError(f"column 'prompt' is {kind}", right)
    messages = pc.list_flatten(prompts)
    for field in kind.value_type:
        if field.name in ("role", "content"):
            if not (is_text(field.type) or pa.types.is_null(field.type)):
                raise DataError(
                    f"'{field.name}' of the messages in 'prompt' is {field.type}", right
                )
        elif pc.struct_field(messages, field.name).null_count < len(messages):
            raise DataError(
                f"messages in 'prompt' have a '{field.name}', which the policy would not see", right
            )
    for name in ("role", "content"):
        if kind.value_type.get_field_index(name) < 0:
            raise DataError(f"messages in 'prompt' have no '{name}'", right)
