"""What fails inside Data-Juicer's operators is counted and shown; a server that is lost ends a run."""

import asyncio
import importlib
import inspect
import json
import sys
import threading
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_of import change_of
from command import runner
from fake_model import DIMENSIONS, FakeModel, Trouble
from loguru import logger

from rejuice.operators import EngineError
from rejuice.pipelines.data_juicer import catalogue, steps
from rejuice.pipelines.data_juicer.failures import watching
from rejuice.pipelines.data_juicer.steps import model_field
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.plan import default_chunk_rows
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow

model_utils = pytest.importorskip("data_juicer.utils.model_utils")

FILTER, MAPPER = "llm_quality_score_filter", "optimize_response_mapper"
ROWS = 24
FAILED = "llm_call_failed"


@pytest.fixture(autouse=True)
def small_openai(monkeypatch):
    """The package `openai` that Data-Juicer asks servers with, whatever is installed."""
    folder = str(Path(__file__).parents[2] / "support" / "openai_stub")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)  # For worker processes.
    monkeypatch.delitem(sys.modules, "openai", raising=False)
    monkeypatch.setattr(model_utils, "openai", importlib.import_module("openai"))
    monkeypatch.setattr(steps, "_instances", {})
    for name in (*steps._URLS, *steps._KEYS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model():
    with FakeModel() as server:
        yield server


@pytest.fixture
def recipe_of(recipe_file):
    def make(server, name=FILTER, *, model="m", rows=ROWS, np=1, steps=(), **fields):
        kind = catalogue.find(name)
        params = {"base_url": server.url, "api_key": "k", "max_retries": 0}
        step = {
            model_field(kind): model,
            "try_num": 2,
            "model_params": params,
            **fields,
        }
        usual = {"is_hf_model": False, "dim_required_keys": DIMENSIONS, "input_keys": ["text"]}
        step = {key: value for key, value in usual.items() if key in kind.fields} | step
        data = [{"text": f"row {k}", "query": f"row {k}", "response": f"r{k}"} for k in range(rows)]
        return recipe_file([*steps, {name: step}], data, np=np)

    return make


def kept(path):
    return pq.read_table(load(path).head.export_path)["text"].to_pylist()


def of_rows(numbers):
    return [f"row {k}" for k in numbers]


def commits(path):
    return sorted((path.parent / "out" / ".rejuice").glob(f"{FILTER}-*/*.arrow"))


# A server that is dead


def test_a_server_that_is_dead_ends_the_run_before_the_first_row(
    recipe_of, model, monkeypatch, capsys
):
    model.kill()
    path = recipe_of(model)
    status, _, err = runner(monkeypatch, capsys, path.parent)("run", path.name)
    (line,) = err.splitlines()
    assert status == 2
    assert line.startswith(
        f"rejuice: {path.name}, line 4, step 1 {FILTER}: {model.url} could not be reached: connection refused"
    )
    assert line.endswith("; is the server up?")
    assert not (path.parent / "out" / "curated.parquet").exists()
    assert commits(path) == []


class DiesAt(FakeModel):
    """Is killed by the request about a row."""

    def __init__(self, row):
        self.row = row
        super().__init__()

    def answer(self, path, body, seed, attempt, n):
        if seed == self.row:
            self.row = None
            self._killed = asyncio.ensure_future(self._kill())
        return super().answer(path, body, seed, attempt, n)


def test_a_key_that_is_not_set_is_missed_before_the_first_row(recipe_of, model):
    path = recipe_of(model, model_params={"base_url": model.url})
    with pytest.raises(EngineError) as raised:
        engine.run(load(path))
    assert str(raised.value).endswith(
        f"it has no key for {model.url}; give OPENAI_API_KEY; a server of your own takes any value"
    )


def test_a_server_that_dies_ends_the_run_and_the_next_run_continues(recipe_of):
    with DiesAt(row=13) as server:
        path = recipe_of(server, num_proc=1)
        with pytest.raises(EngineError) as raised:
            engine.run(load(path), chunk_rows=4)
        assert str(raised.value) == (
            f"{path}, line 4, step 1 {FILTER}: {server.url} could not be reached: [Errno 111] "
            "Connection refused; is the server up? then run again: finished chunks are kept"
        )
        assert len(commits(path)) == 3
        server.start()
        engine.run(load(path), chunk_rows=4)
        assert kept(path) == of_rows(range(ROWS))
        assert [server.attempts[k] for k in range(12)] == [1] * 12, "finished chunks were kept"


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (Trouble.NO_KEY, "is the key right? see OPENAI_API_KEY"),
        (Trouble.NOT_FOUND, "does it have the model 'm', and is its address right? see model_params: {base_url: ...} or OPENAI_BASE_URL"),
    ],
)  # fmt: skip
def test_a_server_that_refuses_all_requests_ends_the_run(recipe_of, model, trouble, message):
    model.always = trouble
    path = recipe_of(model)
    with pytest.raises(EngineError) as raised:
        engine.run(load(path))
    assert str(raised.value) == (
        f"{path}, line 4, step 1 {FILTER}: {model.url} refuses requests: Error code: "
        f"{trouble.value} - {{'error': {{'message': '{trouble.value}'}}}}; {message}"
    )
    assert commits(path) == []


def test_a_model_that_is_not_served_is_known_before_the_first_row(recipe_of, model):
    model.always = Trouble.NOT_FOUND
    path = recipe_of(model, model="big")
    with pytest.raises(EngineError, match=r"the server has no model 'big'; it has m, other$"):
        engine.run(load(path))


def test_finished_steps_need_no_server(recipe_of, model):
    path = recipe_of(model)
    engine.run(load(path))
    model.kill()
    engine.run(load(path), overwrite=True)
    assert kept(path) == of_rows(range(ROWS))


# A server that is half dead

THIRD = range(0, ROWS, 3)


def test_rows_without_an_answer_are_no_zeros(recipe_of, model):
    """The scores of the others are as if the server were well; a failed call keeps no row.

    It is Data-Juicer's client that asks, and each of these faults is another exception in it.
    """
    faults = (Trouble.ERROR_500, Trouble.HTML, Trouble.WRONG_JSON, Trouble.EMPTY, Trouble.RESET)
    model.script = {k: [fault] * 2 for k, fault in zip(THIRD, cycle(faults), strict=False)}
    path = recipe_of(model, min_score=0.0)
    report = engine.run(load(path), chunk_rows=10)
    (line,) = report.steps
    assert line.dropped == {FAILED: len(THIRD)}
    assert sum(line.logged.values()) >= 2 * len(THIRD)
    assert kept(path) == of_rows(k for k in range(ROWS) if k % 3)
    again = engine.run(load(path), overwrite=True, chunk_rows=10)
    assert again.steps[0].logged == line.logged, "they are committed with the chunk"
    assert again.steps[0].cached


@pytest.mark.parametrize("says", ["no JSON", "", '{"dimension_scores": {"grammar": 5}}'])
def test_an_answer_that_cannot_be_read_is_no_zero(recipe_of, model, says):
    model.says = {k: [says] for k in THIRD}
    path = recipe_of(model, min_score=0.0)
    assert engine.run(load(path)).steps[0].dropped == {FAILED: len(THIRD)}


def test_an_attempt_that_succeeds_after_a_warning_is_no_failure(recipe_of, model):
    model.script = {k: [Trouble.ERROR_500] for k in THIRD}
    path = recipe_of(model, min_score=0.0)
    (line,) = engine.run(load(path)).steps
    assert line.dropped == {}
    assert line.logged == {"ERROR Error code: 500 - {'error': {'message': '500'}}": len(THIRD)}


def test_a_low_score_is_no_failure_and_a_warning_about_the_recipe_is_none(recipe_of, model):
    low = json.dumps({"dimension_scores": dict.fromkeys(DIMENSIONS, 1)})
    model.says = {k: [low] for k in THIRD}
    (line,) = engine.run(load(recipe_of(model))).steps
    assert (line.dropped, line.logged) == ({FILTER: len(THIRD)}, {})
    model.says = {k: ['{"tags": {}}'] for k in range(ROWS)}
    path = recipe_of(model, "llm_analysis_filter")
    (line,) = engine.run(load(path), overwrite=True).steps
    ((message, n),) = line.logged.items()
    assert message.startswith("WARNING Either dimension_scores is empty or dim_required_keys is ")
    assert (line.dropped, n) == ({}, ROWS)


class Optimizes(FakeModel):
    def usual(self, seed):
        return f"better {seed}"


def test_a_mapper_leaves_the_rows_without_an_answer_as_they_are(recipe_of):
    with Optimizes({k: [Trouble.ERROR_500] * 2 for k in THIRD}) as server:
        path = recipe_of(server, MAPPER)
        (line,) = engine.run(load(path), chunk_rows=10).steps
    assert (line.rows_out, line.notes) == (ROWS, {FAILED: len(THIRD)})
    responses = pq.read_table(load(path).head.export_path)["response"].to_pylist()
    assert responses == [f"better {k}" if k % 3 else f"r{k}" for k in range(ROWS)]


def test_a_mapper_that_gets_no_answer_at_all_ends_with_an_error(recipe_of, monkeypatch, capsys):
    with Optimizes(always=Trouble.ERROR_500) as server:
        path = recipe_of(server, MAPPER)
        status, _, err = runner(monkeypatch, capsys, path.parent)("run", path.name)
    assert status == 1
    assert err.splitlines()[-1] == (
        f"rejuice: {path.name}, line 4, step 1 {MAPPER}: none of 24 rows was answered by its "
        f"server; fix that and add --retry_missing {MAPPER}, or accept it with --allow_empty"
    )


def test_the_run_and_its_report_show_what_failed(recipe_of, model, monkeypatch, capsys):
    model.script = {k: [Trouble.ERROR_500] * 2 for k in THIRD}
    path = recipe_of(model, min_score=0.0)
    run = runner(monkeypatch, capsys, path.parent)
    status, out, err = run("run", path.name)
    shown = f"{FILTER}: logged 16 times: ERROR Error code: 500 - {{'error': {{'message': '500'}}}}"
    assert (status, err) == (0, "")
    assert shown in out.splitlines()
    assert f"{FAILED} 8" in out
    assert shown in run("report", "out/curated.parquet")[1].splitlines()


def test_worker_processes_count_as_well(recipe_of, model):
    model.script = {k: [Trouble.ERROR_500] * 2 for k in THIRD}
    path = recipe_of(model, min_score=0.0, np=2)
    report = engine.run(load(path), chunk_rows=6)
    assert report.steps[0].dropped == {FAILED: 8}
    assert list(report.steps[0].logged.values()) == [16]


# What these need beside a server, and fields without which they ask nothing.
NEEDED = {
    "relation_identity_mapper": {"source_entity": "a", "target_entity": "b"},
    "extract_entity_attribute_mapper": {"query_entities": ["a", "c"], "query_attributes": ["b"]},
    "llm_condition_filter": {"condition": "it is good"},
    "llm_extract_mapper": {"input_keys": ["text"], "output_schema": {"a": "what it is"}},
    "llm_task_relevance_filter": {"task_desc": "d", "valid_dataset": [{"text": "v"}]},
}
OTHERS = {  # They read what other steps tag, or embeddings.
    "agent_skill_insight_mapper", "extract_support_text_mapper", "optimize_prompt_mapper",
    "pii_llm_suspect_mapper", "text_embd_similarity_filter", "extract_event_mapper",
}  # fmt: skip


def test_every_operator_that_asks_row_by_row_names_the_rows_that_failed(recipe_of):
    for name, kind in asking():
        if name in OTHERS:
            continue
        with FakeModel({k: [Trouble.ERROR_500] * 6 for k in THIRD}) as server:
            path = recipe_of(server, name, **NEEDED.get(name, {}))
            (line,) = engine.run(load(path), overwrite=True).steps
        found = line.dropped if kind.kind == "filter" else line.notes
        assert found[FAILED] == len(THIRD), name


class FindsEvents(FakeModel):
    def usual(self, seed):
        return f"### 1. **a**: event {seed}. **b**: ann"


EVENTS = {"output_pattern": r"(\#\#\#\ 1\.)\ (.*?)\*\*b\*\*:\ (.*)"}


@pytest.mark.parametrize("answered", [True, False])
def test_a_mapper_that_works_on_batches_counts_calls_or_ends_the_run(recipe_of, answered):
    failing = THIRD if answered else range(ROWS)
    with FindsEvents({k: [Trouble.ERROR_500] * 2 for k in failing}) as server:
        path = recipe_of(server, "extract_event_mapper", **EVENTS)
        if answered:
            (line,) = engine.run(load(path)).steps
            assert line.notes == {"llm_calls_failed": 8}
            assert line.dropped == {"extract_event_mapper": 8}
            return
        with pytest.raises(EngineError) as raised:
            engine.run(load(path))
        assert str(raised.value) == (
            f"{path}, line 4, step 1 extract_event_mapper: {server.url} answered none of 24 calls: "
            "Error code: 500 - {'error': {'message': '500'}}; its log may say why"
        )


def test_a_server_beyond_a_proxy_is_not_tried_without_it(model, monkeypatch):
    """Its address may be known to the proxy alone."""
    model.kill()
    asked = steps.Server(model.url, "k", "m")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "")
    asked.check()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(EngineError, match="could not be reached"):
        asked.check()


# What failed is asked for again


def test_only_rows_without_an_answer_are_filtered_again(recipe_of, model):
    model.script = {k: [Trouble.ERROR_500] * 2 for k in THIRD}
    model.says = {3: [json.dumps({"dimension_scores": dict.fromkeys(DIMENSIONS, 1)})]}
    path = recipe_of(model, steps=[{"text_length_filter": {"min_len": 1}}])
    engine.run(load(path), chunk_rows=10)
    asked = model.attempts.copy()
    model.script[6] = [Trouble.ERROR_500] * 4
    report = engine.run(load(path), chunk_rows=10, retry_missing=FILTER)
    assert model.attempts - asked == dict.fromkeys(THIRD, 1) | {6: 2}
    line = report.steps[1]
    assert (line.retried, line.dropped) == (8, {FILTER: 1, FAILED: 1})
    assert kept(path) == of_rows(k for k in range(ROWS) if k not in (3, 6))
    last = engine.run(load(path), chunk_rows=10, retry_missing=FILTER).steps[1]
    assert (last.retried, last.dropped) == (1, {FILTER: 1})


@pytest.mark.parametrize("answered", [True, False])
def test_only_rows_without_an_answer_are_mapped_again(recipe_of, answered):
    """Also where no row of a chunk was answered, so that the step wrote no column."""
    without = THIRD if answered else range(ROWS)
    with Optimizes({k: [Trouble.ERROR_500] * 2 for k in without}) as server:
        path = recipe_of(server, MAPPER)
        engine.run(load(path), chunk_rows=10)
        asked = server.attempts.copy()
        (line,) = engine.run(load(path), chunk_rows=10, retry_missing=MAPPER).steps
        assert server.attempts - asked == dict.fromkeys(without, 1)
    assert (line.retried, line.notes) == (len(without), {})
    responses = pq.read_table(load(path).head.export_path)["response"].to_pylist()
    assert responses == [f"better {k}" for k in range(ROWS)]


# What is logged


def library(name="data_juicer.ops.made_up"):
    """A function of a module of that name, which logs."""
    code = "def log(level, message):\n    logger.log(level, message)\n"
    exec(code, made := {"__name__": name, "logger": logger})
    return made["log"]


@pytest.fixture
def loguru():
    """Loguru as it was: it is the program's, not ours."""
    core = logger._core
    patcher, handlers = core.patcher, dict(core.handlers)
    yield
    logger.configure(patcher=patcher)
    for number in set(core.handlers) - set(handlers):
        logger.remove(number)


@pytest.mark.usefixtures("loguru")
def test_a_handler_of_the_users_sees_only_what_is_logged_outside_of_steps():
    seen, patched = [], []
    logger.configure(patcher=lambda record: patched.append(record["message"]))
    handler = logger.add(lambda message: seen.append(message.record["message"]), level=0)
    log, mine = library(), library("mine")
    with watching() as watch:
        for level in ("DEBUG", "INFO", "WARNING", "ERROR"):
            log(level, f"in the step: {level}")
        mine("WARNING", "of the user's own operator")
    log("WARNING", "outside of steps")
    logger.remove(handler)
    assert watch.logged == {"ERROR in the step: ERROR": 1, "WARNING in the step: WARNING": 1}
    assert seen == ["of the user's own operator", "outside of steps"]
    assert len(patched) == 6, "the program's own patcher is still called"


# Seams


def asking():
    for name in catalogue.names():
        kind = catalogue.find(name)
        if steps.asks_server(kind, {}):
            yield name, kind


def test_every_operator_that_asks_a_server_keeps_its_client_as_model_key():
    """That is where its calls are watched."""
    names = dict(asking())
    assert len(names) > 20
    for name, kind in names.items():
        texts = [inspect.getsource(base) for base in kind.cls.__mro__[:-1]]
        assert any("self.model_key = prepare_model(" in text for text in texts), name
        assert steps.server(kind, {}).model, name


# Many requests at once


class Gate:
    """A model that answers when as many requests wait as may wait at once."""

    def __init__(self, at_once):
        self.barrier = threading.Barrier(at_once)
        self.to = lambda device: self

    def __call__(self, messages, **_):
        self.barrier.wait(timeout=120)
        score = 5 if "good" in messages[-1]["content"] else 1
        return json.dumps({"dimension_scores": dict.fromkeys(DIMENSIONS, score)})


@pytest.mark.parametrize(("fields", "at_once"), [({}, 20), ({"num_proc": 4}, 4)])
def test_many_requests_wait_at_once(monkeypatch, fields, at_once):
    monkeypatch.setattr(steps, "REQUESTS", 20)
    made = Gate(at_once)
    monkeypatch.setitem(model_utils.MODEL_FUNCTION_MAPPING, "api", lambda **_: made)
    texts = [f"{'good' if n % 3 else 'bad'} text {n}" for n in range(40)]
    rows = pa.table({"text": texts, "query": texts, "response": texts})
    step = steps.step(FILTER, {"dim_required_keys": DIMENSIONS, **fields})
    reasons = change_of(step, Frame.of(rows)).reasons.to_pylist()
    assert reasons == [None if n % 3 else FILTER for n in range(40)]
    step = steps.step("calibrate_response_mapper", fields)
    assert list(change_of(step, Frame.of(rows)).columns) == ["response"]


def test_steps_that_ask_a_server_work_in_small_chunks_and_num_proc_is_in_no_key():
    asks, local = steps.step(FILTER, {}), steps.step(FILTER, {"is_hf_model": True})
    assert (asks.asks_server, local.asks_server) == (True, False)
    assert (default_chunk_rows([asks]), default_chunk_rows([local])) == (256, 65_536)
    assert asks.cache_key_fields() == steps.step(FILTER, {"num_proc": 4}).cache_key_fields()
