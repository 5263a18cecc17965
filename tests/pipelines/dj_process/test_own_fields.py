"""Each use of an operator in a recipe has its own fields under `dj-process`."""

import sys

import pytest
from data_juicer import ops
from data_juicer.config import config
from loguru import logger
from two_runners import configured, written

pytestmark = pytest.mark.slow


def fields_of(cfg):
    return [next(iter(entry.values())) for entry in cfg.process]


def test_a_second_use_has_its_own_fields(tmp_path):
    process = [
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}, "on_missing": "fail"}},
        {"text_length_filter": {"min_len": 1, "text_key": "response"}},
        {"reward_sum_mapper": {"weights": {"accuracy": 2.0}}},
        {"text_length_filter": {"max_len": 20}},
        {"text_length_filter": None},
    ]
    cfg = configured(written(tmp_path, process))
    first, length, second, longest, bare = fields_of(cfg)
    assert first["weights"] == {"accuracy": 1.0, "format": 1.0}
    assert second["weights"] == {"accuracy": 2.0}
    default = sys.maxsize
    assert [(each["min_len"], each["max_len"], each["text_key"]) for each in (length, longest)] == [
        (1, default, "response"),
        (10, 20, "text"),
    ]
    assert (bare["min_len"], bare["max_len"], bare["text_key"]) == (10, default, "text")
    operators = ops.load_ops(cfg.process)
    assert all(op._op_cfg is entry for op, entry in zip(operators, cfg.process, strict=True))


def test_a_mapping_of_the_recipe_is_exactly_that(tmp_path):
    process = [{"policy_rollout_mapper": {"openai": {"concurrency": 8}, "model": "m", "n": 2}}]
    (fields,) = fields_of(configured(written(tmp_path, process)))
    assert fields["openai"] == {"concurrency": 8}
    assert fields["transformers"]["rows"] == 512


TWICE = [
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    {"text_length_filter": {"min_len": 1, "text_key": "response"}},
    {"text_length_filter": {"max_len": 20}},
    {"reward_sum_mapper": {"weights": {"accuracy": 2.0}, "task": "generate"}},
]


def test_an_option_sets_the_field_of_every_use(tmp_path):
    options = ["--text_length_filter.min_len", "3", "--reward_sum_mapper.weights={format: 2.0}"]
    first, one, two, second = fields_of(configured(written(tmp_path, TWICE), *options))
    assert (one["min_len"], two["min_len"]) == (3, 3)
    assert (one["max_len"], two["max_len"]) == (sys.maxsize, 20)
    assert (one["text_key"], two["text_key"]) == ("response", "text")
    assert first["weights"] == second["weights"] == {"format": 2.0}
    assert (first["task"], second["task"]) == (None, "generate")


def test_an_option_sets_one_key_of_a_mapping(tmp_path):
    options = ["--reward_sum_mapper.weights.format", "0.5", "--reward_sum_mapper.weights.more=2"]
    first, _, _, second = fields_of(configured(written(tmp_path, TWICE), *options))
    assert first["weights"] == {"accuracy": 1.0, "format": 0.5, "more": 2}
    assert second["weights"] == {"accuracy": 2.0, "format": 0.5, "more": 2}


def test_the_environment_fills_what_the_recipe_leaves_out(tmp_path, monkeypatch):
    program = config.build_base_parser().env_prefix.replace("-", "_").upper()
    monkeypatch.setenv(f"{program}_TEXT_LENGTH_FILTER__MIN_LEN", "4")
    _, one, two, _ = fields_of(configured(written(tmp_path, TWICE)))
    assert (one["min_len"], two["min_len"]) == (1, 4)


def test_a_bad_row_takes_no_others_with_it_where_a_step_of_ours_is(tmp_path):
    """`skip_op_error: true` drops a whole batch; it is Data-Juicer's default."""
    length = {"text_length_filter": {"text_key": "share"}}
    lines = []
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    try:
        found = configured(
            written(tmp_path, [length, {"pass_rate_filter": {}}], skip_op_error=True)
        ).process
        own = {"text_length_filter": {"skip_op_error": True}}
        kept = configured(
            written(tmp_path, [own, {"pass_rate_filter": {}}], skip_op_error=False)
        ).process
        theirs = configured(written(tmp_path, [length], skip_op_error=True)).process
    finally:
        logger.remove(sink)
    assert found[0]["text_length_filter"]["skip_op_error"] is False
    assert kept[0]["text_length_filter"]["skip_op_error"] is True
    assert theirs[0]["text_length_filter"]["skip_op_error"] is True
    assert sum("skip_op_error: true has no effect" in line for line in lines) == 1
