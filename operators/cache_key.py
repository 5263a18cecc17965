"""What decides an operator's result, as text: two parts of the key under which results are kept.

key of a step = hash(key of the step before it, cache_key_json(operator), code_version(class))
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from uuid import uuid4

from .code_digest import code_digest
from .operator import Operator


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

    An operator may state its version itself (`code`), which then counts instead. A class whose
    source is in no file, as in a notebook, gets a new version in every process.
    """
    if operator_class.code is not None:
        return operator_class.code
    bases = [base for base in operator_class.__mro__ if issubclass(base, Operator)]
    code = code_digest(base.__module__ for base in bases)
    if code is None:
        return uuid4().hex
    digest = hashlib.sha256(code.encode())
    for name in operator_class.depends_on:
        with suppress(PackageNotFoundError):  # An optional one: without it there are no results.
            digest.update(f"{name}=={version(name)}".encode())
    return digest.hexdigest()
