"""What a model wrote after its thoughts, in the forms of all families.

| family | thought |
|---|---|
| DeepSeek-R1, Qwen3, QwQ, GLM | `<think>` to `</think>` |
| Magistral | `[THINK]` to `[/THINK]` |
| Kimi | `◁think▷` to `◁/think▷` |
| Seed-OSS | `<seed:think>` to `</seed:think>` |
| Command A | `<|START_THINKING|>` to `<|END_THINKING|>` |
| Sky-T1 | `<|begin_of_thought|>` to `<|end_of_thought|>` |
| Claude's form | `<thinking>` to `</thinking>` |
| EXAONE Deep | `<thought>` to `</thought>` |
| recipes of GRPO | `<reasoning>` to `</reasoning>` |
| Apertus | `<|inner_prefix|>` to `<|inner_suffix|>` |
| Gemma | `<unused94>thought` to `<unused95>`, `<|channel>thought` to `<channel|>` |
| Granite 3.2 | `Here is my thought process:` to `Here is my response:` |
| gpt-oss (harmony) | all but the last channel `final` |

A template may open the thought itself, as that of DeepSeek-R1 does: a closing tag alone ends one.
A thought that is not closed was cut off: nothing of it is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
