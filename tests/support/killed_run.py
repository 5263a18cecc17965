"""The folder of a training run as `kill -9` leaves it."""

import json
import os
import shutil


def killed_while_saving(run, folder, step):
    """A copy of a run's folder, as if it had been killed while it saved the checkpoint of `step`.

    Half of that checkpoint is there; nothing else of the step is.
    """
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "steps" / f"{step:06d}")
    newest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    newest.write_text(str(step - 1))
    actor = folder / "checkpoints" / f"global_step_{step}" / "actor"
    torn = next(actor.glob("model_*.pt"))
    os.truncate(torn, torn.stat().st_size // 2)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["step"] < step]
    (folder / "metrics.jsonl").write_text("".join(kept))
