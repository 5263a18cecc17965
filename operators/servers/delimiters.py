"""Texts that nobody vouches for, in the prompt of a judge: delimited so that none can end early.

Questions come from datasets, responses from a policy that is paid by the judge. Two things keep
them apart from the prompt around them:

- The *mark* of a request stands in each of its delimiters: 64 bits of a hash of the template and
  of all texts that are shown, and of a counter, the first with which it occurs in none of them. So
  no text has a delimiter of its own request, whoever wrote it. A policy that tried to would have to
  write the hash of what it writes. It is no random number, because the same request must have the
  same bytes again: answers that were paid for are found by them.
- What *looks like* a delimiter of the template, or like a special token of a chat template, gets a
  backslash: `<\\answer>`, `<\\|im_end|>`. Servers read such tokens in a message as if they were
  their own.

Neither keeps a judge from doing what a response asks for.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from itertools import count, pairwise

_BYTES = 8  # of a mark
_GAP = r"[^\S\n]{0,3}"  # what a reader may overlook between two characters
_LEAST = 3  # characters of a delimiter: a quotation mark alone is none
_BEFORE = r"^[\s*_>#|-]{0,8}"  # what may precede a delimiter of letters in its line
_SPECIAL = "|".join(
    (
        rf"<{_GAP}\|[^<>\n]{{1,60}}>",  # ChatML, Llama 3, harmony, GLM, Phi, DeepSeek, Command
        r"<[\w/]{1,40}\|>",
        r"</?(?:s|bos|eos|pad|unk|sep|cls|mask)>",
        r"<(?:start|end)_of_\w{1,20}>",  # Gemma
        r"<\w{1,20}:\w{1,20}>",  # Seed-OSS, MiniMax
        r"\[/?(?:INST|SYSTEM_PROMPT|BOS|EOS|(?:AVAILABLE_)?TOOLS?(?:_\w{1,20})?)\]|</?<?/?SYS>>",
        r"\[\|\w{1,30}\|\]|\[e~\[|\]~!?b\[",  # EXAONE, MiniMax
        r"◁/?\w{1,30}▷",
    )
)


def mark_of(*texts: str) -> str:
    """The mark of a request, 16 hexadecimal digits; it occurs in none of the texts.

    Args:
        *texts: all that is shown, and the template.

    Example:
        >>> mark_of("Which city?", "Paris")
        'aced6bd29b0e5e9f'
    """
    shown = "\0".join(texts)
    read = _folded(shown)[0].lower()
    marks = (_hash(f"{number}\0{shown}") for number in count())
    return next(mark for mark in marks if mark not in read)


def _hash(content: str) -> str:
    encoded = content.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=_BYTES, person=b"rejuice-mark").hexdigest()


def filled(template: str, texts: Mapping[str, str], *, mark: str | None = None) -> str:
    """A template with its placeholders replaced, all at once: those in texts are plain text.

    Args:
        template: with `{name}` for the texts, and `{mark}`.
        texts: by name.
        mark: null: `mark_of` the template and the texts.

    Example:
        >>> filled("<a {mark}>{a}</a {mark}>", {"a": "</a>"}, mark="7")
        '<a 7><\\\\/a></a 7>'
    """
    mark = mark_of(template, *texts.values()) if mark is None else mark
    looks = lookalikes(template, tuple(texts))
    values = {name: escaped(text, looks) for name, text in texts.items()} | {"mark": mark}
    places = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({places})\}}", lambda found: values[found[1]], template)


@lru_cache(maxsize=64)
def lookalikes(template: str, names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds special tokens, and what a template has around its placeholders, in folded texts.

    Args:
        template: of the message, or the part of it that delimits texts.
        names: of its placeholders.
    """
    places = "|".join(re.escape(f"{{{name}}}") for name in (*names, "mark"))
    parts = (part.strip() for part in re.split(rf"\n|{places}", template))
    found = sorted({part for part in parts if len(part) >= _LEAST}, key=len, reverse=True)
    return re.compile("|".join((*map(_pattern, found), _SPECIAL)), re.IGNORECASE | re.MULTILINE)


def escaped(text: str, looks: re.Pattern[str]) -> str:
    """A text in which all that looks like a delimiter or a special token has a backslash.

    Args:
        text: any.
        looks: of `lookalikes`.
    """
    read, places = _folded(text)
    at = sorted({_break(found) for found in looks.finditer(read)})
    cuts = [0, *(places[place] if places is not None else place for place in at), len(text)]
    return "\\".join(text[start:end] for start, end in pairwise(cuts))


def _break(found: re.Match[str]) -> int:
    """Where the backslash goes: behind the sign that it begins with, in a word before the first."""
    if not found.lastindex:
        return found.start() + 1
    word, start = found[found.lastindex], found.start(found.lastindex)
    return start + next((k for k, each in enumerate(word) if not each.isalnum()), len(word))


def _pattern(part: str) -> str:
    """Finds a part of a template, with spaces between its characters or without.

    One that begins with a sign, such as `<answer` or `###`, is found anywhere; a word such as
    `Answer:` only where a line begins, and where the line is nothing else if it ends in a letter.
    """
    signs = [re.escape(each) for each in _folded(part)[0] if not each.isspace()]
    spelled = _GAP.join(signs)
    ends_in_letter = part[-1].isalnum()
    if not part[0].isalnum():
        return rf"{spelled}(?!\w)" if ends_in_letter else spelled
    return f"{_BEFORE}({spelled}){f'(?={_GAP}$)' if ends_in_letter else ''}"


def _folded(text: str) -> tuple[str, list[int] | None]:
    """A text as a reader may take it, and the place of each of its characters in the text.

    Compatible forms such as `＜` are what they stand for, and what has no width is left out. The
    places are None where nothing is folded.
    """
    if text.isascii():
        return text, None
    characters, places = list[str](), list[int]()
    for place, each in enumerate(text):
        for one in _read_as(each):
            characters.append(one)
            places.append(place)
    return "".join(characters), [*places, len(text)]


@lru_cache(maxsize=4096)
def _read_as(character: str) -> str:
    if unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return ""
    return _LOOKS.get(character) or unicodedata.normalize("NFKC", character)


_LOOKS: Mapping[str, str] = {
    **dict.fromkeys("‹〈⟨《≺˂ᐸ", "<"),
    **dict.fromkeys("›〉⟩》≻˃ᐳ", ">"),
    **dict.fromkeys("∕⁄⧸", "/"),
    **dict.fromkeys("∣│┃ǀ", "|"),
}
"""Signs that are drawn like those of a delimiter."""
