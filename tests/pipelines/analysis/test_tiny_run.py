"""The run that tests of stored runs share is what its docstring says."""

import pyarrow.parquet as pq
import pytest
from tiny_run import run_tiny

from rejuice.pipelines.engine.report import Report


def test_b_is_dropped_and_the_second_response_of_a_is_right_without_the_format(tmp_path):
    recipe = run_tiny(tmp_path)
    table = pq.read_table(recipe.head.export_path)
    assert table["response"].to_pylist() == [
        r"\boxed{7}", "It is 7.", r"\boxed{8}", "It is 9.",
        r"\boxed{10}", "It is 11.", "12", "13",
    ]  # fmt: skip
    row = table.slice(1, 1).to_pylist()[0]
    assert (row["reward_accuracy"], row["reward_format"]) == (1.0, -0.1)
    assert row["reward"] == pytest.approx(0.9)
    assert row["advantage"] == pytest.approx(0.679365, abs=1e-5)
    report = Report.read(recipe.head.export_path)
    dropped = {step.step: step.dropped for step in report.steps if step.dropped}
    assert dropped == {"pass_rate_filter": {"too_easy": 4}}
