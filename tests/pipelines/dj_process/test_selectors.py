"""Data-Juicer's selectors between steps of ours: groups stay together."""

import pytest
from two_runners import check_equal, configured, loaded, of_data_juicer, rollouts, written

from rejuice.operators import DataError
from rejuice.pipelines.dj_process.step_in_run import CurrentRun, StepInRun

pytestmark = pytest.mark.slow

SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
ADVANTAGE = {"grpo_advantage_mapper": {}}
LENGTH = {"text_length_filter": {"text_key": "response", "min_len": 1}}


@pytest.mark.parametrize(
    "selector",
    [
        {"topk_specified_field_selector": {"field_key": "__dj__stats__.text_len", "topk": 20}},
        {"range_specified_field_selector": {"field_key": "text_len", "upper_rank": 15}},
    ],
    ids=lambda selector: next(iter(selector)),
)
def test_a_selector_that_sorts_leaves_groups_together(tmp_path, selector):
    path = written(tmp_path, [SUM, {"group_size_filter": {}}, LENGTH, selector, ADVANTAGE])
    rows = check_equal(path)
    assert 0 < len(rows) < rollouts().num_rows


def test_an_advantage_over_all_rows_is_that_of_run(tmp_path):
    over_all = {"grpo_advantage_mapper": {"normalise": "batch_std", "clip": 1.5}}
    rows = check_equal(written(tmp_path, [SUM, over_all]))
    assert any(row["advantage"] for row in rows)


def test_without_a_step_of_ours_it_sorts(tmp_path):
    top = {"topk_specified_field_selector": {"field_key": "text_len", "topk": 6, "reverse": True}}
    rows = of_data_juicer(written(tmp_path, [top]))
    assert [row["text_len"] for row in rows] == [4] * 6


def test_an_error_of_a_step_has_its_line(tmp_path):
    path = written(tmp_path, [LENGTH, {"pass_rate_filter": {}}])
    settings = configured(path)
    run = CurrentRun(settings, [], settings.process, str(settings.export_path))
    place = StepInRun(loaded(path)[1].operator, settings.process[1], run)
    line = path.read_text().split("\n").index("- pass_rate_filter: {}") + 1
    error = DataError("a row is bad", where="step 2 pass_rate_filter")
    assert str(place.located(error)) == (
        f"{path}, line {line}, step 2 pass_rate_filter: a row is bad"
    )
