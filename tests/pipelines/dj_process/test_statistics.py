"""Old statistics of a row decide nothing, however a filter of Data-Juicer's is run."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from two_runners import (
    check_equal,
    configured,
    of_data_juicer,
    of_rejuice,
    rollouts,
    without_helpers,
    written,
)

pytest.importorskip("data_juicer")
from data_juicer.core.data import NestedDataset
from data_juicer.core.executor.base import ExecutorBase
from data_juicer.ops import load_ops
from datasets import Dataset

pytestmark = pytest.mark.slow

SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
LENGTH = {"text_length_filter": {"text_key": "response", "min_len": 4}}
WORDS = [
    {"words_num_filter": {"text_key": "response", "min_num": 3}},
    {"word_repetition_filter": {"text_key": "response", "rep_len": 1, "max_ratio": 0.9}},
]
_OLD = {"text_len": 7, "num_words": 7, "word_rep_ratio": 0.0}
STALE = rollouts().append_column("__dj__stats__", pa.array([_OLD] * rollouts().num_rows))


class Resumed(ExecutorBase):
    """What is left of Data-Juicer's where a checkpoint has the first step."""

    def __init__(self, cfg, folder):
        record = folder / "ckpt_op.json"
        record.write_text(json.dumps(cfg.process[:1]))
        self.ckpt_manager = SimpleNamespace(ckpt_available=True, ckpt_op_record=str(record))
        cfg.process = cfg.process[1:]
        self.cfg, self.exporter = cfg, SimpleNamespace(export_path=cfg.export_path)

    def run(self):
        return load_ops(self.cfg.process)


def test_the_steps_of_a_checkpoint_count(tmp_path):
    path = written(tmp_path, [SUM, LENGTH])
    operators = Resumed(configured(path), tmp_path).run()
    rows = NestedDataset(Dataset(STALE)).process(operators, open_monitor=False)
    kept = [row["response_id"] for row in rows]
    assert kept == [row["response_id"] for row in of_rejuice(path)]
    assert 0 < len(kept) < STALE.num_rows


def test_fused_filters_compute_again(tmp_path):
    rows = check_equal(written(tmp_path, [SUM, *WORDS]), table=STALE, fuse=True)
    assert 0 < len(rows) < STALE.num_rows


@pytest.mark.parametrize("np", [1, 2])
def test_filters_of_a_fused_operator_compute_again(tmp_path, np):
    """In other processes, too: they have less of the operator."""
    expected = of_rejuice(written(tmp_path, [SUM, LENGTH]))
    fused = {"general_fused_op": {"batch_size": 9, "num_proc": np, "fused_op_list": [LENGTH]}}
    path = written(tmp_path, [SUM, fused], np=np)
    assert repr(without_helpers(of_data_juicer(path, STALE))) == repr(expected)
