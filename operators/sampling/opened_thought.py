"""Whether a policy's chat template opens its thought, as that of DeepSeek-R1 does.

Its responses then begin inside the thought, and have only the tag that closes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..json_text import parse_json
from ..thoughts import TAGS

_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Tags of transformers around what an assistant wrote, without effect on the text."""
_CHAT = ({"role": "user", "content": "Hi"},)


def opened_thought(folder: str, kwargs: Mapping[str, Any]) -> str | None:
    """The tag that opens a thought at the end of every prompt; None if there is none.

    Args:
        folder: of the policy or its tokenizer. Names of the hub are not looked up.
        kwargs: further arguments of the template.
    """
    template = _template(Path(folder)) if Path(folder).is_dir() else None
    if template is None or not any(opens in template for opens, _ in TAGS):
        return None
    return _opened(template, json.dumps(dict(kwargs), sort_keys=True, default=str))


@lru_cache(maxsize=16)
def _opened(template: str, kwargs: str) -> str | None:
    # What transformers renders templates with, whose import takes seconds.
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda _: ""
    settings: dict[str, Any] = {"add_generation_prompt": True, "bos_token": "", "eos_token": ""}
    settings |= {"tools": None, "documents": None}
    try:
        text = made.from_string(_GENERATION.sub("", template)).render(
            messages=list(_CHAT), **{**settings, **json.loads(kwargs)}
        )
    except Exception:  # Of whatever the template does: sampling reports it.
        return None
    end = text.rstrip()
    return next((opens for opens, _ in TAGS if end.endswith(opens)), None)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _template(folder: Path) -> str | None:
    """The chat template in a folder, where transformers looks for it."""
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text("utf-8")
        found = parse_json((folder / "tokenizer_config.json").read_text("utf-8"))
        template = found.get("chat_template")
        if isinstance(template, list):  # Several, by name.
            template = {each["name"]: each["template"] for each in template}.get("default")
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None
    return template if isinstance(template, str) else None
