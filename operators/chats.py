"""Columns of chats: reading those of datasets, building prompts, their ids, checks of their type.

A chat is a list of messages (role, content), as in `columns.MESSAGES`. Datasets write them in other
ways, too, all of which `chats_of` reads:

    [{"role": "user", "content": "2 + 2?"}]
    [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]     content parts
    [{"from": "human", "value": "2 + 2?"}]                                  ShareGPT
    '[{"role": "user", ...}]', or ['{"role": "user", ...}']                 JSON texts
    "\\n\\nHuman: 2 + 2?\\n\\nAssistant: 4"                                 one text, see `_TURNS`
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .arrow_compute import pc
from .columns import MESSAGES, content_ids, is_list, is_text
from .errors import DataError
from .groups import Groups
from .json_text import as_utf8, list_in

# --- What a model wrote after its thoughts, in the forms of all families --------------
# A template may open the thought itself, as that of DeepSeek-R1 does: a closing tag alone ends one.
# A thought that is not closed was cut off: nothing of it is an answer.

TAGS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, GLM
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
    ("<thinking>", "</thinking>"),  # Claude's form
    ("<THINK>", "</THINK>"),
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("<reasoning>", "</reasoning>"),  # recipes of GRPO
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<unused94>thought", "<unused95>"),  # Gemma, as the next one
    ("<|channel>thought", "<channel|>"),
    ("Here is my thought process:", "Here is my response:"),  # Granite 3.2
    ("Here's my thought process:", "Here's my response:"),
)
"""What opens and closes a thought; of gpt-oss (harmony) all but the last channel `final` is one."""
_CHANNEL = "<|channel|>"
_FINAL = re.compile(r"<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?(?:<\|message\|>|\Z)")
_STRIPPED = re.compile(r"\Aanalysis.*assistantfinal", re.DOTALL)
"""A response of gpt-oss without its special tokens, as servers give it."""
_CUT_OFF = re.compile(r"analysis(?=[A-Z])")
"""The same where no final channel follows: no word goes on like that."""
_OPENS_ANSWER = re.compile(r"\s*<\|(?:START_RESPONSE|response)\|>")
"""What some models write between a thought and the answer."""


def final_channel(text: str) -> str | None:
    """A response in the harmony format from its last channel `final` on; others as they are.

    None if it has channels, and none is `final`.

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
    """What follows the last thought of a response; None inside one that is not closed.

    >>> after_thoughts("7?</think>It is 12."), after_thoughts("[THINK]7?")
    ('It is 12.', None)
    """
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


def answer_part(text: str) -> str | None:
    """What a response says after its thoughts in any of these forms; None where one is cut off."""
    final = final_channel(text)
    return None if final is None else after_thoughts(final)


def without_thoughts(text: str) -> str:
    """As `answer_part`, but empty where there is none."""
    return answer_part(text) or ""


def continued(prefix: str | None, responses: Sequence[str | None]) -> list[str | None]:
    """Responses after what their prompts end with, where they do not repeat it.

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

_NAMES = {
    "system": "system",
    "developer": "developer",
    "user": "user human prompter",
    "assistant": "assistant gpt model bot chatbot chatgpt bard bing ai function_call tool_call",
    "tool": "tool function function_response observation ipython tool_response tool_result",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
"""How datasets write roles, in small letters, and what they are; others stay as they are."""
_KEYS = (("role", "content"), ("from", "value"))
"""The two fields of messages: some may have the first pair, and others the second."""
_MESSAGES_AS_TEXT = re.compile(r"\s*\[\s*(?:\]|\{.*?[\"'](?:role|from)[\"'])", re.DOTALL)
_TEXT_PARTS = (None, "text", "input_text", "output_text")
_ASKING = frozenset({"system", "developer", "user", "tool"})
_CALLS = ("tool_calls", "function_call")
_GLAIVE = re.compile(r"(?:\A|\n\n)(SYSTEM|USER|ASSISTANT|FUNCTION RESPONSE):")
_TURNS = [
    _GLAIVE,  # only where each answer ends with `<|endoftext|>`
    re.compile(r"(?:\A|\n\n)(Human|Assistant):"),  # Anthropic's hh-rlhf
    re.compile(r"### (Human|Assistant):"),  # Guanaco
    re.compile(r"<\|im_start\|>(\w+)(?:\n|\Z)"),  # ChatML, as Qwen's
    re.compile(r"<\|(system|user|assistant)\|>"),  # Zephyr, Phi
    re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>"),  # Llama 3
    re.compile(r"<start_of_turn>(\w+)(?:\n|\Z)"),  # Gemma
]
"""What a turn begins with in dialogues that are one text, a form each, and who says it."""
_BEGIN = re.compile(r"\s*(?:<\|begin_of_text\|>|<bos>|<s>)?\s*")
_END = re.compile(r"(?:(?:<\|(?:im_)?e\w{2,10}\|>|<(?:end_of_turn|eos)>|</s>)\s*){1,4}\Z")

# Where templates put a prompt in texts that have lost their special tokens, or never had any.
_ASKS = re.compile(
    r"(?s)(?:\s|<s>)*(?:(?:(?:system|user)\n.*)?user\n"  # Qwen, Llama 3, Gemma
    r"|\[INST\](?:.*(?:<</SYS>>|\[INST\]))?"  # Llama 2, Mistral
    r"|(?:Below is an instruction.*)?### Instruction:)\s*"  # Alpaca
)
_ANSWERS = re.compile(r"\s*(?:(?:assistant|model)\n|\[/INST\]|### Response:)")

# Notes, which have a line each at the end of a run.
PROMPT_CUT = "prompt_cut"
PROMPT_ALONE = "prompt_alone"
DIALOGUES = "dialogues"

# A prompt that no answer begins with by itself, as that to `Hello!` may; and lines of programs and
# proofs, which would not run without it. Prose that ends with a colon begins with a capital.
_LONG = re.compile(r"\s*\S+\s+\S+\s+\S|.{20}", re.DOTALL)
_CODE = re.compile(
    r"```|^[ \t]*(?:async|class|def|from|import|#include|SELECT)\s"
    r"|^[ \t]*[^A-Z\s].*:[ \t]*$|(?:[{;]|:=|\bby)[ \t]*$",
    re.MULTILINE,
)


class Message(NamedTuple):
    """A message of a chat."""

    role: str | None
    content: str | None  # content parts are joined by line breaks
    calls: bool  # whether it has calls of tools


class Chats(NamedTuple):
    """The chats of a column."""

    chats: list[list[Message]]  # empty where a row has none
    # of messages and their content parts what else they have, such as `tool_calls` or `image`, with
    # the first row that has it
    unseen: dict[str, int]
    dialogues: int = 0  # how many were dialogues in one text


def chats_of(column: pa.Array) -> Chats | None:
    """The chats of a column, however the dataset writes them; None if it has none.

    Texts are chats if one of them is a JSON list of messages, or a dialogue; among dialogues, each
    other text is what a user says.
    """
    kind, dialogues = column.type, 0
    if is_text(kind) or (is_list(kind) and is_text(kind.value_type)):
        rows, dialogues = _from_texts(column.to_pylist())
    else:
        rows = column.to_pylist() if _has_messages(kind) else None
    if rows is None:
        return None
    unseen = dict[str, int]()
    chats = [_chat(messages, row, unseen) for row, messages in enumerate(rows)]
    return Chats(chats, unseen, dialogues)


def _chat(
    messages: Sequence[Mapping[str, Any] | None] | None, row: int, unseen: dict[str, int]
) -> list[Message]:
    """The messages of a chat; its developer is the system if no other message is the system's."""
    chat = [_message(each or {}, row, unseen) for each in messages or ()]
    # Whether it is an answer has to be known; before it, others may speak.
    if chat and chat[-1].role not in {*_NAMES, None}:
        found = f"the role of the last message is {chat[-1].role!r}"
        raise DataError(found, f"write it as one of: {', '.join(_ROLES)}")
    if any(each.role == "system" for each in chat):
        return chat
    return [each._replace(role="system") if each.role == "developer" else each for each in chat]


def _has_messages(kind: pa.DataType) -> bool:
    if not (is_list(kind) and pa.types.is_struct(kind.value_type)):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return any(
        is_text(fields.get(role, pa.null())) and _are_contents(fields.get(content, pa.int8()))
        for role, content in _KEYS
    )


def _are_contents(kind: pa.DataType) -> bool:
    """Whether values are texts, or lists of content parts."""
    is_parts = is_list(kind) and pa.types.is_struct(kind.value_type)
    if is_parts:
        return bool(kind.value_type.get_field_index("text") >= 0)
    return is_text(kind) or pa.types.is_null(kind)


def _message(written: Mapping[str, Any], row: int, unseen: dict[str, int]) -> Message:
    """Read a message, and note what it has beside its text."""
    role, content = max(_KEYS, key=lambda k: (isinstance(written.get(k[0]), str), k[0] in written))
    others = [(name, value) for name, value in written.items() if name not in (role, content)]
    parts = written.get(content)
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            others += [(name, part[name]) for name in part if name not in ("type", "text")]
            if part.get("text") is None and part.get("type") not in _TEXT_PARTS:
                others.append((str(part["type"]), True))
    for name, value in others:
        if value not in (None, [], {}):
            unseen.setdefault(name, row)
    by, calls = written.get(role), any(written.get(each) for each in _CALLS)
    if not isinstance(by, str):
        return Message(None, _text_of(parts), calls)
    return Message(_role(by), _text_of(parts), calls)


def _role(name: str) -> str:
    return _ROLES.get(re.sub(r"[\s-]+", "_", name.strip().lower()), name)


def _text_of(content: Any) -> str | None:
    """The content of a message, a text or a list of parts, as text."""
    if content is None:
        return None
    parts = [{"text": content}] if isinstance(content, str) else content
    try:
        texts = [part["text"] for part in parts if part and part.get("text") is not None]
        return as_utf8("\n".join(texts))
    except (TypeError, AttributeError):
        found = f"the content of a message is {str(content)[:60]!r}"
        raise DataError(found, "give texts, or lists of parts") from None


def last_of(chat: Sequence[Message], role: str) -> str | None:
    """Content of a chat's last message.

    None where it is of another role, or calls tools and says nothing.
    """
    last = chat[-1] if chat else None
    if last is None or last.role != role:
        return None
    return None if last.calls and not (last.content or "").strip() else last.content


def responses_in(texts: pa.Array) -> pa.Array:
    """Texts, string[M], where that of a whole chat, as JSON, is its last message's.

    A response may be JSON, too, but no list of messages that begins with the user's or the
    system's. Each text is looked at alone, so that none depends on those beside it.
    """
    return pa.array([text and _response_in(text) for text in texts.to_pylist()], pa.string())


def _response_in(text: str) -> str | None:
    chat = _chat_in(text)
    try:
        messages = _chat(chat, 0, {})
    except DataError:  # Its contents are no texts.
        return text
    begins = messages[0].role if messages else None
    return last_of(messages, "assistant") if begins in _ASKING else text


def texts_of_contents(contents: pa.Array) -> pa.Array | None:
    """The contents of messages, texts or lists of parts, as texts, string[M]; None if others."""
    if not _are_contents(contents.type):
        return None
    if not is_list(contents.type):
        return contents.cast(pa.string())
    return pa.array([_text_of(content) for content in contents.to_pylist()], pa.string())


def _from_texts(values: list[Any]) -> tuple[list[Any] | None, int]:
    """Chats that are texts, if there are any, and how many are dialogues: JSON, one for each chat
    or for each message, or dialogues and questions."""
    chats = [_chat_in(value) if value else None for value in values]
    if not any(chats):
        found = [_dialogue_in(value) if isinstance(value, str) else None for value in values]
        plain = ([{"role": "user", "content": value}] for value in values)
        rows = [chat or text for chat, text in zip(found, plain, strict=True)]
        return (rows if any(found) else None), sum(map(bool, found))
    for chat, value in zip(chats, values, strict=True):
        if chat is None and value:
            what = f"some texts are chats, but not this one: {str(value)[:60]!r}"
            raise DataError(what, "write all of them as chats, or none")
    return chats, 0


def _dialogue_in(text: str) -> list[dict[str, str]] | None:
    """The messages of a dialogue that is one text; None if it is none, or nobody answers. An answer
    that is only begun, as prompts of base models end, is no message."""
    text = _BEGIN.sub("", text, count=1)
    form = next((each for each in _TURNS if each.match(text)), None)
    parts = form.split(text)[1:] if form else []
    roles, turns = list(map(_role, parts[::2])), [each.rstrip() for each in parts[1::2]]
    answers = [turn for role, turn in zip(roles, turns, strict=True) if role == "assistant"]
    if not answers or roles[0] == "assistant":
        return None
    if form is _GLAIVE and not all(each.endswith("<|endoftext|>") for each in answers if each):
        return None
    contents = [_END.sub("", each).strip() for each in turns]
    chat = [{"role": by, "content": text} for by, text in zip(roles, contents, strict=True)]
    return chat if contents[-1] else chat[:-1]


def _chat_in(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a chat as JSON text, or as one for each message; None if it is none."""
    text = value if isinstance(value, str) else f"[{','.join(map(str, value))}]"
    messages = list_in(text) if _MESSAGES_AS_TEXT.match(text) else None
    known = messages is not None and all(
        isinstance(each, dict)
        and any(set(keys) <= set(each) for keys in _KEYS)
        and all(isinstance(each.get(role) or "", str) for role, _ in _KEYS)
        for each in messages
    )
    return messages if known else None


def prompt_ids(
    prompts: pa.Array, references: pa.Array | None, others: Sequence[Sequence[Any]] | None = None
) -> pa.Array:
    """Ids of prompts, string[N]: content hash of all roles and contents, then the reference."""
    last = [None] * len(prompts) if references is None else references.to_pylist()
    more = (
        [()] * len(prompts)
        if others is None
        else [(json.dumps(row, sort_keys=True, default=repr),) for row in others]
    )
    return content_ids(
        (*chain.from_iterable((m["role"], m["content"]) for m in prompt or ()), reference, *other)
        for prompt, reference, other in zip(prompts.to_pylist(), last, more, strict=True)
    )


def fill(template: str, values: Mapping[str, pa.Array | str]) -> pa.Array:
    r"""The template with each placeholder replaced, string[N]; null where a value is null.

    All placeholders are filled in at once: one that occurs in a value is plain text.

    >>> fill("{a}, {b}: \\boxed{Yes}", {"{a}": pa.array(["{b}"]), "{b}": pa.array(["x"])})[0]
    <pyarrow.StringScalar: '{b}, x: \\boxed{Yes}'>
    """
    parts = re.split("|".join(f"({re.escape(name)})" for name in values), template)
    pieces = [values.get(part, part) for part in parts if part]
    # One array at least, so that the result is an array even without a placeholder.
    return pc.binary_join_element_wise(*pieces, "")


def prompts_of(chats: Sequence[Sequence[tuple[str, str | None]]]) -> pa.Array:
    """MESSAGES[N] from roles and contents; null where there are none."""
    messages = [
        [{"role": role, "content": content} for role, content in chat] or None for chat in chats
    ]
    return pa.array(messages, MESSAGES)


def last_user_message(prompts: pa.Array) -> pa.Array:
    """Content of each prompt's last user message, string[N]; null where there is none."""
    asked = [
        [each["content"] for each in prompt or () if each["role"] == "user"]
        for prompt in prompts.to_pylist()
    ]
    return pa.array([contents[-1] if contents else None for contents in asked], pa.string())


def without_prompts(
    responses: pa.Array, prompts: pa.Array, groups: Groups
) -> tuple[pa.Array, Counter[str]]:
    """Responses without the prompt, one for each group, that all of the group begin with, and notes
    on how many begin so, and how many say no more."""
    texts, prompts_G = responses.to_pylist(), prompts.to_pylist()
    rests = [
        None if text is None else _after(prompts_G[group] or (), text)
        for text, group in zip(texts, groups.codes_N, strict=True)
    ]
    pairs = zip(texts, rests, strict=True)
    whole_N = np.array([text is not None and rest is None for text, rest in pairs], bool)
    begin_N = (groups.sum(whole_N) == 0)[groups.codes_N]
    cut = [at for at in np.flatnonzero(begin_N) if rests[at]]
    for at in cut:
        texts[at] = rests[at]
    for row, rest in enumerate(rests):
        if rest == "" and _dialogue_in(texts[row] or ""):  # Its answer is empty.
            texts[row], rests[row] = None, None
    notes = +Counter({PROMPT_CUT: len(cut), PROMPT_ALONE: rests.count("")})  # without zeros
    return pa.array(texts, pa.string()), notes


def _after(prompt: Sequence[Mapping[str, str | None]], text: str) -> str | None:
    """What a response says after its prompt, be it all of the dialogue or the last message of the
    user; None if it does not begin with it, empty if it is no more than that or its end."""
    chat, own = _spoken(_dialogue_in(text) or ()), _spoken(prompt)
    if chat and (chat == own or (chat[:-1] == own and chat[-1][0] == "assistant")):
        return chat[-1][1] if chat != own else ""
    *earlier, asked = [(each["content"] or "").strip() for each in prompt] or [""]
    if not asked or prompt[-1]["role"] != "user":
        return None
    whole = text.strip()
    if whole == asked or ("\n" in whole and asked.endswith(whole)):
        return ""
    before, found, rest = text.partition(asked)
    answers = _ANSWERS.match(rest)
    if answers and _ASKS.fullmatch(before):
        return _END.sub("", rest[answers.end() :]).strip()
    if not found or before.split() not in ([], " ".join(earlier).split()):
        return None
    ends = asked[-1] in ".?!:…。？！：" or rest[:1] == "\n"  # Else a word or sentence may go on.
    return rest.strip() if ends and _LONG.match(asked) and not _CODE.search(asked) else None


def answer_two_prompts(prompts: pa.Array, columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Which rows have a chat that begins with their prompt, and one that begins with another."""
    if len(columns) < 2 or not is_chat(prompts.type):
        return np.zeros(len(prompts), bool)
    turns = [[_spoken(prompt or ())] for prompt in prompts.to_pylist()]
    for cells in columns:
        chats = cells.to_pylist() if _has_messages(cells.type) else []
        if is_text(cells.type):
            chats = [text and (_dialogue_in(text) or _chat_in(text)) for text in cells.to_pylist()]
        for row, messages in enumerate(chats):
            with suppress(DataError):  # Its contents are no texts.
                chat = _chat(messages, row, {})
                if last_of(chat, "assistant") and chat[:-1]:
                    turns[row].append(_spoken([each._asdict() for each in chat[:-1]]))
    return np.array([own in found != [own] * len(found) for own, *found in turns], bool)


def _spoken(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str | None, str]]:
    """Without the system's, which a recipe may have added."""
    turns = [(each["role"], (each["content"] or "").strip()) for each in messages]
    return [turn for turn in turns if turn[0] != "system"]


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
    """Refuse a column that holds no chats, or chats of which the policy would not see a part."""
    right = "prompt_template_mapper makes prompts: lists of messages with role and content"
    kind = prompts.type
    if pa.types.is_null(kind):
        return
    if not is_chat(kind):
        raise DataError(f"column 'prompt' is {kind}", right)
    messages = pc.list_flatten(prompts)
    for field in kind.value_type:
        is_seen = field.name in ("role", "content")
        if not is_seen and pc.struct_field(messages, field.name).null_count < len(messages):
            raise DataError(
                f"messages in 'prompt' have a '{field.name}', which the policy would not see", right
            )
