"""What decides an operator's result, as text: two parts of the key under which results are kept.

key of a step = hash(key of the step before it, cache_key_json(operator), code_version(class))
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

import xxhash

from .code_digest import REJUICE, Code, Import, code_digest, modules_of
from .config import Named
from .operator import Operator, ResumableOperator, source_state, source_states

# --- Former code ----------------------------------------------------------------------
# The code of rejuice's own files, as it was in the keys of what users had paid for.
#
# Until then the version of a user's resumable operator had the code of the files of rejuice that it
# uses, too (see `cache_key.former_code_version`). `former_code.json` is what `parse_code` gave for
# them last, at commit 22504f3, and is never written again: from what is there now nobody could tell
# how folders were named.
#
#     "groups": [digest, imports]
#     "verifier": [digest, imports, own digest, own imports, {name: the import that binds it}]
#
# Names are those within `rejuice.operators`; an import is `module` or, of a package,
# `package:name`.

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
    read = json.loads(Path(__file__).with_name("former_code.json").read_text("utf-8"))
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


# --- Cache key ------------------------------------------------------------------------

_LARGEST_HASHED = 64 << 20  # bytes


def cache_key_json(operator: Operator) -> str:
    """The operator's name and its cache-key fields, as canonical JSON."""
    return json.dumps({operator.name(): operator.cache_key_fields()}, sort_keys=True)


@cache
def code_version(operator_class: type[Operator]) -> str:
    """A digest of the code that an operator uses, so that edited code never finds old results.

    Hashed are the module of the class, the modules of the operator classes that it inherits from,
    and what these import within the same top-level packages (see `code_digest`), together with the
    versions of the distributions in `depends_on`. So an edit of a comment, of a docstring or of
    another operator costs nothing. The version of rejuice is not part of it, because the code
    itself is: a release recomputes the steps whose code it changed, and no others.

    Of a user's resumable operator only the user's own files are hashed, with the version that the
    nearest class of rejuice states that it inherits from: what was paid for is not lost because an
    upgrade has edited or moved files of rejuice.

    A class may state its version itself (`code`), which then counts instead; its subclasses state
    their own. A class whose source is in no file, as in a notebook, or in a file that was edited
    since, gets a new version in every process.
    """
    own = vars(operator_class).get("code")
    if own is not None:
        return str(own)
    if not _is_own_resumable(operator_class):
        return _digest(operator_class, _modules_of_bases(operator_class)) or uuid4().hex
    modules = {name for name in _modules_of_bases(operator_class) if not _is_of_rejuice(name)}
    stated = _nearest_code(operator_class)[1]
    return _digest(operator_class, modules, rejuice={}, stated=stated) or uuid4().hex


@cache
def former_code_version(operator_class: type[Operator]) -> str | None:
    """The version that a user's resumable operator had at commit 22504f3; None: the present one.

    It was a digest of the files of rejuice that the operator uses, too. What these were last is
    known (see `former_code`), so rows that are kept under it are found whatever becomes of them,
    as long as the built-in that the operator extends gives the same results. Not found are rows
    from before an earlier edit of these files; those of an operator that imports
    `rejuice.pipelines` or `rejuice.trainer`; and, once that is moved or not loaded, those of one
    that uses a built-in operator that depends on a distribution.
    """
    if vars(operator_class).get("code") is not None or not _is_own_resumable(operator_class):
        return None
    name, stated = _nearest_code(operator_class)
    if name in FORMER_CODES and stated != FORMER_CODES[name]:
        return None  # A release has changed the results on purpose.
    former = former_code()
    modules = _modules_of_bases(operator_class)
    modules = {name for name in modules if name in former or not _is_of_rejuice(name)}
    return _digest(operator_class, modules, rejuice=former)


@cache
def part_version(part_class: type[Named]) -> str:
    """The version of the code of a part of an operator, such as a tool, as `code_version`.

    It is what the class states itself, in `code`. Otherwise it is a digest of the module of the
    class, and of those of the classes that it inherits from, up to one that states its own.
    """
    modules, stated = _unstated(part_class)
    digest = (code_digest(modules) or uuid4().hex) if modules else None
    return " ".join(each for each in (stated, digest) if each is not None)


def file_state(file: Path) -> str:
    """A hash of a file's content; of a large file, its size and modification time."""
    stat = file.stat()
    if stat.st_size > _LARGEST_HASHED:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _nearest_code(kind: type[Named]) -> tuple[str, str | None]:
    """The name of the nearest base class that states its version, and the version."""
    for base in kind.__mro__:
        if (stated := vars(base).get("code")) is not None:
            return base.__name__, str(stated)
    return "", None


def _unstated(kind: type[Named]) -> tuple[set[str], str | None]:
    """The modules of a class and its base classes up to one that states its version; and that."""
    modules = set[str]()
    for base in kind.__mro__:
        stated = vars(base).get("code")
        if stated is not None:
            return modules, str(stated)
        if Named in base.__bases__:
            break
        if issubclass(base, Named):
            modules.add(base.__module__)
    return modules, None


def _modules_of_bases(operator_class: type[Operator]) -> set[str]:
    """The modules of a class and of all operator classes that it inherits from."""
    return {base.__module__ for base in operator_class.__mro__ if issubclass(base, Operator)}


def _is_own_resumable(operator_class: type[Operator]) -> bool:
    """Whether it is a resumable operator of a user."""
    is_own = not _is_of_rejuice(operator_class.__module__)
    return is_own and issubclass(operator_class, ResumableOperator)


def _is_of_rejuice(module: str) -> bool:
    return module.partition(".")[0] == REJUICE


def _digest(
    operator_class: type[Operator],
    modules: set[str],
    *,
    rejuice: Mapping[str, Code] | None = None,
    stated: str | None = None,
) -> str | None:
    """A digest of the code of an operator, and of the versions of what it depends on.

    Returns:
        Hexadecimal digits; None where the code is in no file.
    """
    code = code_digest(modules, rejuice=rejuice)
    if code is None or source_states[operator_class] != source_state(operator_class):
        return None
    digest = hashlib.sha256((code if stated is None else f"{stated} {code}").encode())
    for name in _dependencies(operator_class, modules, rejuice):
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            digest.update(f"{name}=={version(name)}".encode())
    return digest.hexdigest()


def _dependencies(
    operator_class: type[Operator], modules: set[str], rejuice: Mapping[str, Code] | None = None
) -> list[str]:
    """What the operator depends on, and the operators of the modules that it uses."""
    found = set(operator_class.depends_on)
    for name in modules_of(modules, rejuice=rejuice) - set(modules):
        for each in list(vars(sys.modules.get(name, object)).values()):
            is_operator = isinstance(each, type) and issubclass(each, Operator)
            if is_operator and each.__module__ == name:
                found.update(each.depends_on)
    return sorted(found)
