"""A recipe: settings and steps, read from YAML or made in Python."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic_core import to_jsonable_python
from typing_extensions import Self

from ...operators import Operator, RecipeError
from ...operators.errors import shown
from ...operators.registry import find, load_files
from ...operators.sampling.rollout import RolloutMapper
from ..data_juicer.settings import setting_warnings
from ..data_juicer.steps import ForeignOperator, MissingPackageError
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, RemotePath
from ..dataset.source import SUFFIX
from ..dataset.spec import DatasetSpec
from .head import Head, checked_head, data_juicer_only, position
from .steps import FILES, MissingPackages, build_operator, number_steps, of_files, split_entry
from .steps import Step as Step
from .yaml_text import dump

_NOWHERE = Path("nowhere.arrow")


@dataclass(frozen=True, init=False)
class Recipe:
    """Settings and steps.

        Recipe([PassRateFilter(min=0.1), "grpo_advantage_mapper"], dataset="rollouts.parquet")

    `rejuice.pipelines.load` reads one from a YAML file.
    """

    path: Path  # the file it came from, or its name
    head: Head  # its settings
    steps: tuple[Step, ...]  # its operators, in order
    for_data_juicer: Mapping[str, Any]  # settings that only `dj-process` obeys
    step_lines: tuple[int, ...]  # the line of the file on which each step begins, for messages
    table: pa.Table | None  # the dataset, if it is a table in memory
    has_export: bool  # whether the curated dataset is written to a file

    def __init__(
        self,
        process: Sequence[Operator | str | Mapping[str, Any]],
        dataset: pa.Table | Path | str | Sequence[Path | str],
        *,
        export_path: Path | str | None = None,
        name: str = "Recipe",
        **settings: Any,
    ) -> None:
        """Make a recipe in Python, with the checks and the messages of one in YAML.

        Raises:
            RecipeError: an unknown or wrong setting, operator or field; one line.
        """
        path = Path(name)
        table = dataset if isinstance(dataset, pa.Table) else None
        if not isinstance(dataset, pa.Table | Path | str | list | tuple):
            found, right = (
                f"dataset is a {type(dataset).__name__}",
                "give a pyarrow.Table or a path",
            )
            raise RecipeError(found, right, where=name)
        for key in settings.keys() & {"dataset_path", "process"}:
            right = "give it as `dataset`" if key == "dataset_path" else "give it once"
            raise RecipeError(f"unknown key {shown(key)}", right, where=name)
        document = {
            "dataset_path": _NOWHERE if table is not None else dataset,
            "export_path": _NOWHERE if export_path is None else export_path,
            **settings,
        }
        head = checked_head(path, document, {}, ())
        steps = _steps(path, head, process, settings)
        if table is not None and SUFFIX not in table.column_names:
            for step in of_files(steps):
                found = f"a table is of no file, and has no column '{SUFFIX}'"
                where = f"{name}, step {step.number} {step.name}"
                raise RecipeError(found, "give the path of a dataset", where=where)
        theirs = data_juicer_only()
        for_data_juicer = {key: value for key, value in document.items() if key in theirs}
        _fill(self, path, head, steps, for_data_juicer, (), table, export_path is not None)

    @classmethod
    def of(
        cls,
        path: Path,
        head: Head,
        steps: Sequence[Step],
        for_data_juicer: Mapping[str, Any],
        step_lines: Sequence[int],
    ) -> Self:
        """A recipe that was read from a file."""
        recipe = cls.__new__(cls)
        _fill(recipe, path, head, tuple(steps), for_data_juicer, tuple(step_lines), None, True)
        return recipe

    def replace(self, **changes: Any) -> Self:
        """This recipe with other attributes."""
        recipe = type(self).__new__(type(self))
        _fill(recipe, *(changes.get(f.name, getattr(self, f.name)) for f in fields(self)))
        return recipe

    @property
    def from_file(self) -> bool:
        """Whether it was read from a file, which `path` is."""
        return bool(self.step_lines)

    def dataset_spec(self) -> DatasetSpec:
        """What it reads as its dataset."""
        spec = self.head.dataset_spec
        return spec.with_suffix() if of_files(self.steps) else spec

    def opened(self, cache: AnyPath | None = None, *, verify: bool = False) -> Dataset:
        """Its dataset, of which nothing is read yet."""
        spec = self.dataset_spec()
        spec = spec if cache is None else dataclasses.replace(spec, cache=cache)
        return Dataset(spec, workers=self.head.np, verify=verify)

    def line_of(self, step: Step) -> str:
        """`recipe.yaml, line 12`: where a step begins."""
        place = step.number - 1
        line = self.step_lines[place] if place < len(self.step_lines) else None
        return position(self.path, line)

    def where(self, step: Step) -> str:
        """`recipe.yaml, line 12, step 3 pass_rate_filter`: where a message about a step points."""
        return f"{self.line_of(step)}, step {step.number} {step.name}"

    def recordings(self) -> list[Path]:
        """The files whose responses are returned instead of sampled."""
        rollouts = [s.operator for s in self.steps if isinstance(s.operator, RolloutMapper)]
        paths = (each.recorded.path for each in rollouts if each.engine == "recorded")
        return [Path(path) for path in paths if path is not None]

    def setting_warnings(self) -> list[str]:
        """One line, or none: the keys that have no effect here."""
        return setting_warnings(self.for_data_juicer)

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default written out, ready for YAML."""
        head = self.head.model_dump(mode="json")
        return {**head, **self.for_data_juicer, "process": _process(self.steps)}

    def absolute(self) -> dict[str, Any]:
        """`resolved()` with absolute paths, for a file that is read in any working directory.

        The steps are as they were, because their fields are part of cache keys.
        """
        return {**self.resolved(), **to_jsonable_python(_absolute(self.head.model_dump()))}

    def part(self, steps: Sequence[Step], head: Mapping[str, Any]) -> dict[str, Any]:
        """Steps of the recipe as one of their own, ready for YAML.

        Args:
            steps: some of the recipe's steps, as they are or changed.
            head: keys of the new recipe's head. `text_keys` and `custom_operator_paths`, which
                decide what the steps are, are copied where `head` lacks them, and so is what the
                export keeps.
        """
        every = {**self.head.model_dump(mode="json"), **head}
        kept = {key for key in ("keep_stats_in_res_ds", "keep_hashes_in_res_ds") if every[key]}
        wanted = {"text_keys", "custom_operator_paths", *kept, *head}
        top = {key: value for key, value in every.items() if key in wanted}
        return {**top, "process": _process(steps)}

    def to_yaml(self) -> str:
        """The recipe as YAML, every default written out; `load` reads the same recipe from it.

        Raises:
            RecipeError: YAML cannot hold it: the dataset is a table, there is no `export_path`, or
                an operator is neither installed nor in a file of `custom_operator_paths`.
        """
        where = str(self.path)
        if self.table is not None:
            found, right = "the dataset is a table", "write it to a file and give its path"
            raise RecipeError(found, right, where=where)
        if not self.has_export:
            raise RecipeError("there is no export_path", "give one: YAML needs it", where=where)
        custom = load_files(self.head.custom_operator_paths)
        for step in self.steps:
            kind = type(step.operator)
            is_foreign = issubclass(kind, ForeignOperator)
            if not is_foreign and not _is_same(find(kind.name(), custom), kind):
                raise RecipeError(
                    f"{kind.__name__} is only defined in this Python process",
                    "put it into a file and name that in custom_operator_paths",
                    where=self.where(step),
                )
            for file in getattr(step.operator, FILES, ()):
                if file.absolute() not in self.head.custom_operator_paths:
                    raise RecipeError(
                        f"only this step has {file} in {FILES}",
                        f"give it in {FILES} of the recipe, too",
                        where=self.where(step),
                    )
        return dump(self.resolved())


def _fill(recipe: Recipe, *values: Any) -> None:
    """Set all attributes, in their order."""
    for field, value in zip(fields(recipe), values, strict=True):
        object.__setattr__(recipe, field.name, value)


def _absolute(value: Any) -> Any:
    """A value of a recipe's head, with absolute paths."""
    if isinstance(value, Path | RemotePath):
        return str(value.resolve())
    if isinstance(value, Mapping):
        return {_absolute(key): _absolute(each) for key, each in value.items()}
    return [_absolute(each) for each in value] if isinstance(value, (list, tuple)) else value


def _is_same(found: type[Operator] | None, kind: type[Operator]) -> bool:
    """Whether a class that was found by its name is this one, perhaps loaded once more."""
    return found is kind or (found is not None and _file(found) == _file(kind) is not None)


def _file(kind: type[Operator]) -> str | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return str(Path(file).resolve()) if file else None


def _steps(
    path: Path,
    head: Head,
    process: Sequence[Operator | str | Mapping[str, Any]],
    document: Mapping[str, Any],
) -> tuple[Step, ...]:
    if not process:
        raise RecipeError("'process' is empty", "make it a list of operators", where=str(path))
    custom = load_files(head.custom_operator_paths)
    operators, missing = list[Operator](), MissingPackages()
    for number, entry in enumerate(process, 1):
        if isinstance(entry, Operator):
            operators.append(entry)
            continue
        where = position(path, None, f"step {number}")
        kind, values = split_entry(entry, where)
        try:
            operators.append(build_operator(kind, values, custom, head, document))
        except MissingPackageError as error:
            missing.add(f"{where} {kind}", error)
        except RecipeError as error:
            raise error.at(f"{where} {kind}") from None
    missing.check()
    return number_steps(operators)


def _process(steps: Sequence[Step]) -> list[dict[str, Any]]:
    # Files of tools and flows are at the head, for all steps.
    dumps = [step.operator.model_dump(mode="json") for step in steps]
    parts = [{key: value for key, value in dump.items() if key != FILES} for dump in dumps]
    return [{step.operator.name(): part} for step, part in zip(steps, parts, strict=True)]
