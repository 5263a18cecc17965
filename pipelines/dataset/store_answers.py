"""What an error of Arrow with a file in an object store means: its text has the store's answer."""

from __future__ import annotations

import re

_AWS = re.compile(
    r"AWS Error (?P<code>\w+)(?: \(HTTP status \d+\))? during \w+ operation: "
    r"(?P<text>.*?)(?: \(Request.*)?$"
)
_GOOGLE = re.compile(r"google::cloud::Status\((?P<code>\w+): ")
_REFUSED = {
    "ACCESS_DENIED": "the store refuses access",
    "PERMISSION_DENIED": "the store refuses access",
    "INVALID_ACCESS_KEY_ID": "the keys are not valid",
    "SIGNATURE_DOES_NOT_MATCH": "the keys are not valid",
    "UNAUTHENTICATED": "the keys are not valid",
}
"""What a store answers to the wrong keys."""


def is_of_store(error: OSError) -> bool:
    """Whether an error that Arrow raises is a store's answer, or that there was none."""
    message = one_line(error)
    return bool(_AWS.search(message) or _GOOGLE.search(message))


def is_missing_bucket(error: OSError) -> bool:
    """Whether the store has no such bucket."""
    return _code(one_line(error)) == "NO_SUCH_BUCKET"


def meaning_of(error: OSError) -> tuple[str, str]:
    """What the store found wrong, and what to do about it, which may be empty."""
    message = one_line(error)
    code, aws = _code(message), _AWS.search(message)
    if code in _REFUSED:
        keys = "AWS_ACCESS_KEY_ID" if aws else "GOOGLE_APPLICATION_CREDENTIALS"
        return _REFUSED[code], f"check the keys, such as {keys}, and what they may do"
    if code in ("NETWORK_CONNECTION", "UNAVAILABLE"):
        return "the store cannot be reached", "check the network and the endpoint"
    return (aws["text"] or code if aws else message), ""


def one_line(error: Exception) -> str:
    """Its text without line breaks."""
    return " ".join(str(error).split())


def _code(message: str) -> str:
    found = _AWS.search(message) or _GOOGLE.search(message)
    return found["code"] if found else ""
