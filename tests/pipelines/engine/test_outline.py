"""The outline of an export comes from the workers, whatever their order: the driver reads no commit."""

import pickle

import pytest

from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.export import outline
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.engine.workers import LocalWorkers
from rejuice.pipelines.recipe.recipe import load

PROCESS = [{"group_size_filter": {"min": 2}}, {"grpo_advantage_mapper": {}}]


class Elsewhere:
    """Workers in other processes, of which the first to finish has the last chunk."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def map(self, steps, work, count):
        work = pickle.loads(pickle.dumps(work))
        done = [(chunk, pickle.loads(pickle.dumps(work(chunk)))) for chunk in reversed(range(count))]  # fmt: skip
        self.monkeypatch.setattr("rejuice.pipelines.engine.plan.Plan.load", None)
        return iter(done)


@pytest.mark.parametrize("name", ["curated", "curated.parquet"])
def test_it_is_put_together_from_what_workers_return(recipe_file, rollouts, monkeypatch, tmp_path, name):  # fmt: skip
    path = recipe_file(PROCESS, rollouts(30).to_pylist())
    recipe = load(path, {"export_path": str(tmp_path / "out" / name), "max_rows_per_file": "20"})
    engine.run(recipe, chunk_rows=16)
    plan = Plan.open(recipe, tmp_path / "out" / ".rejuice", 16)
    assert len(plan.source.rows) > 3
    with LocalWorkers(plan) as workers:
        here = outline(plan, workers)
    there = outline(plan, Elsewhere(monkeypatch))
    assert there.parts == here.parts
    assert there.schema.equals(here.schema, check_metadata=True)
    assert (len(here.parts) > 2) == (name == "curated")
