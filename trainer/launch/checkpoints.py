"""The checkpoints of a run, and a policy of one as a Hugging Face folder.

verl saves weights in the shards of its training processes; `merge` turns them into a folder that
vLLM, transformers and `policy_rollout_mapper` load.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...operators.errors import RejuiceError
from ...operators.sampling.engines import policy_path
from ...pipelines.dataset.files import filled
from ...pipelines.recipe.recipe import Recipe
from ...pipelines.recipe.steps import is_sampling
from ...pipelines.recipe.trust import read_stored
from ..cpu.fork_server import PYTHON
from ..saved import best, folder_of, steps
from ..saved import fix_latest as fix_latest
from ..saved import last as last
from ..saved import prune as prune
from .failure import last_error

NEEDS_TRUST = 3
"""Exit status of the merger where unpickling the weights may run code."""
_MEGATRONS = Path("model", "huggingface")
"""Where a checkpoint of Megatron has the policy as a Hugging Face folder already."""
_MERGER = [*PYTHON, "-m", "rejuice.trainer.launch.merge"]


class NeedsTrustError(RejuiceError):
    """Files of a checkpoint hold other objects than tensors: unpickling them may run code."""

    files: tuple[Path, ...] = ()  # with the weights


def export(
    run: Path,
    path: Path,
    step: int | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    trusted: bool = False,
    overwrite: bool = False,
) -> int:
    """Write the policy of a checkpoint as a Hugging Face folder; its step is returned.

    In float32, if that is what it was trained and sampled in, else in bfloat16. What LoRA has
    trained is added to the weights, or written as PEFT's adapter, as `train.lora.export` says. By
    default it is the newest, or the best by `train.keep`. Of one that is `trusted`, objects of any
    class are unpickled. By the `variables` of the run, what merges finds its fork server.
    """
    there = steps(run)
    if not there:
        right = "give the folder of a run that has saved one" if run.is_dir() else ""
        raise RejuiceError(f"{run} holds no checkpoint", right or "there is no such folder")
    recipe = read_stored(run / "recipe.yaml", run)
    if step is None:
        found = best(run, recipe.head.train) if recipe.head.train else None
        step = found.step if found else there[-1]
    if step not in there:
        listed = ", ".join(map(str, there))
        raise RejuiceError(f"{run} has no checkpoint of step {step}", f"it has those of {listed}")
    actor = folder_of(run, step) / "actor"
    whole = actor / _MEGATRONS
    with filled(path, overwrite=overwrite) as made:
        if any(whole.glob("*.safetensors")):
            shutil.copytree(whole, made, dirs_exist_ok=True)
        else:
            words = [*_options(recipe), *(["--trusted"] if trusted else [])]
            _merge(words, actor, made, variables or {})
    return step


def _merge(options: Sequence[str], actor: Path, target: Path, variables: Mapping[str, str]) -> None:
    # The merger needs no accelerator, even if the policy was trained on one.
    modules = "rejuice.trainer.verl.plugin,rejuice.trainer.cpu.platform"
    here = {"VERL_USE_EXTERNAL_MODULES": modules, "VERL_PLATFORM": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        source = _without_attention(actor, Path(folder))
        done = subprocess.run(
            [*_MERGER, "--local_dir", str(source), "--target_dir", str(target), *options],
            env={**os.environ, **variables, **here},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        if done.returncode == NEEDS_TRUST:
            found = f"{actor} holds other objects than tensors, and unpickling them may run code"
            error = NeedsTrustError(found, "trust it only if you trust whoever made it")
            error.files = tuple(sorted(actor.glob("*.pt")))
            raise error
        found = last_error(done.stderr) or f"exit status {done.returncode}"
        raise RejuiceError(f"the checkpoint could not be merged: {found}", where=str(actor))


def _options(recipe: Recipe) -> list[str]:
    config = recipe.head.train
    models = [getattr(x.operator, "model", "") for x in recipe.steps if is_sampling(x.operator)]
    policy = (config.policy if config else None) or next(iter(models), "")
    if config is None or not policy:
        raise RejuiceError("it trains no policy", "give a training run", where=str(recipe.path))
    dtype = "float32" if config.profile == "cpu" else "bfloat16"
    export = config.lora.export if config.lora else "merged"
    return ["--policy", policy_path(str(policy)), "--dtype", dtype, "--export", export]


def _without_attention(actor: Path, folder: Path) -> Path:
    """The name of the training attention exists only in training."""
    for each in actor.iterdir():
        if each.name != "huggingface":
            (folder / each.name).symlink_to(each.resolve())
    shutil.copytree(actor / "huggingface", folder / "huggingface")
    path = folder / "huggingface" / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config.pop("attn_implementation", None)
    path.write_text(json.dumps(config, indent=2), "utf-8")
    return folder
