"""The shipped recipes, run over recorded responses: every row as sampled is accounted for."""

import shutil
from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pytest
from recorded_recipes import OVERRIDES, TABLES, recipe_path

from rejuice.pipelines.analysis.rows import KEPT, stored_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytestmark = pytest.mark.slow

EXPORT = {"export_path": "out/curated.parquet", "np": "1"}


@pytest.mark.parametrize("name", OVERRIDES)
def test_rows_of_a_shipped_recipe(name, tmp_path, monkeypatch):
    shutil.copytree(TABLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    recipe = load(recipe_path(name), {**OVERRIDES[name], **EXPORT})
    report = run(recipe, chunk_rows=40)
    (one,) = open_stored(tmp_path / "out" / "curated.parquet").sets
    assert one.incomplete == ""
    rows = stored_rows(one)
    fates = Counter(rows.table["fate"].to_pylist())
    assert fates.pop(KEPT, 0) == report.rows_out
    dropped = {step.step: sum(step.dropped.values()) for step in report.steps}
    names = {step.number: step.name for step in one.steps}
    assert {names[number]: n for number, n in fates.items()} == {
        name: dropped[name] for name in names.values() if dropped[name]
    }
    left = rows.table.filter(pc.equal(rows.table["fate"], KEPT))
    final = one.final()
    for column in {"response_id", "reward", "advantage"} & set(final.column_names):
        found, wanted = (sorted(map(str, each[column].to_pylist())) for each in (left, final))
        assert found == wanted
    summed = {step.operator.name() for step in one.steps} & {"reward_sum_mapper"}
    assert bool(summed) == _sums_agree(rows)


def _sums_agree(rows):
    """Whether there are contributions; they add up to the reward."""
    if not rows.components:
        return False
    columns = [rows.table[f"contribution_{name}"].to_numpy() for name in rows.components]
    reward_N = rows.table["reward"].to_numpy()
    summed_N = np.isfinite(reward_N) & np.any([np.isfinite(each) for each in columns], axis=0)
    total_N = np.zeros(len(reward_N))
    for each in columns:
        total_N += np.nan_to_num(each)
    assert total_N[summed_N].tolist() == reward_N[summed_N].tolist()
    return bool(summed_N.any())
