"""What a recipe is: its head and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ...operators import Operator
from .train import Train

DATA_JUICER_ONLY = (
    "auto_install", "debug", "ds_cache_dir", "export_in_parallel", "export_shard_size",
    "keep_hashes_in_res_ds", "keep_stats_in_res_ds", "load_dataset_kwargs", "op_fusion",
    "open_monitor", "open_tracer", "ray_address", "skip_op_error", "strict_preflight",
    "suffixes", "temp_dir", "trace_num", "use_cache", "use_checkpoint", "work_dir",
)  # fmt: skip
"""Top-level keys that `dj-process` uses and `rejuice run` ignores."""


class Step(NamedTuple):
    """One step of a recipe.

    Attributes:
        number: its position in the recipe, from 1.
        name: the operator's name; a second use of it is `name_2`, a third `name_3`.
        operator: the operator.
    """

    number: int
    name: str
    operator: Operator

    @property
    def label(self) -> str:
        """`03_pass_rate_filter`: the name of the step's folder; folders sort by number."""
        return f"{self.number:02d}_{self.name}"


class Head(BaseModel):
    """The head of a recipe: its top-level settings, without the steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    project_name: str = "rejuice"
    """Name of the project, for reports."""
    dataset_path: Path
    """A .jsonl, .json, .parquet or .arrow file, or a folder of such files."""
    export_path: Path
    """The file to write: .parquet (exact), .arrow or .jsonl."""
    np: int = Field(1, ge=1)
    """Workers: threads, and processes for steps that hold the GIL."""
    text_keys: str | tuple[str, ...] = Field("text", min_length=1)
    """The text column of Data-Juicer's operators; of several, the first.
    `dj-process` drops rows without a text as it reads them, `rejuice run` never does."""
    executor_type: Literal["default", "ray"] = "default"
    """How `dj-process` runs the recipe. `rejuice run` uses its own engine either way."""
    custom_operator_paths: tuple[Path, ...] = ()
    """Python files, or folders of them, that define operators."""
    train: Train | None = None
    """How `rejuice train` trains; nothing else reads it."""

    @property
    def text_key(self) -> str:
        """The first of `text_keys`."""
        return self.text_keys if isinstance(self.text_keys, str) else self.text_keys[0]


class Recipe(NamedTuple):
    """A recipe that was read, checked and built.

    Attributes:
        path: the file it came from.
        head: its settings.
        steps: its operators, in order.
        for_data_juicer: settings that only `dj-process` uses.
        step_lines: the line of the file on which each step begins, for messages.
    """

    path: Path
    head: Head
    steps: tuple[Step, ...]
    for_data_juicer: Mapping[str, Any]
    step_lines: tuple[int, ...] = ()

    def line_of(self, step: Step) -> str:
        """`recipe.yaml, line 12`: where a step begins."""
        place = step.number - 1
        line = self.step_lines[place] if place < len(self.step_lines) else None
        return position(self.path, line)

    def where(self, step: Step) -> str:
        """`recipe.yaml, line 12, step 3 pass_rate_filter`: where a message about a step points."""
        return f"{self.line_of(step)}, step {step.number} {step.name}"

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default written out, ready for YAML."""
        head = self.head.model_dump(mode="json")
        return {**head, **self.for_data_juicer, "process": _process(self.steps)}

    def part(self, steps: Sequence[Step], head: Mapping[str, Any]) -> dict[str, Any]:
        """Steps of the recipe as one of their own, ready for YAML.

        Args:
            steps: some of the recipe's steps, as they are or changed.
            head: keys of the new recipe's head. `text_keys` and `custom_operator_paths`, which
                decide what the steps are, are copied where `head` lacks them.
        """
        every = {**self.head.model_dump(mode="json"), **head}
        wanted = {"text_keys", "custom_operator_paths", *head}
        top = {key: value for key, value in every.items() if key in wanted}
        return {**top, "process": _process(steps)}


def _process(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{step.operator.name(): step.operator.model_dump(mode="json")} for step in steps]


def step_names(kinds: list[str]) -> list[str]:
    """Names of steps from their operators: a second use of `x` is `x_2`."""
    return [
        kind if (nth := kinds[: at + 1].count(kind)) == 1 else f"{kind}_{nth}"
        for at, kind in enumerate(kinds)
    ]


def number_steps(operators: Sequence[Operator]) -> tuple[Step, ...]:
    """Operators as the steps of a recipe."""
    names = step_names([operator.name() for operator in operators])
    pairs = zip(names, operators, strict=True)
    return tuple(Step(number, name, each) for number, (name, each) in enumerate(pairs, 1))


def position(path: Path, line: int | None, place: str = "") -> str:
    """`recipe.yaml, line 12, step 3`: what is known of where an error is, for a message."""
    known = (str(path), f"line {line}" if line is not None else "", place)
    return ", ".join(part for part in known if part)
