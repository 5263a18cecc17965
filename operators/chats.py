"""Columns of chats: reading those of datasets, building prompts, their ids, checks of their type.

A chat is a list of messages (role, content), as in `columns.MESSAGES`. Datasets write them in other
ways, too, all of which `chats_of` reads:

    [{"role": "user", "content": "2 + 2?"}]
    [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]     content parts
    [{"from": "human", "value": "2 + 2?"}]                                  ShareGPT
    '[{"role": "user", ...}]', or ['{"role": "user", ...}']                 JSON texts
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .arrow_compute import pc
from .columns import MESSAGES, content_ids, is_list, is_text
from .errors import DataError
from .groups import Array

# --- What a model wrote after its thoughts, in the forms of all families --------------
# | family | thought |
# |---|---|
# | DeepSeek-R1, Qwen3, QwQ, GLM | `<think>` to `</think>` |
# | Magistral | `[THINK]` to `[/THINK]` |
# | Kimi | `◁think▷` to `◁/think▷` |
# | Seed-OSS | `<seed:think>` to `</seed:think>` |
# | Command A | `<|START_THINKING|>` to `<|END_THINKING|>` |
# | Sky-T1 | `<|begin_of_thought|>` to `<|end_of_thought|>` |
# | Claude's form | `<thinking>` to `</thinking>` |
# | EXAONE Deep | `<thought>` to `</thought>` |
# | recipes of GRPO | `<reasoning>` to `</reasoning>` |
# | Apertus | `<|inner_prefix|>` to `<|inner_suffix|>` |
# | Gemma | `<unused94>thought` to `<unused95>`, `<|channel>thought` to `<channel|>` |
# | Granite 3.2 | `Here is my thought process:` to `Here is my response:` |
# | gpt-oss (harmony) | all but the last channel `final` |
#
# A template may open the thought itself, as that of DeepSeek-R1 does: a closing tag alone ends one.
# A thought that is not closed was cut off: nothing of it is an answer.

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thinking>", "</thinking>"),
    ("<THINK>", "</THINK>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<unused94>thought", "<unused95>"),
    ("<|channel>thought", "<channel|>"),
    ("Here is my thought process:", "Here is my response:"),
    ("Here's my thought process:", "Here's my response:"),
)
"""What opens and closes a thought."""
_CHANNEL = "<|channel|>"
_FINAL = re.compile(r"<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?(?:<\|message\|>|\Z)")
_STRIPPED = re.compile(r"\Aanalysis.*assistantfinal", re.DOTALL)
"""A response of gpt-oss without its special tokens, as servers give it."""
_CUT_OFF = re.compile(r"analysis(?=[A-Z])")
"""The same where no final channel follows: no word goes on like that."""
_OPENS_ANSWER = re.compile(r"\s*<\|(?:START_RESPONSE|response)\|>")
"""What some models write between a thought and the answer."""


def final_channel(text: str) -> str | None:
    """Return a response in the harmony format from its last channel `final` on; others as they are.

    Returns:
        None if it has channels, and none is `final`.

    Example:
        >>> final_channel("<|channel|>analysis<|message|>7?<|end|><|channel|>final<|message|>12")
        '12'
    """
    if _CHANNEL not in text:
        if not text.startswith("analysis"):
            return text
        stripped = _STRIPPED.match(text)
        if stripped:
            return text[stripped.end() :]
        return None if _CUT_OFF.match(text) else text
    finals = list(_FINAL.finditer(text))
    return text[finals[-1].end() :] if finals else None


def after_thoughts(text: str) -> str | None:
    """Return what follows the last thought of a response; None inside one that is not closed.

    Example:
        >>> after_thoughts("7?</think>It is 12."), after_thoughts("[THINK]7?")
        ('It is 12.', None)
    """
    if not _may_have_thought(text):
        return text
    for opens, closes in TAGS:
        closed = text.rfind(closes)
        if closed >= 0:
            text = text[closed + len(closes) :]
        # Tags of a model's own form are thoughts; of another one they may be mentioned.
        is_own = closed >= 0 or opens == TAGS[0][0] or text.lstrip().startswith(opens)
        if is_own and opens in text:
            return None
    opened = _OPENS_ANSWER.match(text)
    return text[opened.end() :] if opened else text


def _may_have_thought(text: str) -> bool:
    """Return whether a text may have one of the tags: most have none, and are done with at once."""
    # A search for one character takes a quarter of the time of a search for several.
    return (
        "hink" in text
        or "HINK" in text
        or "hought" in text
        or (">" in text and ("easoning>" in text or "<unused" in text))
        or ("|" in text and ("channel|>" in text or "inner_" in text))
    )


def answer_part(text: str) -> str | None:
    """What a response says after its thoughts in any of these forms; None where one is cut off."""
    final = final_channel(text)
    return None if final is None else after_thoughts(final)


def without_thoughts(text: str) -> str:
    """As `answer_part`, but empty where there is none."""
    return answer_part(text) or ""


def continued(prefix: str | None, responses: Sequence[str | None]) -> list[str | None]:
    """Return responses behind what their prompts end with, where they do not repeat it.

    Example:
        >>> continued("<think>", ["7?</think>12", "<think>7?</think>12", None])
        ['<think>7?</think>12', '<think>7?</think>12', None]
    """
    if not prefix:
        return list(responses)
    return [
        text if text is None or text.lstrip().startswith(prefix) else prefix + text
        for text in responses
    ]


# --- Chats ----------------------------------------------------------------------------

_ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    **{"human": "user", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant"},
    **{"model": "assistant", "ai": "assistant"},
}
"""How roles are written, in small letters, and what they are; others stay as they are."""
_KEYS = (("role", "content"), ("from", "value"))
"""The two fields of messages: some may have the first pair, and others the second."""
_TEXT_PARTS = (None, "text", "input_text", "output_text")
_CALLS = ("tool_calls", "function_call")


class Chats(NamedTuple):
    """A column of chats: the messages of all of them, one after another."""

    roles: pa.Array  # string[M]
    contents: pa.Array  # string[M]; content parts are joined by line breaks
    sizes_N: Array  # int64[N], how many messages each chat has; 0 where there is none
    # of messages and their content parts what else they have, such as `tool_calls` or `image`, with
    # the first row that has it
    unseen: Mapping[str, int]
    calls_M: Array  # bool[M], whether a message has tool calls and no text

    def without_last_of(self, role: str) -> Chats:
        """Return the chats without their last message, where it is of a role."""
        ends_N = np.cumsum(self.sizes_N)
        last_N = np.flatnonzero(self.sizes_N)
        at = ends_N[last_N] - 1
        is_role = np.asarray(pc.fill_null(pc.equal(self.roles.take(pa.array(at)), role), False))
        kept = np.ones(len(self.roles), bool)
        kept[at[is_role]] = False
        sizes_N = self.sizes_N.copy()
        sizes_N[last_N[is_role]] -= 1
        return self._replace(
            roles=self.roles.filter(pa.array(kept)),
            contents=self.contents.filter(pa.array(kept)),
            sizes_N=sizes_N,
            calls_M=self.calls_M[kept],
        )

    def that_ask(self) -> Chats:
        """Return the chats with no message where only the system says something, or nobody does."""
        says = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(self.contents), ""), False)
        asks_M = np.asarray(pc.and_(says, pc.not_equal(self.roles, "system")))
        ends_N = np.cumsum(self.sizes_N)
        asked_M = np.concatenate([[0], np.cumsum(asks_M)])
        asks_N = asked_M[ends_N] > asked_M[ends_N - self.sizes_N]
        kept = np.repeat(asks_N, self.sizes_N)
        return self._replace(
            roles=self.roles.filter(pa.array(kept)),
            contents=self.contents.filter(pa.array(kept)),
            sizes_N=np.where(asks_N, self.sizes_N, 0),
            calls_M=self.calls_M[kept],
        )

    def last_of(self, role: str) -> pa.Array:
        """Content of each chat's last message, string[N].

        It is null where the message is of another role, or calls tools and says nothing.
        """
        ends_N = np.cumsum(self.sizes_N)
        last_N = pa.array(ends_N - 1, mask=self.sizes_N == 0)
        calls = pa.array(self.calls_M, pa.bool_()).take(last_N)
        is_role = pc.fill_null(pc.equal(self.roles.take(last_N), role), False)
        is_role = pc.and_not(is_role, pc.fill_null(calls, False))
        contents = self.contents.take(last_N)
        return pc.if_else(is_role, contents, pa.scalar(None, pa.string()))


def chats_of(column: pa.Array) -> Chats | None:
    """Return the chats of a column, however the dataset writes them; None if it has none.

    Texts are chats if one of them is a JSON list of messages.

    Raises:
        DataError: one text is a chat, and another is not, or chats do not have one form.
    """
    kind = column.type
    is_json = is_text(kind) or (is_list(kind) and is_text(kind.value_type))
    if is_json:
        column = _from_json(column)
        if column is None:
            return None
        kind = column.type
    if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
        return None
    names = [field.name for field in kind.value_type]
    pairs = [pair for pair in _KEYS if set(pair) <= set(names)]
    if not pairs or not is_text(kind.value_type.field(pairs[0][0]).type):
        return None
    sizes_N = np.asarray(pc.fill_null(pc.list_value_length(column), 0), np.int64)
    rows_M = np.repeat(np.arange(len(column)), sizes_N)
    messages = column.flatten()
    unseen = dict[str, int]()
    roles, contents = pa.nulls(len(messages), pa.string()), pa.nulls(len(messages), pa.string())
    for role, content in pairs:
        written = pc.struct_field(messages, content)
        texts = texts_of_contents(written)
        if texts is None:
            if is_json:
                found = f"'{content}' of messages in chats as JSON text is {written.type}"
                raise DataError(found, "give texts, or lists of parts")
            return None
        _note_parts(written, rows_M, unseen)
        own = pc.struct_field(messages, role).cast(pa.string())
        both = pc.if_else(pc.is_valid(roles), own, pa.scalar(None, pa.string()))
        _note(unseen, role, both, rows_M)
        contents = pc.if_else(pc.is_valid(roles), contents, texts)
        roles = pc.coalesce(roles, _plain_roles(own))
    for name in names:
        if not any(name in pair for pair in pairs):
            _note(unseen, name, pc.struct_field(messages, name), rows_M)
    calls_M = np.zeros(len(messages), bool)
    for name in set(_CALLS).intersection(names):
        calls_M |= _present(pc.struct_field(messages, name))
    says = pc.not_equal(pc.utf8_trim_whitespace(contents), "")
    calls_M &= ~np.asarray(pc.fill_null(says, False))
    return Chats(roles, contents, sizes_N, unseen, calls_M)


def _plain_roles(roles: pa.Array) -> pa.Array:
    """Roles as chat templates know them, string[M]."""
    known = {role: _ROLES.get(role.lower(), role) for role in pc.unique(roles).to_pylist() if role}
    if all(role == plain for role, plain in known.items()):
        return roles
    return pa.array([role and known[role] for role in roles.to_pylist()], pa.string())


def responses_in(texts: pa.Array) -> pa.Array:
    """Return texts, string[M], where that of a whole chat as JSON is its last message's.

    A response may be JSON, too, but no list of messages that begins with the user's or the
    system's. Each text is looked at alone, so that none depends on those beside it.
    """
    values = texts.to_pylist()
    found = {
        at: _final(text) for at, text in enumerate(values) if text and text[:40].lstrip()[:1] == "["
    }
    found = {at: response for at, response in found.items() if response is not values[at]}
    if not found:
        return texts
    return pa.array([found.get(at, text) for at, text in enumerate(values)], pa.string())


def _final(text: str) -> str | None:
    """Return the response at the end of a chat as JSON text; the same text if it is none."""
    chat = _chat_in(text)
    role = (chat[0].get("role") or chat[0].get("from")) if chat else None
    if not isinstance(role, str) or _ROLES.get(role.lower(), "assistant") == "assistant":
        return text
    chats = chats_of(pa.array([text]))
    response: str | None = text if chats is None else chats.last_of("assistant")[0].as_py()
    return response


def texts_of_contents(contents: pa.Array) -> pa.Array | None:
    """The contents of messages, texts or lists of parts, as texts, string[M]; None if others."""
    kind = contents.type
    if is_text(kind) or pa.types.is_null(kind):
        return contents.cast(pa.string())
    if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
        return None
    if kind.value_type.get_field_index("text") < 0:
        return None
    joined = []
    for content in contents.to_pylist():
        texts = [part["text"] for part in content or () if part and part["text"] is not None]
        joined.append(None if content is None else "\n".join(texts))
    return pa.array(joined, pa.string())


def _note_parts(contents: pa.Array, rows_M: Array, unseen: dict[str, int]) -> None:
    """Note what content parts have beside their text, and parts of another type than text."""
    if not is_list(contents.type):
        return
    parts = contents.flatten()
    sizes = np.asarray(pc.fill_null(pc.list_value_length(contents), 0), np.int64)
    rows = np.repeat(rows_M, sizes)
    for field in parts.type:
        if field.name not in ("type", "text"):
            _note(unseen, field.name, pc.struct_field(parts, field.name), rows)
    if parts.type.get_field_index("type") >= 0:
        kinds, texts = (pc.struct_field(parts, name).to_pylist() for name in ("type", "text"))
        for kind, text, row in zip(kinds, texts, rows.tolist(), strict=True):
            if text is None and kind not in _TEXT_PARTS:
                unseen.setdefault(str(kind), row)


def _note(unseen: dict[str, int], name: str, values: pa.Array, rows: Array) -> None:
    """Note the first row in which a field has a value."""
    there = _present(values)
    if there.any():
        unseen.setdefault(name, int(rows[np.flatnonzero(there)[0]]))


def _present(values: pa.Array) -> Array:
    """Return where there is a value, bool[M]; empty lists and objects are none."""
    there = np.asarray(values.is_valid())
    if is_list(values.type):
        there = there & (np.asarray(pc.fill_null(pc.list_value_length(values), 0)) > 0)
    if pa.types.is_struct(values.type):
        there = there & bool(values.type.num_fields)
    return there


def _from_json(column: pa.Array) -> pa.Array | None:
    """Chats that are written as JSON texts, one for each chat or for each message, or None."""
    values = column.to_pylist()
    chats = [_chat_in(value) if value else None for value in values]
    if not any(chats):
        return None
    for chat, value in zip(chats, values, strict=True):
        if chat is None and value:
            found = f"some texts are chats as JSON, but not this one: {str(value)[:60]!r}"
            raise DataError(found, "write all of them as JSON lists of messages, or none")
    wrong = (pa.ArrowException, OverflowError, UnicodeError)
    try:
        return pa.array(chats)
    except wrong:  # Contents of both texts and parts, or arguments.
        pass
    try:
        return pa.array([chat and [_as_text(message) for message in chat] for chat in chats])
    except wrong as error:
        found = " ".join(f"chats as JSON text cannot be read: {error}".split())
        raise DataError(found, "give all messages the same fields, with texts") from None


def _chat_in(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a chat as JSON text, or as one for each message; None if it is none."""
    texts = [value] if isinstance(value, str) else value
    if not all(isinstance(text, str) and text.lstrip()[:1] in ("[", "{") for text in texts):
        return None
    try:
        found = [_read_text(text) for text in texts]
    except (ValueError, RecursionError, SyntaxError, MemoryError):
        return None
    messages = found[0] if isinstance(value, str) else found
    if not isinstance(messages, list):
        return None
    known = all(
        isinstance(each, dict) and any(set(keys) <= set(each) for keys in _KEYS)
        for each in messages
    )
    return messages if known else None


def _read_text(text: str) -> Any:
    """JSON, or what Python shows of a list of dictionaries, as pandas writes it to CSV."""
    if text.lstrip().startswith("[{'"):
        return ast.literal_eval(text.strip())
    return json.loads(text)


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose values are texts, but for content parts, so that all have one type."""
    texts = {}
    for name, value in message.items():
        if name == "content" and not isinstance(value, list):
            value = None if value is None else [{"type": "text", "text": value}]
        elif name not in ("role", "content", "from", "value") and value is not None:
            value = json.dumps(value)
        texts[name] = value
    return texts


def prompt_ids(
    prompts: pa.Array, references: pa.Array | None, others: Sequence[Sequence[Any]] | None = None
) -> pa.Array:
    """Ids of prompts, string[N]: content hash of all roles and contents, then the reference."""
    sizes_N = np.asarray(pc.fill_null(pc.list_value_length(prompts), 0))
    messages = pc.list_flatten(prompts)
    roles, contents = (pc.struct_field(messages, name).to_pylist() for name in ("role", "content"))
    flat = list(chain.from_iterable(zip(roles, contents, strict=True)))
    ends = 2 * np.cumsum(sizes_N)
    starts = ends - 2 * sizes_N
    last = [None] * len(prompts) if references is None else references.to_pylist()
    more = [()] * len(prompts) if others is None else [(_as_json(row),) for row in others]
    return content_ids(
        (*flat[start:end], reference, *other)
        for start, end, reference, other in zip(
            starts.tolist(), ends.tolist(), last, more, strict=True
        )
    )


def _as_json(values: Sequence[Any]) -> str:
    return json.dumps(values, sort_keys=True, default=repr)


def fill(template: str, values: Mapping[str, pa.Array]) -> pa.Array:
    r"""Return the template with each placeholder replaced, string[N]; null where a value is null.

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
    """Return prompts of one user message each, MESSAGES[N]."""
    return nest_messages(user_roles(len(texts)), texts, np.ones(len(texts), np.int64))


def user_roles(n: int) -> pa.Array:
    """Return the role `user`, n times."""
    return pa.repeat(pa.scalar("user"), n)


def nest_messages(roles: pa.Array, contents: pa.Array, sizes_N: Array) -> pa.Array:
    """MESSAGES[N] from flat messages; null where there are none."""
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
