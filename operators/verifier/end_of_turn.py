r"""Where a response ends, and what a policy wrote beyond it.

A policy whose sampling does not stop goes on after its end token, or with another question of its
own. What it writes there answers nothing that it was asked.
"""

from __future__ import annotations

import re

# Tokens that end a turn (ChatML, GPT-2, Llama, Gemma, Phi, DeepSeek, harmony, EXAONE, Seed-OSS,
# Command A, MiniMax, Granite), or begin the next one.
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end_of_text|end|return|eot|eom|role_end|endofturn)\|>"
    r"|<\|(?:END_RESPONSE|END_OF_TURN_TOKEN)\|>|\[\|endofturn\|\]|\[EOS\]|\[e~\[|<seed:eos>|<eos>"
    r"|</s>|<end_of_turn>|<｜end▁of▁sentence｜>"
    r"|(?<=\S)\s*(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|(?:user|observation)\|>)"
)
# Ticks, the end of a proof, and pictures say nothing about the answer before them.
_MARK = re.compile("[\u220e\u2611\u2705\u2713\u2714\u2728\u2b50\ufe0f\U0001f300-\U0001faff]")
_NEXT_QUESTION = re.compile(r"\n[ \t#*]*(?:Question|Problem|Q)[ \t*]*:")
_ANSWERED = re.compile(
    r"####\s*[^\s#]|\\(?:boxed|fbox)\s*\{[^}]|\b[Aa]nswer(?: is|:)\**\s*[^\s*]|(?:^|\n)A:[ \t]*\S"
)


_ITEM = re.compile(r"[1-9]\d?")
_ITEM_ENDS = ".．、)）"


def begins_item(text: str, start: int, end: int) -> bool:
    """Whether a number is the `4.` of a list item after `3.`, where a response was cut off."""
    if text[end : end + 1] not in tuple(_ITEM_ENDS) or not _ITEM.fullmatch(text, start, end):
        return False
    line = text.rfind("\n", 0, start) + 1
    if not line or text[line:start].strip(" \t*#"):
        return False
    previous = rf"^[ \t*#]*{int(text[start:end]) - 1}[{_ITEM_ENDS}](?!\d)"
    return bool(re.search(previous, text[:line], re.MULTILINE))


def own_text(response: str) -> str:
    """A response up to its end token, or to a question of its own after its answer."""
    t = response if response.isascii() else _without_marks(response)
    # A search for one character takes a hundredth of the time of a search for a pattern.
    marked = "|" in t or "_" in t or "｜" in t
    marked = marked or ("/" in t and "</s>" in t) or ("<" in t and "eos>" in t)
    marked = marked or ("[" in t and ("[E" in t or "[e~" in t))
    if marked and (end := _TURN_ENDS.search(t)):
        t = t[: end.start()]
    if ("Q" in t or ("P" in t and "Problem" in t)) and _NEXT_QUESTION.search(t):
        answered = _ANSWERED.search(t)
        question = _NEXT_QUESTION.search(t, answered.end()) if answered else None
        return t[: question.start()].rstrip() if question else t
    return t


def _without_marks(text: str) -> str:
    end = len(text)
    while end and (text[end - 1].isspace() or _MARK.match(text, end - 1)):
        end -= 1
    return text[:end]
