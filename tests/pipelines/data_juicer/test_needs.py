"""What operators of Data-Juicer need, and those that ask a server."""

import json
import threading

import pyarrow as pa
import pytest

from rejuice.operators import OperatorError, RecipeError
from rejuice.pipelines import recipe
from rejuice.pipelines.data_juicer import (
    catalogue,
    failures,
    run_operator,
    settings,
    static_checks,
    steps,
    tables,
)
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.plan import default_chunk_rows
from rejuice.pipelines.engine.steps import compute_change

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow


ROWS = pa.table({"text": [f"{'good' if n % 3 else 'bad'} text {n}" for n in range(40)]})
OPENAI = "it needs openai, which is not installed; pip install openai"


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("llm_quality_score_filter", {}, OPENAI),
        ("llm_quality_score_filter", {"enable_vllm": True}, OPENAI.replace("openai", "vllm")),
        ("llm_quality_score_filter", {"model_params": {"api_backend": "litellm"}}, OPENAI.replace("openai", "litellm")),
        ("extract_keyword_mapper", {"model_params": {"api_key": "x"}}, OPENAI),
        ("dialog_topic_shift_mapper", {}, OPENAI),
        ("words_num_filter", {"tokenization": True}, OPENAI.replace("openai", "sentencepiece")),
        ("perplexity_filter", {}, "it needs sentencepiece and kenlm, which are not installed; pip install sentencepiece kenlm"),
        ("sentence_split_mapper", {}, OPENAI.replace("openai", "nltk")),
        ("image_face_count_filter", {}, OPENAI.replace("openai", "opencv-contrib-python")),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_known_before_a_run(monkeypatch, name, fields, message):
    """Whatever is installed where the suite runs: nothing of it counts."""
    monkeypatch.setattr(
        static_checks, "find_spec", lambda name: name in ("torch", "transformers") or None
    )
    with pytest.raises(RecipeError) as raised:
        steps.step(name, fields)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("text_length_filter", {}),
        ("words_num_filter", {}),
        ("llm_quality_score_filter", {"is_hf_model": True}),
        ("optimize_qa_mapper", {}),
        ("text_embd_similarity_filter", {"is_hf_model": True}),
    ],
)
def test_what_the_fields_do_not_use_is_not_needed(monkeypatch, name, fields):
    monkeypatch.setattr(
        static_checks, "find_spec", lambda name: name in ("torch", "transformers") or None
    )
    assert steps.step(name, fields).name() == name


@pytest.mark.recommended("pipelines/data_juicer/steps.py", "pip install {…}")
def test_check_says_what_is_missing_and_where(tmp_path, monkeypatch):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: None)
    path = tmp_path / "r.yaml"
    path.write_text("dataset_path: a.jsonl\nexport_path: b.jsonl\nprocess:\n- fix_unicode_mapper\n")
    with pytest.raises(RecipeError) as raised:
        recipe.load(path)
    assert str(raised.value) == (
        f"{path}, line 4, step 1 fix_unicode_mapper: it needs torch and ftfy, which are not "
        "installed; pip install torch ftfy"
    )


@pytest.mark.recommended("pipelines/data_juicer/failures.py", "pip install {…}")
def test_a_package_that_is_missed_while_it_runs(monkeypatch, capfd):
    from data_juicer.utils.lazy_loader import LazyLoader

    def run(self, dataset):
        return LazyLoader("no_such_module", "no-such-package").anything

    monkeypatch.setattr(run_operator, "_load", _loads(run))
    monkeypatch.setattr(run_operator, "_instances", {})
    with pytest.raises(OperatorError) as raised:
        compute_change(steps.step("whitespace_normalization_mapper", {}), Frame.of(ROWS))
    assert str(raised.value) == (
        "needs no-such-package, which is not installed; pip install no-such-package"
    )
    assert capfd.readouterr() == ("", "")


def _loads(run):
    def load(name, fields):
        return type("Operator", (), {"run": run})()

    return load


@pytest.mark.parametrize(
    "name",
    ["llm_quality_score_filter", "fix_unicode_mapper", "nlpaug_en_mapper", "sentence_split_mapper"],
)
def test_what_is_reported_as_missing_is_what_the_operator_misses(monkeypatch, name):
    monkeypatch.setattr(run_operator, "_instances", {})
    missing = static_checks.check(catalogue.find(name).cls, settings.arguments({})).missing
    if not missing:
        pytest.skip("it is installed here")
    rows = ROWS.slice(0, 2).append_column(tables.ROW, pa.array([0, 1]))
    with pytest.raises(failures.NotInstalledError) as raised, failures.no_installs():
        run_operator._run_foreign(name, name, {}, rows)
    assert raised.value.package in missing


# Operators that ask a server


class Model:
    """A model that answers when as many requests wait as may wait at once."""

    def __init__(self, at_once, answer):
        self.barrier, self.answer = threading.Barrier(at_once), answer
        self.to = lambda device: self

    def __call__(self, messages, **_):
        self.barrier.wait(timeout=120)
        return self.answer(messages[-1]["content"])


def scores(text):
    return json.dumps({"dimension_scores": dict.fromkeys(DIMENSIONS, 5 if "good" in text else 1)})


DIMENSIONS = ("accuracy", "grammar", "informativeness", "coherence")


@pytest.fixture
def model(monkeypatch):
    """What `prepare_model` makes, whatever is installed."""
    monkeypatch.setattr(static_checks, "find_spec", lambda name: True)
    monkeypatch.setattr(run_operator, "_instances", {})
    from data_juicer.utils import model_utils

    def serve(at_once, answer):
        made = Model(at_once, answer)
        monkeypatch.setitem(model_utils.MODEL_FUNCTION_MAPPING, "api", lambda **_: made)

    return serve


@pytest.mark.parametrize(("fields", "at_once"), [({}, 20), ({"num_proc": 4}, 4)])
def test_a_filter_that_asks_a_server_has_many_requests_at_once(model, monkeypatch, fields, at_once):
    monkeypatch.setattr(run_operator, "REQUESTS", 20)
    model(at_once, scores)
    step = steps.step("llm_quality_score_filter", {"dim_required_keys": list(DIMENSIONS), **fields})
    reasons = compute_change(step, Frame.of(ROWS)).reasons.to_pylist()
    gone = "llm_quality_score_filter"
    assert reasons == [None if n % 3 else gone for n in range(40)]


def test_a_mapper_that_asks_a_server_has_many_requests_at_once(model):
    model(8, lambda text: f"<{text[-30:]}>")
    rows = ROWS.append_column("query", ROWS["text"]).append_column("response", ROWS["text"])
    step = steps.step("calibrate_response_mapper", {"num_proc": 8})
    written = compute_change(step, Frame.of(rows)).columns
    assert list(written) == ["response"]
    assert len(set(written["response"].to_pylist())) == 40


def test_a_row_that_fails_stops_the_step_and_no_other_is_asked_for_again(model):
    asked = []
    model(1, lambda text: asked.append(text) or "")
    queries = pa.array(["q"] * 39 + [None])
    rows = ROWS.append_column("query", queries).append_column("response", ROWS["text"])
    fields = {"num_proc": 1, "input_template": "{qa_pair}", "qa_pair_template": "{0.real} {1}"}
    with pytest.raises(OperatorError) as raised:
        compute_change(steps.step("calibrate_response_mapper", fields), Frame.of(rows))
    assert str(raised.value) == (
        "failed with AttributeError: 'str' object has no attribute 'real', in rows 1 to 40"
    )
    assert asked == []


def test_steps_that_ask_a_server_work_in_small_chunks(monkeypatch):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: True)
    asks = steps.step("llm_quality_score_filter", {})
    loads = steps.step("llm_quality_score_filter", {"is_hf_model": True})
    plain = steps.step("text_length_filter", {})
    assert (asks.asks_server, loads.asks_server, plain.asks_server) == (True, False, False)
    assert default_chunk_rows([plain, asks]) == 256
    assert default_chunk_rows([plain, loads]) == 65_536


def test_how_many_requests_wait_does_not_change_the_cache_key(monkeypatch):
    monkeypatch.setattr(static_checks, "find_spec", lambda name: True)
    keys = [
        steps.step("llm_quality_score_filter", fields).cache_key_fields()
        for fields in ({}, {"num_proc": 4}, {"min_score": 0.1})
    ]
    assert keys[0] == keys[1] != keys[2]
