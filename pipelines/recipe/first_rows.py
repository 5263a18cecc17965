"""Whether the first rows of a dataset have references, and such that can be graded against.

So a wrong `reference_pattern` is found before anything is sampled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from ...operators import DataError, RecipeError
from ...operators.mapper.math_verify_mapper import MathVerifyMapper
from ...operators.mapper.prompt_template_mapper import PromptTemplateMapper
from .recipe import Recipe

_SHOWN = 40


def check_first_rows(recipe: Recipe, rows: pa.Table) -> None:
    """Find the references of the first rows, where the recipe begins with `prompt_template_mapper`.

    Args:
        recipe: as it was read.
        rows: the first ones of its dataset.

    Raises:
        DataError: a row has no reference, and the step does not drop such rows.
        RecipeError: no row has one, or the verifier can use none.
    """
    step, path = recipe.steps[0], recipe.head.dataset_spec
    operator = step.operator
    if not isinstance(operator, PromptTemplateMapper):
        return
    there = rows.column_names
    if operator.reference is None or not set(operator.reads_of(there)) <= set(there):
        return  # There are none, or a column begins further down.
    try:
        references = operator.first_references(rows)
    except DataError as error:
        raise error.at(f"{path}, step {step.number} {step.name}") from None
    verifies = any(isinstance(each.operator, MathVerifyMapper) for each in recipe.steps)
    found = _problem(operator, references, verifies=verifies)
    if found is not None:
        what, right = found
        what = f"of the first {rows.num_rows:,} rows of {path}, {what}"
        raise RecipeError(what, right, where=recipe.where(step))


def _problem(
    operator: PromptTemplateMapper, references: Sequence[str], *, verifies: bool
) -> tuple[str, str] | None:
    """What is wrong with the references, and what would be right; None if some can be used."""
    pattern, column = operator.reference_pattern, operator.reference
    if not references:
        if pattern is None:
            return f"none has a reference in column '{column}'", "name the column in `reference`"
        found = f"none matches reference_pattern {pattern!r} in column '{column}'"
        return found, "change the pattern, or put rows that match it first"
    # Whole numbers can be graded against, which is known without the verifier.
    if not verifies or any(text.isdecimal() for text in references):
        return None
    from ...operators.verifier import check_reference

    if any(check_reference(text) is None for text in references):
        return None
    first = " ".join(references[0].split())
    shown = first if len(first) <= _SHOWN else f"{first[:_SHOWN]}..."
    reason = check_reference(references[0])
    found = f"none has a reference that can be graded against: {shown!r} ({reason})"
    if pattern is None:
        return found, "take the answer out of it by reference_pattern, such as '#### (.*)'"
    if re.compile(pattern).groups:
        return found, "let the first group of reference_pattern be the bare answer"
    return found, "put the answer into a group of reference_pattern, as in '#### (.*)'"
