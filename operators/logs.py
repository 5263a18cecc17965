"""Loggers whose lines have no secret in them, and nothing that could steer a terminal."""

from __future__ import annotations

import html
import json
import logging
import os
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

# --- Text that does not steer a terminal ----------------------------------------------

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format (bidi, zero-width) and surrogate characters, and separators of lines."""
_SHORT = {"\n": "\\n", "\t": "\\t"}
_MAY_BE_HIDDEN = re.compile(r"[^ -~]")


def visible(text: str, *, one_line: bool = False) -> str:
    r"""A text with what cannot be seen as escapes, such as `\u001b`."""
    return _MAY_BE_HIDDEN.sub(lambda found: _shown(found[0], one_line), text)


def _shown(character: str, one_line: bool) -> str:
    if character in _SHORT:
        return _SHORT[character] if one_line else character
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# --- Texts without the secrets of this process ----------------------------------------
# A server may answer with what it was sent, such as the header with the key. `know` is called where
# a secret is resolved, and `redact` where text of others arrives, and where text is printed or
# logged.
#
# A secret is found as it is, escaped as in JSON, URLs and HTML, in hexadecimal, and in base64, also
# within a longer text such as `user:password`. One of fewer than `SHORTEST` characters is not
# looked for: `EMPTY`, or `x`, is a part of texts that have nothing to do with it.

SHORTEST = 8  # characters that a secret must have at least
REDACTED = "[redacted]"  # what a secret is replaced by; within a string of JSON or HTML, too
_NAMES = (
    "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "DASHSCOPE_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "OPENAI_API_KEY", "RAY_AUTH_TOKEN", "SK",
    "SWANLAB_API_KEY", "WANDB_API_KEY",
)  # fmt: skip
"""Environment variables in which the libraries that are used here look for a secret."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:key|token|secret|passw(?:or)?d|credentials?|authorization)$", re.IGNORECASE
)
_ESCAPES = b"bfnrtu"  # letters that JSON has after a backslash
_BACKSLASH = 0x5C

_known: dict[str, None] = {}


def know(secret: str | None) -> None:
    """Redact a secret from now on, unless it is too short."""
    if secret and len(secret.strip()) >= SHORTEST:
        _known[secret.strip()] = None


def know_named(fields: Any) -> None:
    """Know the values of the environment variables that a part of a recipe names: `api_key_env` of
    a server, and of `environment` of a program what is named like a secret."""
    if isinstance(fields, Mapping):
        for name, value in fields.items():
            if name == "api_key_env" and isinstance(value, str):
                know(os.environ.get(value))
            elif name == "environment" and isinstance(value, (list, tuple)):
                named = (each for each in value if isinstance(each, str))
                for each in filter(_SECRET_NAME.search, named):
                    know(os.environ.get(each))
            else:
                know_named(value)
    elif isinstance(fields, (list, tuple)):
        for each in fields:
            know_named(each)


def redact(text: str) -> str:
    for form in _forms(_secrets()):
        if form.part in text:
            text = form.in_text.sub(REDACTED, text)
    return text


def redact_bytes(body: bytes) -> bytes:
    """JSON stays JSON."""
    for form in _forms(_secrets()):
        if form.raw_part in body:
            body = form.in_bytes.sub(_unless_escaped, body)
    return body


def _secrets() -> tuple[str, ...]:
    """Not cached: the environment may have changed."""
    found = dict(_known)
    for name in _NAMES:
        found[os.environ.get(name, "").strip()] = None
    for name in _PROXIES:
        user, at, _ = os.environ.get(name, "").rpartition("@")
        if at:
            found[unquote(user.rpartition(":")[2])] = None
    return tuple(each for each in found if len(each) >= SHORTEST)


class _Form(NamedTuple):
    """How a secret may be written."""

    part: str  # the same in all escapes: where this is not, it need not be searched
    raw_part: bytes
    in_text: re.Pattern[str]  # it, with any of its characters escaped
    in_bytes: re.Pattern[bytes]


@lru_cache(maxsize=8)
def _forms(secrets: tuple[str, ...]) -> tuple[_Form, ...]:
    """The longest first: one may be a part of another."""
    found = sorted({each for secret in secrets for each in _written(secret)}, key=len)
    return tuple(map(_form, reversed(found)))


def _written(secret: str) -> Iterator[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    yield secret
    yield raw.hex()
    yield raw.hex().upper()
    # In a longer text it may begin at each of the three bytes that four characters of base64 hold.
    # The characters at both ends depend on what is next to it there.
    for before in range(3):
        bits = 8 * before
        encoded = b64encode(b"\0" * before + raw).decode()
        inner = encoded[-(-bits // 6) : (bits + 8 * len(raw)) // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _form(text: str) -> _Form:
    pattern = "".join(map(_pattern, text))
    part = max(re.findall("[A-Za-z0-9]*", text), key=len)
    raw = pattern.encode("utf-8", "surrogateescape")
    return _Form(part, part.encode(), re.compile(pattern), re.compile(raw))


def _pattern(character: str) -> str:
    """As it is, and as JSON, URLs and HTML write it."""
    if character.isascii() and character.isalnum():
        return character
    code = f"{ord(character):x}"
    raw = character.encode("utf-8", "surrogateescape")
    plain = {character, html.escape(character), json.dumps(character)[1:-1]}
    plain |= {f"&#{ord(character)};", "".join(f"%{byte:02x}" for byte in raw)}
    # JSON within a string of JSON, as proxies send it, has several backslashes.
    more, before = ({"\\" * 4, "\\" * 8}, "") if character == "\\" else (set(), r"\\{0,8}")
    every = [re.escape(each) for each in sorted(plain | more, key=len, reverse=True)]
    every += [rf"\\u{code.zfill(4)}", f"&#x0*{code};"]
    return rf"{before}(?i:{'|'.join(every)})"


def _unless_escaped(found: re.Match[bytes]) -> bytes:
    """What is put in its place: itself, where its first letter belongs to an escape of JSON."""
    body, start = found.string, found.start()
    if body[start] not in _ESCAPES:
        return REDACTED.encode()
    before = start
    while before and body[before - 1] == _BACKSLASH:
        before -= 1
    return found[0] if (start - before) % 2 else REDACTED.encode()


# --- Loggers --------------------------------------------------------------------------


def logger(name: str) -> logging.Logger:
    """For lines with texts of others, such as a server's message. They are made safe here, and not
    where they are shown: every process has handlers of its own."""
    found = logging.getLogger(name)
    if _make_safe not in found.filters:
        found.addFilter(_make_safe)
    return found


def _make_safe(record: logging.LogRecord) -> bool:
    record.msg, record.args = visible(redact(record.getMessage())), None
    return True
