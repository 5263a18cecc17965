"""A prompt that comes up again further down in a dataset is refused, with what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...operators import DataError, PromptTemplateMapper
from ..dataset.files import suffix_of
from ..recipe.recipe import Recipe
from ..recipe.steps import gives_responses, is_sampling
from .frame import GroupStarts, check_contiguous

# In double quotes of a shell, with single ones in them.
_SCRIPTS = {
    ".jsonl": "import json; "
    "print('\\n'.join(sorted(open('{path}').read().strip().split('\\n'), "
    "key=lambda row: str(json.loads(row)['{column}']))), file=open('{target}', 'w'))",
    ".parquet": "import pyarrow.parquet as pq; "
    "pq.write_table(pq.read_table('{path}').sort_by('{column}'), '{target}')",
}
_NOT_QUOTED = frozenset("\"'`$\\!")


def check_prompts(
    recipe: Recipe, parts: Sequence[GroupStarts], place: Callable[[int], str]
) -> None:
    """Check that the rows of each prompt are next to each other in the dataset of a recipe."""
    try:
        check_contiguous(parts, place)
    except DataError as error:
        raise DataError(error.found, ", or ".join(_remedies(recipe))) from None


def _remedies(recipe: Recipe) -> Iterator[str]:
    """Yield what fits: a prompt is sampled once, and each row may have responses of its own."""
    column, operators = _column(recipe), [step.operator for step in recipe.steps]
    if column is not None and any(map(gives_responses, operators)):
        step = f"exact_deduplicator: {{column: {column}, within: all}}"
        yield f"keep one of them by the first step `{step}`"
    if column is None or not any(map(is_sampling, operators)):
        yield _sort(recipe)


def _sort(recipe: Recipe) -> str:
    """The command that sorts a file of rows; of other datasets, where that is described."""
    spec, column = recipe.head.dataset_spec, _column(recipe)
    path = spec.paths[0] if len(spec.paths) == 1 and spec.selection.names is None else Path()
    from ..console import path_text  # It loads what `rejuice check` does not need.

    suffix, name = suffix_of(path), path_text(path)
    is_file = isinstance(path, Path) and path.is_file() and suffix in _SCRIPTS
    if not is_file or column is None or _NOT_QUOTED & {*name, *column}:
        return "sort the dataset by prompt, see docs/recipes.md"
    target = f"sorted{suffix}"
    script = _SCRIPTS[suffix].format(path=name, column=column, target=target)
    return f'sort them by `python -c "{script}"` and add --dataset_path {target}'


def _column(recipe: Recipe) -> str | None:
    """The column that alone makes a prompt; None: there is no such one."""
    operators = [step.operator for step in recipe.steps]
    makers = [each for each in operators if isinstance(each, PromptTemplateMapper)]
    if not makers:
        return "prompt_id"
    return None if makers[0].identity or "." in makers[0].question else makers[0].question
