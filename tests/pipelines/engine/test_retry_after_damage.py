"""`--retry_missing` of a step that is not resumable, where an earlier step has lost a commit."""

import pyarrow.parquet as pq
import pytest

from rejuice.operators import verifier
from rejuice.operators.verifier import verify_batch
from rejuice.operators.verifier.pool import Verdict
from rejuice.pipelines.dataset import files
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

VERIFY = "math_verify_mapper"
CHUNK_ROWS = 5
ROWS = [
    {"prompt_id": str(k), "response": f"The answer is {k}.", "reference": str(k)} for k in range(12)
]
LATE = ["The answer is 3.", "The answer is 7."]


@pytest.fixture
def verifier_of(monkeypatch):
    """Verifies as ever; what it has verified is listed, and LATE times out while `is_late`."""

    class Verifier:
        is_late, verified = True, list[str]()

    def verify(responses, references, **options):
        Verifier.verified.extend(responses)
        found = verify_batch(responses, references, **options)
        late = LATE if Verifier.is_late else ()
        return [
            Verdict("timeout", None) if response in late else verdict
            for response, verdict in zip(responses, found, strict=True)
        ]

    monkeypatch.setattr(verifier, "verify_batch", verify)
    return Verifier


def commits(recipe, step):
    cache = recipe.head.export_path.parent / ".rejuice"
    return sorted(cache.glob(f"{step}-*/0*.arrow"))


def spoil(path, how):
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    files._verified.clear()


@pytest.mark.parametrize("how", ["gone", "damaged"])
@pytest.mark.parametrize("before", ["length_filter", "group_size_filter", "exact_deduplicator"])
def test_the_step_before_is_computed_first(recipe_file, verifier_of, before, how):
    steps = [
        {"length_filter": {"min": 1}},
        {"exact_deduplicator": {"column": "response", "within": "all"}},
        {"group_size_filter": {"min": 1}},
        {VERIFY: {}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
    ]
    recipe = load(recipe_file(steps, ROWS))
    engine.run(recipe, chunk_rows=CHUNK_ROWS)
    whole = pq.read_table(recipe.head.export_path)
    assert whole.num_rows == 10
    verifier_of.is_late = False
    verifier_of.verified.clear()
    spoil(commits(recipe, before)[1], how)
    report = engine.run(recipe, chunk_rows=CHUNK_ROWS, retry_missing=VERIFY)
    assert sorted(verifier_of.verified) == LATE
    assert report.steps[3].retried == 2
    names = [step.name for step in recipe.steps]
    assert report.steps[names.index(before)].cached is False
    table = pq.read_table(recipe.head.export_path)
    assert table["response"].to_pylist() == [row["response"] for row in ROWS]
    assert table["reward"].to_pylist() == [1.0] * 12


def test_where_nothing_failed_nothing_is_verified_again(recipe_file, verifier_of):
    verifier_of.is_late = False
    recipe = load(recipe_file([{"length_filter": {"min": 1}}, {VERIFY: {}}], ROWS))
    engine.run(recipe, chunk_rows=CHUNK_ROWS)
    commits(recipe, "length_filter")[0].unlink()
    verifier_of.verified.clear()
    warned = []
    engine.run(recipe, chunk_rows=CHUNK_ROWS, retry_missing=VERIFY, warn=warned.append)
    assert warned == [f"{VERIFY} has no result that failed: nothing is retried"]
    assert verifier_of.verified == []
