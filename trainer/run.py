"""The folder of a training run, and what the processes of the run read from it.

docs/training.md lists the files of the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from typing_extensions import Self

from ..operators.errors import RecipeError, RejuiceError
from ..operators.json_text import parse_json
from ..operators.logs import redact
from ..operators.sampling.engines import policy_path as policy_path
from ..pipelines.dataset.files import write_file
from ..pipelines.recipe.recipe import Recipe, dump, load
from ..pipelines.recipe.steps import Step
from ..pipelines.recipe.train import Train
from .split import HeldOutSet, SplitRecipe, check_section, held_out_sets, split_recipe

RUN_VARIABLE = "REJUICE_RUN"
"""Environment variable of every process of a run: the folder of the run."""
AHEAD_VARIABLE = "REJUICE_AHEAD"
"""Environment variable of every process of profile `cpu`, where the run samples ahead."""
AHEAD_FOLDER = "ahead"
"""Folder in that of a run: groups that were sampled ahead, and no checkpoint has trained on."""
ESTIMATOR = "rejuice"
"""Name of the recipe's advantage, for verl's `algorithm.adv_estimator`."""
GEO_MEAN = "rejuice_geo_mean"
"""Name of our `geo_mean`, for verl's `policy_loss.loss_mode`."""


UPDATE = ("actor/grad_norm", "actor/pg_loss")
"""verl's figures of an update: where one is nan or infinite, the policy no longer trains."""


class Weights(NamedTuple):
    """A file in the folder of a run, through which weights reach the sampler on a CPU."""

    version: int  # the step that has made them
    file: Path

    @classmethod
    def of(cls, folder: Path, version: int) -> Weights:
        return cls(version, folder / f"sampler-{version:06d}.safetensors")

    @classmethod
    def all_in(cls, folder: Path) -> list[Weights]:
        """The newest one last."""
        found = folder.glob("sampler-*.safetensors")
        return sorted(cls(int(file.stem.partition("-")[2]), file) for file in found)


def samples_ahead() -> bool:
    """Whether this process belongs to a run of profile `cpu` that samples ahead."""
    return AHEAD_VARIABLE in os.environ


PROMPTS = "prompts/train.parquet"
"""File in the folder of a run."""


def is_prepared(folder: Path) -> bool:
    """Whether the folder has everything that a run needs to be launched."""
    return all((folder / name).exists() for name in ("recipe.yaml", PROMPTS))


def step_folder(run: Path, step: int) -> Path:
    return run / "steps" / f"{step:06d}"


class TrainingRun(NamedTuple):
    """A run, as its processes see it."""

    folder: Path  # the folder of the run
    recipe: Recipe  # the whole recipe
    config: Train  # its `train:` section
    split: SplitRecipe  # the parts of the recipe
    held_out: tuple[HeldOutSet, ...]  # the sets that it validates on

    @classmethod
    def of(cls, folder: Path, recipe: Recipe) -> TrainingRun:
        """The run of a recipe; nothing is written."""
        config, where = recipe.head.train, str(recipe.path)
        if config is None:
            raise RecipeError("there is no `train:` section", "add one", where=where)
        parts = split_recipe(recipe)
        try:
            check_section(parts, config)
        except RecipeError as error:
            raise error.at(where) from None
        return cls(folder, recipe, config, parts, held_out_sets(parts, config, where))

    @classmethod
    def open(cls, folder: Path) -> TrainingRun:
        return cls.of(folder, load(folder / "recipe.yaml"))

    @property
    def policy(self) -> str:
        return self.config.policy or self.split.rollout.model

    @property
    def stop_file(self) -> Path:
        """While it is there, the run saves its last step and ends."""
        return self.folder / "stop"

    def progress(self, step: int) -> float:
        """From 0 at the first step to 1 at the last."""
        return (step - 1) / max(1, self.config.steps - 1)

    def prompts(self, split: str) -> pa.Table:
        """Those of `train` or of a validation set, mapped from their file."""
        import pyarrow.feather as feather  # It loads what `rejuice check` does not need.

        return feather.read_table(self.folder / "prompts" / f"{split}.arrow", memory_map=True)

    def sampler(self) -> tuple[Policy, Sampling]:
        rollout, config = self.split.rollout, self.config
        seed = config.seed if config.seeds_requests else None
        sampling = Sampling(rollout.temperature, rollout.top_p, rollout.max_tokens, seed)
        return Policy.load(self.policy), sampling

    def step_folder(self, step: int) -> Path:
        return step_folder(self.folder, step)

    def step_recipe(self, step: int, steps: Sequence[Step], part: str = "") -> str:
        """A recipe, as YAML, that repeats on a step's rollouts what training did to them."""
        folder = self.step_folder(step) / part
        head = {
            "project_name": self.folder.name,
            "dataset_path": str(folder / "rollouts.parquet"),
            "export_path": str(folder / "again.parquet"),
        }
        return dump(self.recipe.part(steps, head))


# --- What a step trains on: answers, the policy's judgements of them, or both ---------
# The schedules are those of Learning to Self-Verify, https://arxiv.org/abs/2602.07594. They depend
# on the number of the step and on the config alone, so that a resumed run continues its schedule.


class StepPlan(NamedTuple):
    answers: bool  # train on responses to the prompts of the dataset
    judgements: bool  # sample judgements of answers, and train on them
    since: int  # the first step whose queued answers are judged now
    queues: bool  # the answers of this step are queued, to be judged at this step or at a later one


def plan_step(config: Train, step: int) -> StepPlan:
    schedule = config.schedule
    if schedule == "verify_alter":
        every = config.verification.every
        # Also after the last multiple: the run may be resumed with more steps.
        return StepPlan(True, step % every == 0, (step - 1) // every * every + 1, True)
    if schedule == "verify_init":
        judgements = step <= first_steps(config)
        return StepPlan(not judgements, judgements, step, judgements)
    judgements = schedule in ("self_verify", "mixed")
    return StepPlan(schedule != "self_verify", judgements, step, judgements)


def first_steps(config: Train) -> int:
    """How many steps of `verify_init` train on judgements: at least one, and not all."""
    share = round(config.verification.init_share * config.steps)
    return min(max(1, share), max(1, config.steps - 1))


# --- Policies: where they are stored, and how they are sampled ------------------------


class Policy(NamedTuple):
    """The policy that samples."""

    name: str  # for the column `policy`
    tokenizer: Any  # decodes responses
    end_token_ids: frozenset[int]  # token ids that end a response

    @classmethod
    def load(cls, name: str) -> Self:
        """From a folder, a hub name or `embedded`."""
        from transformers import AutoTokenizer

        path = policy_path(name)
        tokenizer = AutoTokenizer.from_pretrained(path)
        ends = {tokenizer.eos_token_id, *_configured_end_ids(path)}
        return cls(name, tokenizer, frozenset(ends - {None}))


class Sampling(NamedTuple):
    """How responses are sampled, for the column `sampling`."""

    temperature: float  # 1 samples from the policy itself
    top_p: float  # 1 truncates nothing
    max_tokens: int  # longest response
    seed: int | None  # of the run; None: requests have no seeds, and samples cannot be repeated


def _configured_end_ids(path: str) -> list[int | None]:
    from transformers import GenerationConfig

    try:
        found = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        return []  # Not every policy has the file.
    return found if isinstance(found, list) else [found]


# --- Why training failed, written down where it happens -------------------------------
# What fails in our code inside verl leaves RUN/error.json: the error in one line, as the command
# reports it. Without it the command has only verl's log to search.

ERROR_FILE = "error.json"
"""File in the folder of a run."""
SAMPLER_FAILED = "rejuice: the sampler failed: "
"""Beginning of the line in verl's log where the sampler fails; the run may go on."""
NO_PROMPT_LEFT = "every prompt failed"
"""Part of the error where it cannot go on."""

_last_sampler_failure: str | None = None


class RecordedError(NamedTuple):
    message: str  # one line
    expected: bool  # it is an error of rejuice's own, which says what to do about it


def report_sampler_failure(reason: str) -> None:
    """Print why the sampler failed, and remember it: a step may find no prompt left for it."""
    global _last_sampler_failure  # The sampler is watched by another thread of this process.
    _last_sampler_failure = reason = redact(reason)
    # With its end, or lines of two threads would run into each other.
    print(f"{SAMPLER_FAILED}{reason}\n", end="", flush=True)


@contextmanager
def errors_recorded(folder: Path) -> Iterator[None]:
    """Write what is raised inside to `error.json` in the folder of the run, and raise it on."""
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # On a full disk, the log has to do.
            _write(folder / ERROR_FILE, _recorded(error))
        raise


def record_failure(folder: Path, why: str) -> None:
    """Keep why a run has failed, in one line, for whoever looks at it later."""
    with suppress(OSError):
        _write(folder / ERROR_FILE, RecordedError(why, expected=True))


def recorded_error(folder: Path) -> RecordedError | None:
    return _read(folder / ERROR_FILE, RecordedError)


# --- An end before the last step ------------------------------------------------------

ENDED_FILE = "ended.json"
"""File in the folder of a run that has ended early, and not by an error."""


class EarlyEnd(NamedTuple):
    step: int  # the last one
    steps: int  # how many there were to be
    why: str


def write_early_end(folder: Path, end: EarlyEnd) -> None:
    _write(folder / ENDED_FILE, end)


def early_end(folder: Path) -> EarlyEnd | None:
    return _read(folder / ENDED_FILE, EarlyEnd)


def _recorded(error: Exception) -> RecordedError:
    # Of an error in another process Ray gives its whole traceback as text, and the error as cause.
    error = getattr(error, "cause", None) or error
    line = redact(" ".join(str(error).split()))
    if not isinstance(error, RejuiceError):
        name = type(error).__name__
        return RecordedError(f"{name}: {line}" if line else name, expected=False)
    if NO_PROMPT_LEFT in line and _last_sampler_failure is not None:
        line = SAMPLER_FAILED.removeprefix("rejuice: ") + _last_sampler_failure
    return RecordedError(line, expected=True)


def _write(file: Path, record: RecordedError | EarlyEnd) -> None:
    write_file(file, json.dumps(record._asdict()) + "\n")


_T = TypeVar("_T", RecordedError, EarlyEnd)


def _read(file: Path, kind: type[_T]) -> _T | None:
    try:
        return kind(**parse_json(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
