"""Worker processes that die, and the functions of users that workers call."""

import re
import time
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest

from rejuice.operators import EngineError, RewardFunctionMapper
from rejuice.operators.functions.pool import close_pools
from rejuice.operators.workers import usable_cores
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.workers import LocalWorkers
from rejuice.pipelines.recipe.recipe import load

DYING = """
import os, pathlib, signal
import pyarrow as pa
from rejuice.operators import Filter, drop

class DyingFilter(Filter):
    lives: str
    gil_bound = True
    def reads(self): return ("response_id",)
    def cache_key_fields(self): return {}
    def decide(self, table):
        left = pathlib.Path(self.lives)
        if "response-0010-0" in table["response_id"].to_pylist() and left.read_text():
            left.write_text(left.read_text()[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return drop({"never": [False] * table.num_rows})
"""


@pytest.fixture
def recipe(recipe_file, rollouts, tmp_path):
    (tmp_path / "dying.py").write_text(DYING)
    lives = tmp_path / "lives"
    path = recipe_file(
        [{"dying_filter": {"lives": str(lives)}}, {"grpo_advantage_mapper": {}}],
        rollouts(20).to_pylist(),
        custom_operator_paths=[str(tmp_path / "dying.py")],
        np=2,
    )

    def make(deaths):
        lives.write_text("x" * deaths)
        return load(path)

    return make


@pytest.mark.slow
def test_what_a_dead_worker_ran_is_run_again(recipe):
    engine.run(recipe(0), chunk_rows=10)
    export = recipe(0).head.export_path
    right = export.read_bytes()
    for path in (export, *export.parent.glob(".rejuice/*filter*/*")):
        path.unlink()
    engine.run(recipe(2), chunk_rows=10)
    assert export.read_bytes() == right


@pytest.mark.slow
def test_a_chunk_whose_workers_die_again_and_again_is_named(recipe):
    with pytest.raises(EngineError) as caught:
        engine.run(recipe(99), chunk_rows=10)
    found = re.fullmatch(
        r"step 1 dying_filter: the worker process of part (.+) of 7 died 3 times: SIGKILL\(-9\); "
        "run it again: finished parts are kept",
        str(caught.value),
    )
    # Those that had not begun were in the pool, too.
    assert "4" in found[1].split(" or ")
    engine.run(recipe(0), chunk_rows=10)


# --- Functions of users -----------------------------------------------------------------


@pytest.fixture
def workers():
    """Two workers of a run of two chunks."""
    head = SimpleNamespace(np=2, custom_operator_paths=())
    plan = SimpleNamespace(
        recipe=SimpleNamespace(head=head), source=SimpleNamespace(rows=[8, 8])
    )  # fmt: skip
    yield LocalWorkers(plan)
    close_pools()


WAITING = """
import time
def compute_score(response):
    with open({calls!r}, "a") as file:
        file.write("x")
    time.sleep(600)
    return 0.0
"""


@pytest.mark.slow
def test_a_run_that_fails_waits_for_no_function(workers, tmp_path):
    calls = tmp_path / "calls"
    (tmp_path / "mine.py").write_text(WAITING.format(calls=str(calls)))
    function = f"{tmp_path}/mine.py:compute_score"
    operator = RewardFunctionMapper(function=function, timeout_s=3)

    def work(chunk):
        if chunk:
            return operator.apply(pa.table({"response": list("abcdefgh")}))
        while not calls.exists():
            time.sleep(0.01)
        raise EngineError("the other chunk failed")

    with pytest.raises(EngineError), workers:
        list(workers.map((), work, 2))
    assert len(calls.read_text()) < 8


GIL_BOUND = [SimpleNamespace(operator=SimpleNamespace(gil_bound=True))]


@pytest.mark.slow
def test_worker_processes_share_the_cores(workers):
    with workers:
        found = dict(workers.map(GIL_BOUND, lambda _: usable_cores(), 2))
    assert found == dict.fromkeys([0, 1], max(1, usable_cores() // 2))


@pytest.mark.slow
def test_the_process_of_the_preflight_ends_where_workers_have_their_own(workers, tmp_path):
    (tmp_path / "mine.py").write_text(
        f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "def compute_score(response):\n    return 1\n"
    )
    RewardFunctionMapper(function=f"{tmp_path}/mine.py:compute_score").preflight()
    process = psutil.Process(int((tmp_path / "pid").read_text()))
    assert process.is_running()
    with workers:
        list(workers.map(GIL_BOUND, lambda _: None, 2))
    assert not process.is_running()
