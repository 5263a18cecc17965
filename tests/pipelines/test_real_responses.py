"""The shipped recipe over 1,600 responses of a real language model, and what docs/results.md says.

The responses are in tests/data/real_responses; the problems of GSM8K lie beside the checkout.
"""

from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from real_responses import FOLDER, PROBLEMS, RECIPE, N, overrides, right_by_math_verify

from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

pytestmark = pytest.mark.slow
DISAGREEMENTS = {
    (4, 4, "wrong_answer"),
    (48, 3, "wrong_answer"),
    (76, 0, "wrong_answer"),
    (78, 4, "wrong_answer"),
    (114, 7, "wrong_answer"),
    (150, 4, "wrong_answer"),
    (151, 6, "wrong_answer"),
    (166, 5, "wrong_answer"),
    (183, 5, "wrong_answer"),
}
"""Problem, response and our verdict."""


@pytest.fixture(scope="module")
def recipe(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    return load(RECIPE, overrides(shared_data / "gsm8k" / "test.jsonl", folder))


@pytest.fixture(scope="module")
def graded(recipe):
    """All responses with their verdicts."""
    return pq.read_table(run(recipe.replace(steps=recipe.steps[:4])).export_path)


def test_the_card_says_what_is_in_the_file():
    table = pq.read_table(FOLDER / "responses.parquet")
    assert table["problem"].to_pylist() == [row for row in range(PROBLEMS) for _ in range(N)]
    assert pc.max(table["tokens"]).as_py() == 320
    cut = pc.equal(table["finish_reason"], "length")
    assert pc.all(pc.equal(table["tokens"].filter(cut), 320)).as_py()
    card = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"| `{name}` | {table.schema.field(name).type} |".replace("float |", "float32 |") in card
               for name in table.column_names)  # fmt: skip


def test_verdicts(graded):
    assert Counter(graded["verdict"].to_pylist()) == {"wrong_answer": 1395, "correct": 205}
    rates = graded["pass_rate"].to_numpy()[::N]
    assert ((rates == 0).sum(), (rates == 1).sum()) == (119, 0)
    assert rates.mean() == np.mean(graded["reward_accuracy"].to_numpy())


def test_where_math_verify_decides_otherwise(graded):
    """Each was read: docs/results.md says what it is."""
    found = set()
    for row, each in enumerate(graded.to_pylist()):
        if right_by_math_verify(each) != (each["verdict"] == "correct"):
            found.add((*divmod(row, N), each["verdict"]))
    assert found == DISAGREEMENTS


def test_the_shipped_recipe_curates_them(recipe):
    report = run(recipe)
    for step in report.steps:
        assert step.rows_in + step.added == step.rows_out + sum(step.dropped.values())
    rows = {step.step: (step.rows_in, step.rows_out) for step in report.steps}
    assert rows["pass_rate_filter"] == (1600, 648)
    assert rows["truncated_response_filter"] == (648, 521)
    assert rows["exact_deduplicator"] == rows["minhash_deduplicator"] == (521, 521)
    table = pq.read_table(report.export_path)
    labels = Counter(table.filter(pc.equal(table["task"], "verify"))["label"].to_pylist())
    assert labels["Yes"] == labels["No"] == (675 - 521) / 2
