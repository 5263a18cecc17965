"""Chunks have so few rows that what becomes of them fits into a column."""

import pytest

from rejuice.operators import RecipeError
from rejuice.operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from rejuice.operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from rejuice.pipelines.engine import plan
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import check_chunk_rows, default_chunk_rows
from rejuice.pipelines.recipe.recipe import load


def sampling(**fields):
    return PolicyRolloutMapper(**fields)


@pytest.mark.parametrize(
    ("operators", "rows"),
    [
        ([], 65_536),
        ([sampling(n=8, max_tokens=1024)], 2048),
        ([sampling(n=8, max_tokens=32_768)], 1365),
        # The second samples for each response of the first.
        ([sampling(n=8, max_tokens=8192), sampling(n=8, max_tokens=8192)], 682),
        ([AgentRolloutMapper()], 2048),
        ([AgentRolloutMapper(max_tokens=32_768)], 133),
        ([sampling(n=2048, max_tokens=1_000_000)], 1),
    ],
)
def test_rows_of_a_chunk(operators, rows):
    assert default_chunk_rows(operators) == rows
    check_chunk_rows(operators, rows if operators else 10**9)


@pytest.mark.recommended("pipelines/engine/plan.py", "a chunk holds 2.1 GB: --chunk_rows {…}")
def test_a_chunk_that_might_not_fit_is_refused_before_anything_is_sampled(recipe_file, monkeypatch):
    monkeypatch.setattr(plan, "_COLUMN_BYTES", 10_000)
    rows = [{"question": f"{k}?", "answer": "1"} for k in range(9)]
    sample = {"n": 4, "max_tokens": 100, "engine": "openai", "model": "m"}
    recipe = load(
        recipe_file([{"prompt_template_mapper": {}}, {"policy_rollout_mapper": sample}], rows)
    )
    with pytest.raises(RecipeError) as caught:
        engine.run(recipe, chunk_rows=9)
    assert str(caught.value) == (
        "--chunk_rows: 9 rows may become 0.0 GB of text in a step that samples; "
        "a chunk holds 2.1 GB: --chunk_rows 4"
    )
    check_chunk_rows([step.operator for step in recipe.steps], 4)
