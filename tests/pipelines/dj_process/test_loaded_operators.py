"""A repeated filter or deduplicator of Data-Juicer's computes again what it decides by."""

import pytest
from two_runners import (
    check_equal,
    of_data_juicer,
    of_rejuice,
    rollouts,
    without_helpers,
    written,
)

pytestmark = pytest.mark.slow

OURS = {"length_filter": {"min": 0}}
"""In a recipe without a step of ours, Data-Juicer's operators are as they were."""
LINKS = {"clean_links_mapper": {"text_key": "response"}}
REPEATS = {
    "after_a_mapper": [
        {"text_length_filter": {"text_key": "response", "max_len": 40}},
        LINKS,
        {"text_length_filter": {"text_key": "response", "max_len": 12}},
    ],
    "of_another_column": [
        {"words_num_filter": {"min_num": 1}},
        {"words_num_filter": {"text_key": "response", "min_num": 3}},
    ],
    "row_by_row": [
        {"specified_numeric_field_filter": {"field_key": "reward_format", "max_value": 0.15}},
        {"general_field_filter": {"filter_condition": "text_len > 0"}},
        {"general_field_filter": {"filter_condition": "reward_accuracy < 1"}},
    ],
    "deduplicator": [
        {"document_deduplicator": {"text_key": "response"}},
        {"document_deduplicator": {"text_key": "text", "lowercase": True}},
    ],
    "of_a_column_that_is_called_as_a_statistic": [
        {"text_length_filter": {"text_key": "response", "min_len": 3}},
        {"specified_numeric_field_filter": {"field_key": "text_len", "max_value": 3}},
    ],
    "ours_between": [
        {"text_length_filter": {"text_key": "response", "min_len": 2}},
        {"length_filter": {"min": 2}},
        {"column_range_filter": {"column": "share", "min": 0.0}},
        {"text_length_filter": {"text_key": "response", "max_len": 11}},
        {"column_range_filter": {"column": "reward_format", "max": 0.1}},
    ],
}


@pytest.mark.parametrize("process", REPEATS.values(), ids=REPEATS)
def test_repeats_give_the_rows_of_rejuice_run(tmp_path, process):
    process = [*process, OURS]
    path = written(tmp_path, process)
    rows = check_equal(path)
    assert 0 < len(rows) < rollouts().num_rows
    assert of_rejuice(written(tmp_path, process[:-2])) != rows


STATISTICS = [
    {"text_length_filter": {"min_len": 0}},
    {"words_num_filter": {"min_num": 0}},
    {"text_length_filter": {"min_len": 0, "text_key": "response"}},
]


def test_the_last_use_decides_what_is_exported(tmp_path):
    for row in of_data_juicer(written(tmp_path, STATISTICS)):
        stats = row["__dj__stats__"]
        assert list(stats) == ["text_len", "num_words"]
        assert stats["text_len"] == len(row["response"])


def test_a_statistic_of_another_filter_can_be_read(tmp_path):
    reader = {"specified_numeric_field_filter": {"field_key": "__dj__stats__.text_len"}}
    reader["specified_numeric_field_filter"] |= {"min_value": 4, "max_value": 90}
    rows = of_data_juicer(written(tmp_path, [STATISTICS[0], reader, STATISTICS[2], reader]))
    assert rows
    assert all(len(row[name]) >= 4 for row in rows for name in ("text", "response"))


def test_two_processes_compute_again(tmp_path):
    process = [*STATISTICS[:2], {"text_length_filter": {"text_key": "response", "max_len": 11}}]
    path = written(tmp_path, process, np=2)
    assert without_helpers(of_data_juicer(path)) == of_rejuice(path)
