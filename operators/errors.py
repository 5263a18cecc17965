"""Errors that end a run. A bad rollout is data and raises none of these."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from .logs import redact

# --- The first failure of each kind, logged in full -----------------------------------


class FirstFailures:
    """Logs the first message about each reason and ignores later ones."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._reported = set[str]()

    def report(self, reason: str, message: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            self._log(message)

    def clear(self) -> None:
        self._reported.clear()


# --- Errors that end a run ------------------------------------------------------------

_LINE_BREAKS = re.compile("\\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\\s*")
_MOST_SHOWN = 200  # characters of a value that a message quotes
_LONG_NAME = re.compile(r"(\S{200})\S{800,}")  # Paths are shorter.


class RejuiceError(Exception):
    """A problem that the user can fix, described in one line, without the secrets that are known.

    Args:
        found: what is wrong, with the offending value.
        right: what would be right, as an instruction.
        where: file, then step, as far as known; callers that know more prepend it.
    """

    def __init__(self, found: str, right: str = "", where: str = "") -> None:
        self.found, self.right, self.where = map(redact, (found, right, where))
        super().__init__(self.found, self.right, self.where)  # It is pickled by these.

    def __str__(self) -> str:
        line = "; ".join(part for part in (self.found, self.right) if part)
        whole = f"{self.where}: {line}" if self.where else line
        # Names of files and columns may have line breaks, and be long.
        return _LONG_NAME.sub(r"\1...", _LINE_BREAKS.sub(" ", whole))

    def at(self, where: str) -> RejuiceError:
        """The same error, with `where` put in front of its own location."""
        joined = ", ".join(part for part in (where, self.where) if part)
        return type(self)(self.found, self.right, joined)


class RecipeError(RejuiceError):
    """The recipe contains something that does not exist or does not fit together."""


class DataError(RejuiceError):
    """The dataset is not what the recipe needs."""


class OperatorError(RejuiceError):
    """An operator broke its contract or failed on rows that it should have handled."""


class NotReadyError(OperatorError):
    """An operator cannot be made, or misses something that it needs: no row is the reason."""


class EmptyResultError(RejuiceError):
    """The work is done, and came to nothing: no row is left, or a step failed on every row."""


class EngineError(RejuiceError):
    """An engine has failed or cannot be opened: it gives no further results."""


def needs(who: str, packages: str, *modules: str) -> None:
    """Refuse what needs modules of packages that are not installed; none is imported."""
    for module in modules:
        if not _is_installed(module):
            right = f"pip install {shlex.join(packages.split())}"
            raise RecipeError(f"{who} needs {module}, which is not installed", right)


def _is_installed(module: str) -> bool:
    spec = find_spec(module)
    if spec is None or spec.origin is not None or spec.submodule_search_locations is None:
        return spec is not None
    # Any folder of that name in the working directory looks like a namespace package.
    return any(Path(each) != Path.cwd() / module for each in spec.submodule_search_locations)


_LENGTH, _PROMPTS = "max_tokens of the step that samples", "train.prompts_per_step"
_SCHEDULE = "train.warmup_steps, or actor_rollout_ref.actor.optim.lr_scheduler_type in train.verl"
_STEPS = "train.steps: each takes prompts_per_step prompts"
_STOP = "train.stop.validations_without_gain"
_OTHER_TRAINERS = {
    **dict.fromkeys(("num_generations", "num_return_sequences"), "n of the step that samples"),
    **dict.fromkeys(("max_completion_length", "max_response_length", "max_new_tokens"), _LENGTH),
    **dict.fromkeys(("epochs", "num_epochs", "num_train_epochs", "total_epochs"), _STEPS),
    **dict.fromkeys(("max_steps", "total_training_steps"), "train.steps"),
    **dict.fromkeys(("batch_size", "train_batch_size", "per_device_train_batch_size"), _PROMPTS),
    **dict.fromkeys(("gradient_accumulation_steps", "num_iterations"), "train.updates_per_step"),
    **dict.fromkeys(("beta", "kl_loss_coef", "init_kl_coef"), "train.kl_coef"),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "warmup_ratio"), _SCHEDULE),
    **dict.fromkeys(("lr", "learning_rate"), "train.learning_rate"),
    **dict.fromkeys(("max_prompt_length", "max_length"), "train.max_prompt_tokens"),
    **dict.fromkeys(("clip_range", "cliprange", "clip_ratio", "epsilon"), "train.loss.clip"),
    **dict.fromkeys(("lora_r", "lora_rank", "use_peft"), "train.lora"),
    **dict.fromkeys(("early_stopping", "early_stopping_patience"), _STOP),
    **dict.fromkeys(("keep_best", "save_best", "load_best_model_at_end"), "train.keep: best"),
    **dict.fromkeys(("save_steps", "save_freq"), "train.save_every"),
    **dict.fromkeys(("eval_steps", "test_freq"), "train.validate_every"),
    "save_total_limit": "train.keep_checkpoints",
    "gradient_checkpointing": "train.gpu.gradient_checkpointing, or that of train.cpu",
}
"""Names of TRL, verl, OpenRLHF and others, and what does the same here."""
_SAMPLING = ("n", "temperature", "top_p", "max_tokens", "model", "engine", "chat_template_kwargs")


def hint(name: str) -> str:
    """What has the purpose that a name has in other trainers, or empty: of keys that train."""
    own = f"{name} of the step that samples" if name in _SAMPLING else _OTHER_TRAINERS.get(name)
    return f"set {own}" if own else ""


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else ""


def shown(value: object) -> str:
    """As Python writes it, and cut off where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # It has an integer of more digits than Python writes.
        return f"a {type(value).__name__} that is too large to be shown"
    return shortened(text)


def shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def first_line(error: BaseException | str) -> str:
    """The first line of an error's message that says something: messages of libraries are pages."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if any(map(str.isalnum, line))), "")
