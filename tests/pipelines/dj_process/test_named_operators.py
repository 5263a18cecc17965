"""Each operator of Data-Juicer that recipes or docs name gives the same ten rows both ways.

`dj-process` runs them all in one process; those that ask a server, in another one, beside a server
that answers. `test_both_ways.py` has more operators and fields, without the command line.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import both_ways
import pyarrow.parquet as pq
import pytest
import yaml
from djrows import rows
from fake_model import DIMENSIONS, FakeModel

from rejuice.pipelines import load, run
from rejuice.pipelines.data_juicer import catalogue, steps

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
STUB = str(ROOT / "tests" / "support" / "openai_stub")
TEN = [1, 2, 9, 12, 13, 15, 16, 22, 0, 25]
FIELDS = {name: sets[0] for name, sets in both_ways.effective_fields().items()} | {
    "document_deduplicator": {"text_key": "label"},
    "document_minhash_deduplicator": {"text_key": "label", "window_size": 1},
    "ray_document_deduplicator": {"text_key": "label"},
    "text_length_filter": {"min_len": 12, "max_len": 100},
    "topk_specified_field_selector": {"field_key": "n", "topk": 4},
    "words_num_filter": {"min_num": 4},
}
OF_SERVERS = {
    "calibrate_qa_mapper": {},
    "extract_event_mapper": {
        "text_key": "response",
        "output_pattern": r"(\#\#\#\ 1\.)\ (.*?)\*\*b\*\*:\ (.*)",
    },
    "llm_quality_score_filter": {"dim_required_keys": DIMENSIONS, "input_keys": ["query"]},
}
OUT_OF_REACH = {
    "nlpaug_en_mapper": "the package nlpaug is not among those of the tests",
    "nlpcda_zh_mapper": "what it makes is drawn at random",
    "optimize_prompt_mapper": "it draws the prompts of a batch at random",
    "query_topic_detection_mapper": "it needs a model of the hub",
}


def named():
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.yaml"), ROOT / "README.md"]
    words = set(re.findall(r"\w+", " ".join(file.read_text("utf-8") for file in files)))
    return sorted(words & set(catalogue.names()))


NAMED = named()


def written(folder, table, process):
    """The recipe for each way, and its export."""
    pq.write_table(table, folder / "rows.parquet")
    found = {}
    for way in ("ours", "theirs"):
        head = {"dataset_path": str(folder / "rows.parquet"), "np": 1, "skip_op_error": False}
        head |= {"export_path": str(folder / way / "out.parquet")}
        head |= {"keep_stats_in_res_ds": True}  # Some write tags and nothing else.
        head |= {"ds_cache_dir": str(folder / "cache"), "open_monitor": False}
        path = folder / f"{way}.yaml"
        path.write_text(yaml.safe_dump({**head, "process": process}, allow_unicode=True))
        found[way] = path, Path(head["export_path"])
    return found


def check_equal(table, ours, theirs):
    one, other = pq.read_table(ours), pq.read_table(theirs)
    assert one.column_names == other.column_names
    assert repr(one.to_pylist()) == repr(other.to_pylist())
    assert one.num_rows > 0
    assert repr(one.to_pylist()) != repr(table.to_pylist()), "it has no effect"


def test_every_named_operator_is_here():
    assert set(NAMED) <= {*FIELDS, *OF_SERVERS, *OUT_OF_REACH}
    assert len(NAMED) > 15


@pytest.mark.parametrize("name", [n for n in NAMED if n not in {*OF_SERVERS, *OUT_OF_REACH}])
def test_ten_rows_both_ways(dj_process_of, tmp_path, name):
    table = rows(tmp_path, 1).take(TEN)
    fields = both_ways.located(FIELDS[name], tmp_path)
    process = [{"length_filter": {"column": "text", "min": 0}}, {name: fields}]
    made = written(tmp_path, table, process)
    run(load(made["ours"][0]))
    ran = dj_process_of("default")(tmp_path, "--config", str(made["theirs"][0]))
    assert ran.returncode == 0, ran.log[-3000:]
    check_equal(table, made["ours"][1], made["theirs"][1])


class Answers(FakeModel):
    def usual(self, seed):
        scores = super().usual(seed) if seed % 3 else super().usual(seed).replace("5", "1")
        return f"【问题】\n### 1. **a**: event {seed}. **b**: ann\n【回答】\n{scores}"


@pytest.mark.parametrize("name", OF_SERVERS)
def test_ten_rows_of_an_operator_that_asks_a_server(tmp_path, monkeypatch, name):
    import importlib

    from data_juicer.utils import model_utils

    table = rows(tmp_path, 1).take(TEN).select(["text", "n"])
    for column in ("query", "response"):
        table = table.append_column(column, [[f"row {k}" for k in range(10)]])
    monkeypatch.syspath_prepend(STUB)
    monkeypatch.delitem(sys.modules, "openai", raising=False)
    monkeypatch.setattr(model_utils, "openai", importlib.import_module("openai"))
    monkeypatch.setattr(steps, "_instances", {})
    with Answers() as server:
        params = {"base_url": server.url, "api_key": "k"}
        model = steps.model_field(catalogue.get(name))
        fields = {**OF_SERVERS[name], model: "m", "model_params": params}
        made = written(
            tmp_path, table, [{"length_filter": {"column": "text", "min": 0}}, {name: fields}]
        )
        run(load(made["ours"][0]))
        command = [Path(sys.executable).with_name("dj-process"), "--config", made["theirs"][0]]
        offline = {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1", "PYTHONPATH": STUB}
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **offline}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-3000:]
    check_equal(table, made["ours"][1], made["theirs"][1])
