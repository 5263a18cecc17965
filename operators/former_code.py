"""The code of rejuice's own files, as it was in the keys of what users had paid for.

Until then the version of a user's resumable operator had the code of the files of rejuice that it
uses, too (see `cache_key.former_code_version`). `former_code.json` is what `parse_code` gave for
them last, at commit 22504f3, and is never written again: from what is there now nobody could tell
how folders were named.

    "groups": [digest, imports]
    "verifier": [digest, imports, own digest, own imports, {name: the import that binds it}]

Names are those within `rejuice.operators`; an import is `module` or, of a package, `package:name`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .source_code import Code, Import

_PACKAGE = "rejuice.operators"
FORMER_CODES = {
    "AgentRolloutMapper": "1",
    "LlmQualityRewardMapper": "eb9d2f23d5bb0a870ee1479b32c79ea36a43fb563db17561a088b3f191c0bfd6",
    "LlmVerifyMapper": "63b4fec72f0eb9bacb7a848da9390c68f0882b179879dff0d3d630c7e9926c8c",
    "PolicyRolloutMapper": "1",
}
"""The `code` of each built-in resumable operator as it was then."""


@cache
def former_code() -> Mapping[str, Code]:
    """What each module of `rejuice.operators` contributed, by name; of a package, with bindings."""
    read = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    # What `from rejuice import operators` starts at is a package without a file.
    return {"rejuice": Code("")} | {_full(name): _code(*entry) for name, entry in read.items()}


def _code(
    digest: str,
    imports: str,
    own_digest: str = "",
    own_imports: str = "",
    bindings: Mapping[str, Any] | None = None,
) -> Code:
    bound = {name: _import(source) for name, source in (bindings or {}).items()}
    return Code(digest, _imports(imports), own_digest, _imports(own_imports), bound)


def _imports(text: str) -> tuple[Import, ...]:
    return tuple(_import(each) for each in text.split(" ") if text)


def _import(text: str) -> Import:
    module, _, name = text.partition(":")
    return Import(_full(module), name or None)


def _full(name: str) -> str:
    return f"{_PACKAGE}.{name}" if name else _PACKAGE
