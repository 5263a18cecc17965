"""Recipes that use an operator more than once: the same rows in `dj-process` and `rejuice run`."""

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from two_runners import of_data_juicer, of_rejuice, rollouts, without_helpers, written

pytestmark = pytest.mark.slow

COLUMN = ["text", "response"]
POOL = {
    "reward_sum_mapper": {
        "weights": [{"accuracy": 1.0}, {"accuracy": 0.5, "format": 2.0}],
        "gates": [{"accuracy": "only_correct"}, {"accuracy": "mixed_groups_only"}],
        "on_missing": ["drop_row"],
    },
    "grpo_advantage_mapper": {"epsilon": [0.1], "std_floor": [0.2]},
    "column_range_filter": {
        "column": ["reward_format", "share", "reward"],
        "min": [0.1],
        "max": [0.3],
        "on_missing": ["keep"],
    },
    "length_filter": {"column": COLUMN, "unit": ["words"], "min": [1, 2], "max": [3, 11]},
    "pass_rate_filter": {"min": [0.1], "max": [0.9]},
    "label_balance_selector": {"max_per_prompt": [1, 2], "seed": [3]},
    "exact_deduplicator": {"column": ["response"]},
    "whitespace_normalization_mapper": {"text_key": COLUMN},
    "clean_links_mapper": {"text_key": COLUMN, "repl": ["(link)"]},
    "remove_specific_chars_mapper": {"text_key": COLUMN, "chars_to_remove": ["abc", "4"]},
    "replace_content_mapper": {"text_key": COLUMN, "pattern": ["o+", "[a-c]"], "repl": ["y", "zz"]},
    "text_length_filter": {"text_key": COLUMN, "min_len": [1, 4], "max_len": [11]},
    "words_num_filter": {"text_key": COLUMN, "min_num": [1], "max_num": [3]},
    "special_characters_filter": {"text_key": COLUMN, "max_ratio": [0.1, 0.5]},
    "alphanumeric_filter": {"text_key": COLUMN, "min_ratio": [0.1, 0.6], "reversed_range": [True]},
    "specified_numeric_field_filter": {
        "field_key": ["text_len", "reward_format"],
        "min_value": [0.1],
        "max_value": [2],
    },
    "document_deduplicator": {"text_key": COLUMN, "lowercase": [True]},
}
ALWAYS = {"weights", "pattern", "field_key", "max_per_prompt", "column", "max"}
"""Fields that a step without them mostly cannot do without."""


@st.composite
def steps(draw, name):
    fields = {
        field: draw(st.sampled_from(values))
        for field, values in POOL[name].items()
        if field in ALWAYS or draw(st.booleans())
    }
    return {name: fields or None}


@st.composite
def processes(draw):
    used = draw(st.lists(st.sampled_from(list(POOL)), min_size=1, max_size=3, unique=True))
    repeated = [*used, draw(st.sampled_from(used))]
    more = draw(st.lists(st.sampled_from(used), max_size=5 - len(repeated)))
    order = draw(st.permutations([*repeated, *more]))
    return [draw(steps(name)) for name in ("reward_sum_mapper", *order)]


def outcome(rows, path):
    try:
        found = without_helpers(rows(path))
    except (Exception, SystemExit):
        return "refused"
    return repr(found)


@given(processes())
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # To shrink a failure takes minutes; the recipe is in the message.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_repeats_of_any_recipe_give_the_rows_of_rejuice_run(tmp_path, process):
    path = written(tmp_path, process, text_keys="response")
    assert outcome(of_data_juicer, path) == outcome(of_rejuice, path)


@pytest.mark.parametrize("executor", ["default", "ray"])
def test_dj_process_gives_repeats_the_rows_of_rejuice_run(dj_process_of, tmp_path, executor):
    process = [
        {
            "reward_sum_mapper": {
                "weights": {"accuracy": 1.0, "format": 1.0},
                "on_missing": "drop_row",
            }
        },
        {"text_length_filter": {"text_key": "response", "min_len": 2}},
        {"clean_links_mapper": {"text_key": "response"}},
        {"reward_sum_mapper": {"weights": {"accuracy": 2.0}}},
        {
            "text_length_filter": {
                "text_key": "text",
                "min_len": 5,
                "ray_execution_mode": "actor",
                "num_proc": 1,
            }
        },
        {"words_num_filter": {"min_num": 1}},
        {"words_num_filter": {"text_key": "response", "min_num": 3}},
    ]
    head = {
        "np": 2,
        "executor_type": executor,
        "ray_address": "local",
        "ds_cache_dir": str(tmp_path / "cache"),
    }
    path = written(tmp_path, process, **head)
    ran = dj_process_of(executor)(tmp_path, "--config", str(path))
    assert ran.returncode == 0, ran.log
    rows = without_helpers(pq.read_table(tmp_path / "out.parquet").to_pylist())
    assert repr(rows) == repr(of_rejuice(path))
    assert 0 < len(rows) < rollouts().num_rows
    assert {row["reward"] for row in rows} == {0.0, 2.0}
