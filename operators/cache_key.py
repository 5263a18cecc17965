"""What decides an operator's result, as text: two parts of the key under which results are kept.

key of a step = hash(key of the step before it, cache_key_json(operator), code_version(class))
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

import xxhash

from .code_digest import code_digest, modules_of
from .named import Named
from .operator import Operator, source_state, source_states

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

    A class may state its version itself (`code`), which then counts instead; its subclasses state
    their own. A class whose source is in no file, as in a notebook, or in a file that was edited
    since, gets a new version in every process.
    """
    own = vars(operator_class).get("code")
    if own is not None:
        return str(own)
    modules = {base.__module__ for base in operator_class.__mro__ if issubclass(base, Operator)}
    code = code_digest(modules)
    if code is None or source_states[operator_class] != source_state(operator_class):
        return uuid4().hex
    digest = hashlib.sha256(code.encode())
    for name in _dependencies(operator_class, modules):
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            digest.update(f"{name}=={version(name)}".encode())
    return digest.hexdigest()


@cache
def part_version(part_class: type[Named]) -> str:
    """The version of the code of a part of an operator, such as a tool, as `code_version`.

    It is what the class states itself, in `code`. Otherwise it is a digest of the module of the
    class, and of those of the classes that it inherits from, up to one that states its own.
    """
    modules, stated = set[str](), None
    for base in part_class.__mro__:
        stated = vars(base).get("code")
        if stated is not None or Named in base.__bases__:
            break
        if issubclass(base, Named):
            modules.add(base.__module__)
    digest = (code_digest(modules) or uuid4().hex) if modules else None
    return " ".join(str(each) for each in (stated, digest) if each is not None)


def file_state(file: Path) -> str:
    """A hash of a file's content; of a large file, its size and modification time."""
    stat = file.stat()
    if stat.st_size > _LARGEST_HASHED:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _dependencies(operator_class: type[Operator], modules: set[str]) -> list[str]:
    """What the operator depends on, and the operators of the modules that it uses."""
    found = set(operator_class.depends_on)
    for name in modules_of(modules) - set(modules):
        for each in list(vars(sys.modules.get(name, object)).values()):
            is_operator = isinstance(each, type) and issubclass(each, Operator)
            if is_operator and each.__module__ == name:
                found.update(each.depends_on)
    return sorted(found)
