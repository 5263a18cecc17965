"""A repeated filter or deduplicator of Data-Juicer's computes again what it decides by."""

import json
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import dill
import pyarrow as pa
import pytest
from data_juicer import ops
from data_juicer.core.executor import default_executor, ray_executor
from data_juicer.core.executor.base import ExecutorBase
from data_juicer.core.executor.ray_executor_partitioned import (
    PartitionedRayExecutor,
    RayCheckpointManager,
)
from data_juicer.ops import op_fusion
from data_juicer.ops.base_op import NON_STATS_FILTERS, OPERATORS, Deduplicator, Filter
from two_runners import (
    check_equal,
    configured,
    loaded,
    of_data_juicer,
    of_rejuice,
    rollouts,
    without_helpers,
    written,
)

from rejuice.pipelines.dj_process import patches

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


def with_statistics(**stats):
    return rollouts().append_column("__dj__stats__", pa.array([stats] * rollouts().num_rows))


def test_what_an_earlier_run_has_computed_is_used_once(tmp_path):
    table = with_statistics(text_len=7, num_words=3)
    of_seven = {"text_length_filter": {"min_len": 7, "max_len": 7}}
    path = written(tmp_path, [STATISTICS[1], of_seven])
    assert len(of_data_juicer(path, table=table)) == table.num_rows
    again = of_data_juicer(written(tmp_path, [*STATISTICS[:2], of_seven]), table=table)
    assert again == []
    assert len(of_data_juicer(written(tmp_path, [STATISTICS[0], STATISTICS[2]]), table=table)) > 0


def test_a_statistic_of_another_filter_can_be_read(tmp_path):
    reader = {"specified_numeric_field_filter": {"field_key": "__dj__stats__.text_len"}}
    reader["specified_numeric_field_filter"] |= {"min_value": 4, "max_value": 90}
    rows = of_data_juicer(written(tmp_path, [STATISTICS[0], reader, STATISTICS[2], reader]))
    assert rows
    assert all(len(row[name]) >= 4 for row in rows for name in ("text", "response"))


FUSED = [
    {"words_num_filter": {"min_num": 2}},
    {"word_repetition_filter": {"text_key": "response", "rep_len": 1, "max_ratio": 0.9}},
    {"words_num_filter": {"text_key": "response", "min_num": 3}},
    {"word_repetition_filter": {"rep_len": 1, "max_ratio": 0.9}},
]


def test_fused_filters_decide_each_by_its_own_statistics(tmp_path, monkeypatch):
    video = SimpleNamespace(container=SimpleNamespace(InputContainer=type("NoVideo", (), {})))
    monkeypatch.setattr(op_fusion, "LazyLoader", lambda *_, **__: video)
    rows = check_equal(written(tmp_path, FUSED), fuse=True)
    assert 0 < len(rows) < rollouts().num_rows


def test_filters_are_fused_up_to_a_repeated_one(tmp_path):
    operators = loaded(written(tmp_path, FUSED))
    named = [op._name for op in op_fusion.fuse_operators(operators)]
    assert named == [
        "OpFusion:(words_num_filter,word_repetition_filter)",
        "words_num_filter",
        "word_repetition_filter",
    ]
    speeds = [{"speed": speed} for speed in (1, 2, 3, 4)]
    once = op_fusion.fuse_operators(operators[:2] + operators[:2], speeds)
    assert len(once) == 1


def test_filters_inside_a_fused_operator(tmp_path):
    inner = [*STATISTICS, {"text_length_filter": {"min_len": 4, "text_key": "text"}}]
    process = [STATISTICS[2], {"general_fused_op": {"batch_size": 9, "fused_op_list": inner}}]
    rows = of_data_juicer(written(tmp_path, process))
    assert rows
    assert [row["__dj__stats__"]["text_len"] for row in rows] == [len(r["text"]) for r in rows]


def repeated(tmp_path, process):
    """The operator that computes again what an earlier one has."""
    operators = loaded(written(tmp_path, process))
    (found,) = (op for op in operators if hasattr(op, "computes_again"))
    return found


@pytest.mark.parametrize("process", REPEATS.values(), ids=REPEATS)
@pytest.mark.parametrize("library", [dill, cloudpickle])
def test_an_operator_that_computes_again_is_pickled(tmp_path, process, library):
    operator = repeated(tmp_path, process)
    copy = library.loads(library.dumps(operator))
    row = rollouts().slice(5, 1).append_column("__dj__hash", pa.array(["old"])).to_pydict()

    def computed(by):
        before = {**row, "__dj__stats__": [{"text_len": -1, "num_words": -1}]}
        return getattr(by, "compute_hash" if isinstance(by, Deduplicator) else "compute_stats")(
            before
        )

    assert repr(computed(copy)) == repr(computed(operator))
    assert computed(copy)["__dj__stats__"] != [{}]


def test_an_actor_of_ray_computes_again(tmp_path):
    """It makes another operator of the class, in another process."""
    operator = repeated(tmp_path, STATISTICS)
    kind = cloudpickle.loads(cloudpickle.dumps(type(operator)))
    copy = kind(*operator._init_args, **operator._init_kwargs)
    batch = {"response": ["abc"], "__dj__stats__": [{"text_len": 9, "num_words": 1}]}
    assert copy(batch)["__dj__stats__"] == [{"text_len": 3, "num_words": 1}]


def test_two_processes_compute_again(tmp_path):
    process = [*STATISTICS[:2], {"text_length_filter": {"text_key": "response", "max_len": 11}}]
    path = written(tmp_path, process, np=2)
    assert without_helpers(of_data_juicer(path)) == of_rejuice(path)


def test_what_was_cached_without_us_is_not_used(tmp_path):
    process = [STATISTICS[0], STATISTICS[0]]
    first, second = loaded(written(tmp_path, process))
    assert first._fingerprint_bytes() != second._fingerprint_bytes()


class Resumed(ExecutorBase):
    """An executor of Data-Juicer that goes on after some steps, as far as it loads the others."""

    def __init__(self, cfg, done):
        self.cfg, self.done = cfg, cfg.process[:done]
        record = Path(cfg.export_path).with_name("ckpt_op.json")
        record.write_text(json.dumps(self.done))
        self.ckpt_manager = SimpleNamespace(ckpt_available=True, ckpt_op_record=record)
        self.exporter = SimpleNamespace(export_path=cfg.export_path)

    def run(self):
        return ops.load_ops(self.cfg.process[len(self.done) :])


def test_the_steps_of_a_checkpoint_count(tmp_path):
    settings = configured(written(tmp_path, STATISTICS))
    (rest,) = Resumed(settings, 2).run()
    assert hasattr(rest, "computes_again")
    (other,) = ops.load_ops(settings.process[1:2])
    assert not hasattr(other, "computes_again")
    assert not [name for name in OPERATORS.modules if " " in name]


def test_executors_load_and_fuse_with_ours():
    for module in (default_executor, ray_executor):
        assert module.load_ops is ops.load_ops
        assert module.fuse_operators is op_fusion.fuse_operators
    for function in (ops.load_ops, op_fusion.fuse_operators):
        assert function.__wrapped__ is not function


def test_filters_are_fused_whichever_way_the_arguments_are_given():
    operators = ops.load_ops([{"words_num_filter": {}}, {"length_filter": {"min": 1}}])
    assert op_fusion.fuse_operators(operators, None, True, 0.9) == operators


def test_operators_that_repeat_nothing_are_data_juicers_own():
    process = [*STATISTICS[:2], {"clean_links_mapper": {}}, {"document_deduplicator": {}}]
    operators = ops.load_ops(process)
    assert [type(op) for op in operators] == [
        OPERATORS.modules[name] for entry in process for name in entry
    ]
    assert all(op._op_cfg is entry for op, entry in zip(operators, process, strict=True))


@pytest.mark.parametrize("process", [STATISTICS[:1], STATISTICS], ids=["once", "repeated"])
def test_the_partitioned_executor_loads_operators(tmp_path, process):
    """Its manager of checkpoints is of another kind than the default executor's."""

    class Partitioned(PartitionedRayExecutor):
        def __init__(self, cfg):
            self.cfg, self.exporter = cfg, SimpleNamespace(export_path=cfg.export_path)
            self.ckpt_manager = RayCheckpointManager(ckpt_dir=str(tmp_path / "ckpt"))

        def run(self):
            return ops.load_ops(self.cfg.process)

    operators = Partitioned(configured(written(tmp_path, process))).run()
    assert [op._name for op in operators] == [name for each in process for name in each]
    assert hasattr(operators[-1], "computes_again") == (len(process) > 1)


def test_the_names_of_all_statistics_are_known():
    """And which of Data-Juicer's operators share one."""
    owners = {}
    for name, kind in OPERATORS.modules.items():
        if not issubclass(kind, Filter | Deduplicator) or name in NON_STATS_FILTERS.modules:
            continue
        fields = {"field_key": "share"}
        for key in patches.computed_names(kind, fields) or {
            name if issubclass(kind, Filter) else ""
        }:
            owners.setdefault(key, []).append(name)
    assert not set(owners) & set(OPERATORS.modules)
    motion = ["video_motion_score_filter"]
    motion += ["video_motion_score_ptlflow_filter", "video_motion_score_raft_filter"]
    assert {key: names for key, names in owners.items() if len(names) > 1 and key} == {
        "share": ["specified_field_filter", "specified_numeric_field_filter"],
        "video_motion_score": motion,
        "__dj__hash": ["document_deduplicator", "image_deduplicator", "video_deduplicator"],
        "__dj__is_unique": [f"ray_{kind}_deduplicator" for kind in ("document", "image", "video")],
        "__dj__minhash": [
            "document_minhash_deduplicator",
            "document_minhash_deduplicator_with_uid",
        ],
    }
    of_others = ["ray_bts_minhash_cpp_deduplicator", "ray_bts_minhash_deduplicator"]
    assert owners[""] == [*of_others, "ray_bts_minhash_deduplicator_with_uid"]
