"""Building the embedded policy into a folder: whole or not at all, and only where it is needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...operators import RejuiceError
from .demonstrations import Lessons
from .model import SIZE, Size
from .sft import LESSONS, SCHEDULE, Schedule, warm_start

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

RECORD = "build.json"
"""Says of a built folder: `seed`, `made_of` (a digest of code and settings), and `weights`
(a digest, by which weights that were trained since are told from those that were built)."""

_WEIGHTS = "model.safetensors"
_CODE = Path(__file__).parent, Path(__file__).parents[2] / "pipelines" / "demo"


def build(
    folder: Path,
    seed: int = 0,
    *,
    overwrite: bool = False,
    size: Size = SIZE,
    lessons: Lessons = LESSONS,
    schedule: Schedule = SCHEDULE,
    advance: Callable[[int], None] = lambda shown: None,
) -> bool:
    """Warm-start a policy and save it in Hugging Face format.

    Args:
        folder: where it goes.
        seed: another seed, another policy of the same kind.
        overwrite: replace another policy that was built there.
        size: of the model.
        lessons: what it is shown.
        schedule: how fast it learns.
        advance: told how many demonstrations more have been shown.

    Returns:
        False where this policy was there already.

    Raises:
        RejuiceError: the folder holds something else, a library is missing, or the disk is full.
    """
    folder = folder.resolve()
    made_of = _digest(size, lessons, schedule)
    if _is_built(folder, seed, made_of):
        return False
    _check_free(folder, overwrite)
    _check_libraries()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as hidden:
            new = Path(hidden, "new")
            policy = warm_start(
                seed, size=size, lessons=lessons, schedule=schedule, advance=advance
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
        # Whatever it is, it may be dear to somebody: not even with --overwrite.
        raise RejuiceError(f"{folder} holds something else", "name a folder that is new or empty")
    if not overwrite:
        raise RejuiceError(f"{folder} holds another policy", "name another folder, or --overwrite")


def _check_libraries() -> None:
    try:
        from torch.optim import Muon
        from transformers import Qwen2ForCausalLM
    except ImportError as error:
        raise RejuiceError(
            f"the policy is built with torch and transformers: {error}",
            "pip install 'rejuice[policy]'",
        ) from error
    del Muon, Qwen2ForCausalLM


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


def _digest(size: Size, lessons: Lessons, schedule: Schedule) -> str:
    """Of all that decides what is built, but for the seed and the libraries."""
    code = [file.read_bytes() for place in _CODE for file in sorted(place.glob("*.py"))]
    return _sha256(b"\0".join([*code, repr((size, lessons, schedule)).encode()]))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
