import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from each import check_each

from rejuice.operators import DataError, RecipeError, RewardFunctionMapper, build
from rejuice.operators.check import check_operator
from rejuice.operators.errors import NotReadyError
from rejuice.operators.functions.pool import close_pools, stop_pools
from rejuice.operators.mapper import reward_function_mapper
from rejuice.operators.mapper.pass_at_k_advantage_mapper import PassAtKAdvantageMapper

VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0):
    return (solution_str == ground_truth) + bonus
"""
DEFAULT = "verl.utils.reward_score:default_compute_score"
CHAT = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


@pytest.fixture
def written(tmp_path):
    """A factory of operators whose function is in a file with some source."""

    def make(source, name="compute_score", file="mine.py", **fields):
        (tmp_path / file).write_text(source)
        return RewardFunctionMapper(function=f"{tmp_path / file}:{name}", **fields)

    return make


@pytest.fixture(autouse=True)
def reported_anew():
    reward_function_mapper._failures.clear()
    yield
    close_pools()


def rows(*responses, **columns):
    n = len(responses)
    every = {name: v if isinstance(v, list) else [v] * n for name, v in columns.items()}
    return pa.table({"response": pa.array(responses, pa.string()), **every})


def rewards(operator, table, component="function"):
    """The rewards, and where there is none, why."""
    columns = operator.apply(table).columns
    value, reason = (columns[f"reward_{component}{end}"].to_pylist() for end in ("", "_missing"))
    assert [v is None for v in value] == [r is not None for r in reason]
    return [v if r is None else r for v, r in zip(value, reason, strict=True)]


# --- Which function, and how it is called: nothing is run -----------------------------


def test_the_style_and_the_columns_are_read_in_the_source(written):
    verl = {name: name for name in ("reference", "reward_model", "data_source", "extra_info")}
    prompt = {"prompt": "prompt"}
    cases = [
        (VERL.replace("bonus=0", "**kw"), ("response",), verl),
        ("def compute_score(solution_str): ...", ("response",), {}),
        ("def compute_score(response, answer, unit='m'): ...", ("response", "answer"), {"unit": "unit"}),
        ("def compute_score(completions, **kwargs): ...", ("response",), prompt),
        (
            "def compute_score(prompts, completions, completion_ids, log_extra=None, *, x, y=1, **kw):"
            " return kw['z'] + kw.get('u', 0)",
            ("response", "prompt", "x", "response_token_ids"),
            {"y": "y", "z": "z", "u": "u"},
        ),
    ]  # fmt: skip

    def check(source, reads, optional):
        operator = written(source)
        assert operator.reads() == reads
        assert operator.optional_reads() == optional

    check_each(cases, check)


def test_what_kwargs_give_is_no_column(written):
    operator = written(VERL, reward_kwargs={"data_source": "x", "bonus": 1})
    assert "data_source" not in operator.optional_reads()
    operator = written("def f(response, limit): ...", "f", reward_kwargs={"limit": 3})
    assert operator.reads() == ("response",)


def test_a_function_that_is_imported_is_found_where_it_is_defined(written):
    assert RewardFunctionMapper(function=DEFAULT).optional_reads()["reward_model"]
    operator = RewardFunctionMapper(function="trl.rewards:accuracy_reward")
    assert operator.reads() == ("response", "solution")
    written(VERL, file="there.py")
    operator = written("from there import compute_score as mine", "mine")
    assert "reward_model" in operator.optional_reads()


def test_a_file_that_a_function_is_imported_from_is_read_again_once_it_is_edited(written):
    written(VERL, file="there.py")
    before = written("from there import compute_score as mine", "mine")
    assert before.reads() == ("response",)
    written("def compute_score(response, answer): ...", file="there.py")
    after = RewardFunctionMapper(function=before.function)
    assert after.reads() == ("response", "answer")


def test_components_of_keys(written):
    operator = written(VERL, component="task", keys=("acc",))
    assert operator.writes() == (
        *("reward_task", "reward_task_missing"),
        *("reward_task_acc", "reward_task_acc_missing"),
    )


def test_mistakes_in_a_recipe(written, tmp_path):
    written(VERL)
    (tmp_path / "broken.py").write_text("def f(:\n")
    mine = f"{tmp_path}/mine.py:compute_score"
    right = "write FILE.py:FUNCTION, or package.module:FUNCTION"
    cases = [
        ({"function": "mine.py"}, right),
        ({"function": "a b:f"}, right),
        ({"function": f"{tmp_path}/no.py:f"}, f"{tmp_path}/no.py does not exist; give a .py file"),
        ({"function": "no.such:f"}, "there is no module no.such; install it, or name a .py file"),
        ({"function": f"{tmp_path}/broken.py:f"}, "broken.py is not Python: "),
        ({"function": mine, "component": "a-b"}, "'a-b' cannot be a part of a column's name"),
        ({"function": mine, "keys": ["score"]}, "keys: each once, and neither `score` nor `missing`"),
        ({"function": mine, "keys": ["a", "a"]}, "keys: each once, and neither"),
        (
            {"function": mine, "reward_kwargs": {"bonuss": 1}},
            "reward_kwargs: the function has no parameter bonuss; it has: bonus, data_source, extra_info, "
            "ground_truth, solution_str",
        ),
        ({"function": mine, "timeout_s": 0}, "greater than 0"),
    ]  # fmt: skip

    def check(fields, message):
        with pytest.raises(RecipeError) as error:
            build(RewardFunctionMapper, fields)
        assert message in str(error.value)

    check_each(cases, check)


def test_the_key_has_the_code_and_no_path(written, tmp_path):
    (tmp_path / "helper.py").write_text("UNIT = 1\n")
    source = "import helper\ndef compute_score(response): return helper.UNIT\n"
    key = written(source).cache_key_fields()
    assert str(tmp_path) not in json.dumps(key)
    assert written(f"# a comment\n{source}", file="moved.py").cache_key_fields() == key
    (tmp_path / "beside.py").write_text("UNIT = 2\n")
    assert written(source).cache_key_fields() == key
    (tmp_path / "helper.py").write_text("UNIT = 3\n")
    assert written(source).cache_key_fields() != key
    assert written(source.replace("helper.UNIT", "0")).cache_key_fields() != key


# --- What a function gets and gives: processes ----------------------------------------


@pytest.mark.slow
@pytest.mark.smoke
def test_the_contract_of_operators(written):
    operator = written(VERL, reward_kwargs={"bonus": 1})
    table = rows("1", "2", "", None, "3", reference="1")
    columns = check_operator(operator, table).columns
    assert columns["reward_function"].to_pylist() == [2.0, 1.0, 1.0, None, 1.0]
    assert columns["reward_function_missing"].to_pylist() == [*[None] * 3, "no_response", None]
    assert pickle.loads(pickle.dumps(operator)).cache_key_fields() == operator.cache_key_fields()


@pytest.mark.slow
def test_what_verl_passes(written):
    source = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return (data_source, solution_str, ground_truth, extra_info) == WANTED
"""

    def check(wanted, table):
        operator = written(source + f"WANTED = {wanted!r}\n")
        assert rewards(operator, table) == [1.0]

    cases = [
        (("", "r", "a", {}), rows("r", reference="a")),
        (("d", "r", ["b"], {"i": 1}), rows(
            "r", reference="a", data_source="d", extra_info=[{"i": 1}],
            reward_model=[{"ground_truth": ["b"]}])),
        (("d", "r", "a", {}), rows(
            "r", reference="a", data_source="d", extra_info=pa.array([None], pa.struct([("i", pa.int64())])).to_pylist(),
            reward_model=[{"ground_truth": None}])),
    ]  # fmt: skip
    check_each(cases, check)
    operator = written(VERL)
    assert rewards(operator, rows("1", "1", reference=["1", None])) == [1.0, "no_reference"]
    with pytest.raises(DataError, match="neither a column 'reference' nor 'reward_model'"):
        operator.apply(rows("1"))


@pytest.mark.slow
def test_what_trl_passes(written):
    source = """
def compute_score(prompts, completions, completion_ids, trainer_state, x, **kwargs):
    got = [prompts, completions, completion_ids, trainer_state, x, kwargs.get("y"), list(kwargs)]
    return [float(got == WANTED)]
"""
    messages = [{"role": "assistant", "content": "r"}]
    chat = [{"role": "user", "content": "q"}]
    ids = {"response_token_ids": [[1, 2]], "x": 3, "y": 4, "z": 5}
    table = rows("r", **ids).append_column("prompt", pa.array([chat], CHAT))
    wanted = [[chat], [messages], [[1, 2]], None, [3], [4], ["y"]]
    assert rewards(written(f"{source}WANTED = {wanted!r}"), table) == [1.0]
    texts = rows("r", prompt="q", **ids)
    wanted = [["q"], ["r"], [[1, 2]], None, [3], [4], ["y"]]
    assert rewards(written(f"{source}WANTED = {wanted!r}"), texts) == [1.0]


@pytest.mark.slow
def test_what_is_no_number_is_missing_and_never_zero(written):
    source = """
import numpy, os, decimal
class Odd:
    def __repr__(self): raise ValueError
def compute_score(response):
    return eval(response)
"""
    given = {
        "1": 1.0,
        "True": 1.0,
        "False": 0.0,
        "numpy.float32(0.5)": 0.5,
        "numpy.bool_(True)": 1.0,
        "numpy.array([2])": 2.0,
        "decimal.Decimal('0.1')": 0.1,
        "{'score': 3, 'other': 'x'}": 3.0,
        "None": "no_value",
        "{'score': None}": "no_value",
        "float('nan')": "not_a_number",
        "float('-inf')": "not_a_number",
        "10 ** 400": "not_a_number",
        "'1'": "not_a_number",
        "[1.0]": "not_a_number",
        "numpy.zeros(2)": "not_a_number",
        "{'acc': 1}": "not_a_number",
        "Odd()": "not_a_number",
        "1 / 0": "function_failed",
        "exit()": "function_failed",
        "os._exit(0)": "function_failed",
        "os.abort()": "function_failed",
    }
    assert rewards(written(source), rows(*given)) == list(given.values())


@pytest.mark.slow
def test_keys_of_a_dict(written):
    source = "def compute_score(response): return eval(response)"
    operator = written(source, keys=("acc", "len"))
    table = rows("{'score': 1, 'acc': False, 'len': 'x'}", "{'score': 0, 'len': 2}", "1", "1 / 0")
    assert rewards(operator, table) == [1.0, 0.0, 1.0, "function_failed"]
    assert rewards(operator, table, "function_acc") == [0.0, "no_value", "no_value", "function_failed"]  # fmt: skip
    assert rewards(operator, table, "function_len") == ["not_a_number", 2.0, "no_value", "function_failed"]  # fmt: skip


SCORED = """
def score(response):
    return None if response == "?" else float(response)
"""


@pytest.mark.slow
def test_a_verdict_by_the_reward(written):
    operator = written(SCORED, "score", component="own", correct_above=0.5)
    table = rows("1", "0.5", "0", "?", "nan", None).append_column("prompt_id", pa.array(["p"] * 6))
    found = check_operator(operator, table)
    verdicts = found.columns["verdict"]
    assert verdicts.type == pa.string()
    assert verdicts.to_pylist() == ["correct", "wrong_answer", "wrong_answer", None, None, None]
    graded = table.append_column("verdict", verdicts)
    advantages = PassAtKAdvantageMapper(k=1).apply(graded).columns["advantage"].to_pylist()
    assert advantages[0] > 0 > advantages[1] == advantages[2]
    assert advantages[3:] == [None] * 3


def test_no_verdict_unless_it_is_asked_for(written):
    assert "verdict" not in written(SCORED, "score").writes()


@pytest.mark.slow
def test_lists_of_trl(written):
    source = """
def compute_score(completions):
    return eval(completions[0][0]["content"])
"""
    given = {"[1.0]": 1.0, "[None]": "no_value", "[]": "not_a_number", "1.0": "not_a_number"}
    assert rewards(written(source), rows(*given)) == list(given.values())


SLOW = """
import time, asyncio
{}def compute_score(response):
    if response == "sleep":
        {}
    if response == "block":
        time.sleep(600)
    return 1.0
"""


@pytest.mark.slow
def test_a_row_that_is_late_loses_its_own_reward_only(written):
    table = rows(*["a"] * 5, "sleep", *["a"] * 5)
    operator = written(SLOW.format("", "time.sleep(600)"), timeout_s=0.5)
    assert rewards(operator, table) == [*[1.0] * 5, "timeout", *[1.0] * 5]


@pytest.mark.slow
def test_a_slow_first_call_is_named_as_one(written, caplog, monkeypatch):
    monkeypatch.setattr("rejuice.operators.functions.pool.usable_cores", lambda: 1)
    late = "import time\ndef compute_score(response): return time.sleep(600)"
    assert rewards(written(late, timeout_s=0.5), rows("a")) == ["timeout"]
    assert re.search("0.5 s.*import at the top of the file.*timeout_s", caplog.text)
    caplog.clear()
    later = SLOW.format("", "time.sleep(600)")
    rewards(written(later, file="later.py", timeout_s=0.5), rows("a", "sleep"))
    assert "took longer" in caplog.text
    assert "import" not in caplog.text


@pytest.mark.slow
def test_what_is_ready_does_not_wait_for_what_is_not(written, monkeypatch, tmp_path):
    monkeypatch.setattr("rejuice.operators.functions.pool.usable_cores", lambda: 2)
    source = f"""
import os, time
try:
    os.mkdir({str(tmp_path / "first")!r})
except FileExistsError:
    time.sleep(600)
def compute_score(response): return 1.0
"""
    operator = written(source)
    assert rewards(operator, rows(*"abcdefgh")) == [1.0] * 8
    close_pools()
    monkeypatch.setattr("rejuice.operators.process_pool.STARTUP_SECONDS", 0.5)
    monkeypatch.setattr("rejuice.operators.process_pool._AT_ONCE_S", 0.01)
    with pytest.raises(NotReadyError, match="is not imported after"):
        operator.apply(rows("a"))


@pytest.mark.slow
def test_async_functions_wait_together_and_are_late_alone(written, monkeypatch):
    monkeypatch.setattr("rejuice.operators.process_pool._GRACE_S", 0.5)
    source = SLOW.format("async ", "await asyncio.sleep(600)")
    table = rows(*["a"] * 5, "sleep", *["a"] * 5, "block", "a")
    expected = [*[1.0] * 5, "timeout", *[1.0] * 5, "timeout", 1.0]
    assert rewards(written(source, timeout_s=0.5), table) == expected
    source = """
import asyncio
met = 0
async def compute_score(response):
    global met
    met += 1
    while met < 8:
        await asyncio.sleep(0.01)
    return 1.0
"""
    monkeypatch.setattr("rejuice.operators.functions.pool.usable_cores", lambda: 1)
    monkeypatch.setattr("rejuice.operators.functions.pool._MOST_ROWS", 8)
    assert rewards(written(source, timeout_s=60), rows(*["a"] * 16)) == [1.0] * 16


@pytest.mark.slow
def test_functions_that_are_made_when_the_file_runs(written, tmp_path):
    (tmp_path / "helper.py").write_text("BONUS = 2\n")
    source = """
import functools, helper
def base(response, reference, bonus): return float(response == reference) + bonus
compute_score = functools.partial(base, bonus=helper.BONUS)
"""
    operator = written(source)
    assert operator.reads() == ("response", "reference")
    assert rewards(operator, rows("1", "2", reference="1")) == [3.0, 2.0]


@pytest.mark.slow
def test_the_first_error_of_each_kind_is_reported_once(written, caplog):
    operator = written("def compute_score(response):\n    return 1 / int(response)\n")
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("0", "0", "x"))
        operator.apply(rows("0"))
    assert [record.getMessage() for record in caplog.records] == [
        f"{operator.function} gave no reward to a response (function_failed): "
        "ZeroDivisionError: division by zero (mine.py, line 2, in compute_score)"
    ]


@pytest.mark.slow
def test_a_function_that_does_not_import_ends_the_run_before_its_steps(written):
    operator = written("import no_such_package\n" + VERL)
    with pytest.raises(NotReadyError) as error:
        operator.preflight()
    assert str(error.value) == (
        f"{operator.function} does not import: ModuleNotFoundError: "
        "No module named 'no_such_package' (mine.py, line 1)"
    )


@pytest.mark.slow
def test_a_function_that_its_file_does_not_have_is_found_by_its_name(written, tmp_path):
    source = VERL + "from math import sqrt\ndef other(response): return 1\nLIMIT = 3\n"
    file = tmp_path / "mine.py"
    for name, text, right in (
        ("compute_scor", source, "did you mean 'compute_score'?"),
        ("reward", source, "its functions are: compute_score, sqrt, other"),
        ("reward", "LIMIT = 3\n", "it has none"),
    ):
        with pytest.raises(NotReadyError) as error:
            written(text, name)
        assert str(error.value) == f"{file} has no function '{name}'; {right}"


@pytest.mark.slow
def test_an_error_in_a_library_names_the_line_of_the_users_own_file(written, caplog):
    source = "import json\ndef read(texts):\n    return [json.loads(text) for text in texts]\n"
    written(source, "read", file="beside.py")
    source = "from beside import read\ndef compute_score(completions):\n    return read(['{'])\n"
    operator = written(source)
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("a"))
    (record,) = caplog.records
    message = record.getMessage()
    assert "(function_failed): JSONDecodeError: " in message
    assert "(beside.py, line 3, in read; raised in decoder.py, line " in message


def test_a_function_that_returns_nothing_is_refused(written, tmp_path):
    refused = (
        "def f(response):\n    right = response == '1'\n",
        "def f(response):\n    if response:\n        return\n    return None\n",
        "def f(response):\n    def inner():\n        return 1\n    inner()\n",
    )
    for source in refused:
        place = re.escape("function: f (mine.py, line 2) returns nothing")
        with pytest.raises(ValueError, match=f"{place}; end it with `return` and a number"):
            written("\n" + source, "f")
    (tmp_path / "lib.py").write_text("\n\n\n" + refused[0])
    with pytest.raises(ValueError, match=re.escape("function: f (lib.py, line 4) returns nothing")):
        written("from lib import f", "f", file="outer.py")
    for source in ("def f(response): ...", "def f(response): raise OSError", "def f(r): yield r"):
        written(source, "f")


@pytest.mark.slow
def test_what_no_response_has_is_logged_once(written, caplog):
    source = """
def compute_score(response):
    if response == "dict":
        return {"score": 1.0, "acc": 1.0}
    return 1.0 if response == "one" else None
"""
    operator = written(source, keys=("ac",))
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("x", "y", "z"))
        operator.apply(rows("x", "y"))
        operator.apply(rows("dict", "dict"))
    named = f"{operator.function} (mine.py, line 2)"
    assert [record.getMessage() for record in caplog.records] == [
        f"{named} returned None for all 3 responses that it was given",
        f"{named} gave none of 2 responses the key 'ac'; did you mean 'acc'?",
    ]
    caplog.clear()
    reward_function_mapper._failures.clear()
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("one", "one"))
    (record,) = caplog.records
    assert record.getMessage().endswith("the key 'ac'; it returned no dict, or None in it")
    # Where some responses have what others lack, it is no mistake.
    caplog.clear()
    reward_function_mapper._failures.clear()
    operator = written(source, keys=("acc",))
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("dict", "x"))
    assert caplog.records == []


@pytest.mark.slow
def test_each_key_that_no_dict_has_is_named_with_its_own_hint(written, caplog):
    source = """
def compute_score(response):
    return {"score": 1.0, "acc": 1.0, "len": 2.0} if response == "dict" else None
"""
    operator = written(source, keys=("ac", "lem", "style"))
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("none", "dict"))
    found = f"{operator.function} (mine.py, line 2) gave none of 2 responses the key"
    assert [record.getMessage() for record in caplog.records] == [
        f"{found} 'ac'; did you mean 'acc'?",
        f"{found} 'lem'; did you mean 'len'?",
        f"{found} 'style'; its dict has score, acc, len",
    ]


@pytest.mark.slow
def test_none_for_all_rows_is_no_mistake_of_a_function_of_trl(written, caplog):
    source = """
def of_code(completions):
    return [{"score": 1.0, "acc": 1.0} if text == "code" else None for text in completions]
"""
    operator = written(source, "of_code", keys=("ac",))
    with caplog.at_level(logging.WARNING):
        operator.apply(rows("x", "y", prompt="q"))
        assert caplog.records == []
        operator.apply(rows("x", "code", prompt="q"))
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "gave none of 2 responses the key 'ac'; did you mean 'acc'?"
    )


@pytest.mark.slow
def test_an_edit_while_a_run_goes_on_is_never_kept_as_the_code_from_before(written):
    operator = written("def compute_score(response): return 1")
    written("def compute_score(response): return 2")
    with pytest.raises(NotReadyError, match=r"was edited since the run began; start it again$"):
        operator.apply(rows("a"))


@pytest.mark.slow
def test_what_a_function_starts_ends_with_it(written, tmp_path):
    source = f"""
import subprocess, time
def compute_score(response):
    child = subprocess.Popen(["sleep", "600"])
    open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
    return time.sleep(600)
"""
    assert rewards(written(source, timeout_s=2), rows("a")) == ["timeout"]
    pid = int((tmp_path / "pid").read_text())
    while is_running(pid):  # Killed, and soon reaped.
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("answers", [True, False], ids=["while it waits", "in a call"])
def test_what_a_function_starts_ends_with_a_parent_that_is_killed(written, tmp_path, answers):
    source = f"""
import os, subprocess, time
def compute_score(response):
    child = subprocess.Popen(["sleep", "600"])
    open({str(tmp_path / "pid.new")!r}, "w").write(str(child.pid))
    os.replace({str(tmp_path / "pid.new")!r}, {str(tmp_path / "pid")!r})
    time.sleep({0 if answers else 600})
    return 1
"""
    function = written(source).function
    parent = f"""
import time
import pyarrow as pa
from rejuice.operators import RewardFunctionMapper
RewardFunctionMapper(function={function!r}).apply(pa.table({{"response": ["a"]}}))
print(flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        if answers:
            process.stdout.readline()
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        process.kill()
    pid = int((tmp_path / "pid").read_text())
    while is_running(pid):  # Killed, and soon reaped.
        time.sleep(0.01)


WAITING = """
import os, time
def compute_score(response):
    with open({calls!r}, "a") as file:
        file.write("x")
    return time.sleep(600)
"""


@pytest.fixture
def waiting(written, tmp_path, monkeypatch):
    """An operator of two processes whose calls wait, and the file with a letter for each call."""
    monkeypatch.setattr("rejuice.operators.functions.pool.usable_cores", lambda: 2)
    calls = tmp_path / "calls"
    return written(WAITING.format(calls=str(calls)), timeout_s=3), calls


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_stops_all_calls(waiting):
    operator, calls = waiting

    def interrupt():
        while not calls.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        operator.apply(rows(*"abcdefgh"))
    assert len(calls.read_text()) < 8


@pytest.mark.slow
def test_calls_in_other_threads_are_stopped(waiting):
    operator, calls = waiting
    with ThreadPoolExecutor() as threads:
        running = threads.submit(operator.apply, rows(*"abcdefgh"))
        while not calls.exists():
            time.sleep(0.01)
        stop_pools()
        with pytest.raises(InterruptedError, match=r"mine.py:compute_score were stopped"):
            running.result()
    assert len(calls.read_text()) < 8
    # Nor do calls begin that a thread comes to later on, until the pools are closed.
    with pytest.raises(InterruptedError, match="stopped"):
        operator.apply(rows("a"))
    close_pools()
    assert rewards(operator, rows("")) != ["function_failed"]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_what_a_function_prints_is_not_shown(written, capfd):
    source = "import os\ndef compute_score(response):\n    print(response)\n    os.write(2, b'x')\n    return 1"
    assert rewards(written(source), rows("\x1b[2J")) == [1.0]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_neighbour_shadows_what_this_process_has_loaded(written, tmp_path):
    """The function's own folder comes first there, whatever was imported here."""
    (tmp_path / "each.py").write_text("VALUE = 7\n")
    source = "import each\ndef compute_score(response): return each.VALUE"
    operator = written(source)
    assert rewards(operator, rows("a")) == [7.0]
    (tmp_path / "each.py").write_text("VALUE = 8\n")
    assert written(source).cache_key_fields() != operator.cache_key_fields()


# --- The functions of verl and TRL, unchanged -----------------------------------------

ANSWERS = ["so #### 12", "12", "#### 1,200", "#### 13 #### 12", "", r"\boxed{12}", r"\boxed{\frac{24}{2}}"]  # fmt: skip


@pytest.mark.slow
def test_verls_functions_give_what_they_give_there():
    from verl.utils.reward_score import default_compute_score

    sources = ["openai/gsm8k", "lighteval/MATH", "math_dapo", "searchR1_nq"]
    cells = [(text, source) for source in sources for text in ANSWERS]
    texts, names = zip(*cells, strict=True)
    truths = [{"target": ["12"]} if n == "searchR1_nq" else "12" for n in names]
    operator = RewardFunctionMapper(function=DEFAULT)
    expected = [default_compute_score(*row) for row in zip(names, texts, truths, strict=True)]
    expected = [each["score"] if isinstance(each, dict) else each for each in expected]
    found = []
    for source in sources:
        at = [k for k, name in enumerate(names) if name == source]
        models = [{"ground_truth": truths[k]} for k in at]
        table = rows(*(texts[k] for k in at), data_source=source, reward_model=models)
        found += rewards(operator, table)
    assert found == expected
    assert len(set(expected)) > 2
    unknown = rows("12", data_source="mine", reference="12")
    assert rewards(operator, unknown) == ["function_failed"]


@pytest.mark.slow
def test_a_function_may_import_what_is_installed_editable(written):
    """rejuice itself, in a working copy: the entries of sys.path that serve it are no paths."""
    code = "from rejuice.operators.errors import shown\n\ndef f(response):\n    return len(shown(response))\n"
    assert rewards(written(code, name="f"), rows("a")) == [3.0]


@pytest.mark.slow
def test_a_verl_function_with_fewer_parameters_gets_these():
    from verl.utils.reward_score import gsm8k

    operator = RewardFunctionMapper(
        function="verl.utils.reward_score.gsm8k:compute_score", reward_kwargs={"method": "flexible"}
    )
    expected = [gsm8k.compute_score(text, "12", method="flexible") for text in ANSWERS]
    assert rewards(operator, rows(*ANSWERS, reference="12")) == expected
    assert set(expected) == {0, 1.0}


@pytest.mark.slow
def test_trls_functions_give_what_they_give_there():
    from trl.rewards import accuracy_reward, think_format_reward

    thoughts = ["<think>\na\n</think>\n12", "<think>a</think>", "12", *ANSWERS]
    messages = [[{"role": "assistant", "content": text}] for text in thoughts]
    operator = RewardFunctionMapper(function="trl.rewards:think_format_reward")
    expected = think_format_reward(messages)
    assert rewards(operator, rows(*thoughts)) == expected
    assert set(expected) == {0.0, 1.0}
    solutions = ["$12$", "$13$", "no mathematics", *["$12$"] * (len(thoughts) - 3)]
    operator = RewardFunctionMapper(function="trl.rewards:accuracy_reward")
    expected = accuracy_reward(messages, solution=solutions)
    expected = ["no_value" if each is None else each for each in expected]
    assert rewards(operator, rows(*thoughts, solution=solutions)) == expected
    assert {"no_value", 0.0, 1.0} == set(expected)


@pytest.mark.slow
def test_an_environment_variable_of_the_user_is_there(written, monkeypatch):
    monkeypatch.setenv("GRADER", "7")
    source = "import os\ndef compute_score(response): return int(os.environ['GRADER'])"
    assert rewards(written(source), rows("a")) == [7.0]
    assert os.environ["GRADER"] == "7"
