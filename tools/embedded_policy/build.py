"""Building an embedded policy into a folder: whole or not at all, and only where it is needed."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rejuice.operators import RejuiceError

from .batches import Course
from .lookups import LookupCurriculum
from .model import SIZE, Size
from .sft import CURRICULUM, SCHEDULE, Schedule, warm_start

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

CURRICULA: Mapping[str, Course] = {"embedded": CURRICULUM, "embedded_flow": LookupCurriculum()}
"""What the policies that come with rejuice are trained on, by name."""
RECORD = "build.json"
"""Describes a built folder: `seed`, `made_of` (a digest of code and settings), and `weights`
(a digest: it distinguishes weights that were trained further from those that were built).

The shipped policies keep the `made_of` of the version that built them, see docs/policy.md."""

_WEIGHTS = "model.safetensors"
_CODE = Path(__file__).parent, Path(__file__).parents[2] / "pipelines" / "demo"


def build(
    folder: Path,
    seed: int = 0,
    *,
    overwrite: bool = False,
    size: Size = SIZE,
    curriculum: Course = CURRICULUM,
    schedule: Schedule = SCHEDULE,
    advance: Callable[[int], None] = lambda shown: None,
) -> bool:
    """Warm-start a policy and save it in Hugging Face format.

    Returns:
        False where this policy was there already.

    Raises:
        RejuiceError: the folder holds something else, a library is missing, or the disk is full.
    """
    folder = folder.resolve()
    made_of = _digest(size, curriculum, schedule)
    if _is_built(folder, seed, made_of):
        return False
    _check_free(folder, overwrite)
    _check_libraries()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as hidden:
            new = Path(hidden, "new")
            policy = warm_start(
                seed, size=size, curriculum=curriculum, schedule=schedule, advance=advance
            )
            _save(new, *policy)
            weights = _sha256((new / _WEIGHTS).read_bytes())
            record = {"seed": seed, "made_of": made_of, "weights": weights}
            (new / RECORD).write_text(json.dumps(record, indent=2) + "\n")
            if folder.exists():
                folder.rename(Path(hidden, "old"))
            new.rename(folder)
    except OSError as error:
        raise RejuiceError(f"{folder} cannot be written: {error.strerror or error}") from error
    return True


def _is_built(folder: Path, seed: int, made_of: str) -> bool:
    record = _record(folder)
    weights = folder / _WEIGHTS
    return (
        (record.get("seed"), record.get("made_of")) == (seed, made_of)
        and weights.exists()
        and record.get("weights") == _sha256(weights.read_bytes())
    )


def _record(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):  # none, or one of something else
        found = None
    return found if isinstance(found, dict) else {}


def _check_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if "made_of" not in _record(folder):
        # Whatever it is, somebody may need it: it is not replaced even with --overwrite.
        raise RejuiceError(f"{folder} holds something else", "name a folder that is new or empty")
    if not overwrite:
        raise RejuiceError(f"{folder} holds another policy", "name another folder, or --overwrite")


def _check_libraries() -> None:
    try:
        from torch.distributed import ProcessGroupGloo
        from transformers import Qwen2ForCausalLM
    except ImportError as error:
        raise RejuiceError(
            f"the policy is built with torch and transformers: {error}",
            "pip install 'rejuice[policy]'",
        ) from error
    del ProcessGroupGloo, Qwen2ForCausalLM


def _save(folder: Path, model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer) -> None:
    import torch
    from safetensors import SafetensorError
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a bar for one small file would break ours
    try:
        # Half the size; whoever loads it may compute in float32.
        model.to(torch.bfloat16).save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    tokenizer.save_pretrained(folder)
    # Weights come out for the owner's eyes only; as package data they are everybody's.
    (folder / _WEIGHTS).chmod((folder / "config.json").stat().st_mode)


def _digest(size: Size, curriculum: Course, schedule: Schedule) -> str:
    """Return the digest of all that decides what is built, but for the seed and the libraries."""
    code = [_program(file.read_text("utf-8")) for at in _CODE for file in sorted(at.glob("*.py"))]
    texts = [file.read_text("utf-8") for at in _CODE for file in sorted(at.glob("*.yaml"))]
    return _sha256("\0".join([*code, *texts, repr((size, curriculum, schedule))]).encode())


def _program(source: str) -> str:
    """Return a module's syntax tree without docstrings, which change nothing that is built.

    Comments and line breaks are no part of a tree. `ast.dump` differs between versions of Python,
    as the weights may between those of the libraries.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [each for each in block if not _is_text(each)])
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a string alone: a docstring, of a module, function or constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
