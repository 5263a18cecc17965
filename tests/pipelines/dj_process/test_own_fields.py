"""Each use of an operator in a recipe has its own fields under `dj-process`."""

import sys

import pytest
from data_juicer import ops
from data_juicer.config import config, get_init_configs
from data_juicer.ops.base_op import OPERATORS
from loguru import logger
from two_runners import configured, loaded, written

from rejuice.operators import RecipeError
from rejuice.pipelines.dj_process import patches

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


def test_what_dj_process_sets_of_all_operators_is_kept(tmp_path):
    process = [{"exact_deduplicator": None}, {"clean_links_mapper": None}] * 2
    path = written(tmp_path, process, text_keys=["response", "text"], image_key="pictures")
    every = fields_of(configured(path))
    for fields in every:
        assert fields["text_key"] == "response"
        assert fields["image_key"] == "pictures"
        assert (fields["num_proc"], fields["skip_op_error"]) == (1, False)
    assert len({id(fields) for fields in every}) == 4


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


def test_an_option_of_one_operator_leaves_others_alone(tmp_path):
    process = [
        *TWICE,
        {"words_num_filter": {"min_num": 1, "text_key": "response"}},
        {"clean_links_mapper": None},
    ]
    options = ["--text_length_filter.text_key=text", "--words_num_filter.max_num", "9"]
    *_, words, links = fields_of(
        configured(written(tmp_path, process, text_keys="verdict"), *options)
    )
    assert (words["min_num"], words["max_num"], words["text_key"]) == (1, 9, "response")
    assert links["text_key"] == "verdict"


def test_an_option_sets_one_key_of_a_mapping(tmp_path):
    options = ["--reward_sum_mapper.weights.format", "0.5", "--reward_sum_mapper.weights.more=2"]
    first, _, _, second = fields_of(configured(written(tmp_path, TWICE), *options))
    assert first["weights"] == {"accuracy": 1.0, "format": 0.5, "more": 2}
    assert second["weights"] == {"accuracy": 2.0, "format": 0.5, "more": 2}
    whole = ["--reward_sum_mapper.weights={format: 2.0}", "--reward_sum_mapper.weights.more=2"]
    first, _, _, second = fields_of(configured(written(tmp_path, TWICE), *whole))
    assert first["weights"] == second["weights"] == {"format": 2.0, "more": 2}


def test_an_option_that_is_not_yaml_is_one_line(tmp_path):
    option = "--reward_sum_mapper.weights.format"
    with pytest.raises(RecipeError) as raised:
        configured(written(tmp_path, TWICE), option, "[")
    assert str(raised.value) == f"{option}: '[' is not YAML; quote the value"


def test_the_environment_fills_what_the_recipe_leaves_out(tmp_path, monkeypatch):
    program = config.build_base_parser().env_prefix.replace("-", "_").upper()
    monkeypatch.setenv(f"{program}_TEXT_LENGTH_FILTER__MIN_LEN", "4")
    _, one, two, _ = fields_of(configured(written(tmp_path, TWICE)))
    assert (one["min_len"], two["min_len"]) == (1, 4)


def test_a_configuration_that_was_read_is_read_again(tmp_path):
    cfg = configured(written(tmp_path, TWICE))
    expected = [dict(fields) for fields in fields_of(cfg)]
    assert fields_of(get_init_configs(cfg)) == expected


CUSTOM = """
from data_juicer.ops.base_op import OPERATORS, Mapper

@OPERATORS.register_module("stamp_of_{name}_mapper")
class StampMapper(Mapper):
    def __init__(self, marks=None, more=None, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.marks, self.more = marks, more
    def process_single(self, sample):
        return sample
"""


def test_a_custom_operator_has_its_own_fields(tmp_path):
    file = tmp_path / f"stamp_{tmp_path.name}.py"
    name = f"stamp_of_{tmp_path.name}_mapper"
    file.write_text(CUSTOM.format(name=tmp_path.name))
    process = [{name: {"marks": {"a": 1}, "more": 1}}, {name: {"marks": {"b c": 2}}}]
    path = written(tmp_path, process, custom_operator_paths=[str(file)], text_keys="response")
    try:
        one, two = loaded(path)
        assert (one.marks, one.more, one.text_key) == ({"a": 1}, 1, "response")
        assert (two.marks, two.more, two.text_key) == ({"b c": 2}, None, "response")
    finally:
        OPERATORS.modules.pop(name, None)


def test_a_recipe_that_repeats_nothing_of_data_juicers_own_is_read_by_it_alone(
    tmp_path, monkeypatch
):
    process = [{"text_length_filter": {"min_len": 3}}, {"clean_links_mapper": None}]
    path = written(tmp_path, process)
    expected = fields_of(configured(path))
    monkeypatch.setattr(patches, "_entry", None)
    found = fields_of(configured(path))
    assert [{**f, "work_dir": 0} for f in found] == [{**f, "work_dir": 0} for f in expected]


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
