"""Deadlines, deaths and every place a pool may be used from."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import afresh
import psutil
import pytest

from rejuice.operators.process_pool import ForkingProcess
from rejuice.operators.verifier import Verdict, verify, verify_batch
from rejuice.operators.verifier.pool import Pool, WorkerPoolError, shared_pool

# Within every textual limit, and without end: only the deadline stops them.
pytestmark = pytest.mark.alone
ENDLESS = r"\int_0^{\infty} e^{-x^x}\sin(x^3)dx"
EASY = (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}")


@pytest.fixture
def pool():
    pool = Pool(2)
    yield pool
    pool.close()


def workers_of(pool: Pool) -> list[psutil.Process]:
    assert pool._server is not None
    return psutil.Process(pool._server.process.pid).children()


def test_order_and_verdicts(pool: Pool) -> None:
    pairs = [(rf"\sqrt{{{4 * n}}}", rf"2\sqrt{{{n + n % 2}}}") for n in range(2, 30)]
    outcomes = pool.run(pairs, timeout=5, workers=2)
    assert [o.slug == "correct" for o in outcomes] == [n % 2 == 0 for n in range(2, 30)]
    assert len(workers_of(pool)) == 2


def test_late_workers_are_replaced_and_others_unaffected(pool: Pool) -> None:
    pool.run([EASY], timeout=30, workers=2)
    pairs = [EASY, (ENDLESS, "42"), EASY, (ENDLESS, "43"), EASY, EASY]
    outcomes = pool.run(pairs, timeout=1, workers=2)
    assert [o.slug for o in outcomes] == [
        "correct",
        "timeout",
        "correct",
        "timeout",
        "correct",
        "correct",
    ]
    assert [o.slug for o in pool.run([EASY] * 4, timeout=2, workers=2)] == ["correct"] * 4


def test_a_dead_worker_is_an_error_and_replaced(pool: Pool) -> None:
    pool.run([EASY], timeout=30, workers=1)
    done: list[str] = []
    thread = threading.Thread(
        target=lambda: done.extend(
            o.slug for o in pool.run([(ENDLESS, "42"), EASY], timeout=30, workers=1)
        )
    )
    thread.start()
    time.sleep(0.5)
    for worker in workers_of(pool):
        worker.kill()
    thread.join(120)
    assert done == ["verifier_error", "correct"]


def test_an_idle_worker_that_died_costs_one_error(pool: Pool) -> None:
    pool.run([EASY], timeout=30, workers=1)
    workers_of(pool)[0].kill()
    time.sleep(0.2)
    slugs = [o.slug for o in pool.run([EASY, EASY], timeout=5, workers=1)]
    assert slugs[-1] == "correct"


def test_a_dead_fork_server_is_replaced(pool: Pool) -> None:
    pool.run([EASY], timeout=30, workers=1)
    workers = workers_of(pool)
    os.kill(pool._server.process.pid, signal.SIGKILL)
    pool._server.process.wait()
    for worker in workers:
        worker.kill()
    while any(each.is_running() and each.status() != "zombie" for each in workers):
        time.sleep(0.01)
    slugs = [o.slug for o in pool.run([EASY, EASY], timeout=30, workers=1)]
    assert slugs == ["correct", "correct"]


def test_a_process_that_lacks_files_keeps_its_fork_server(monkeypatch) -> None:
    def lacks_files(server):
        raise OSError(errno.EMFILE, "Too many open files")

    pool = Pool(1)
    monkeypatch.setattr(ForkingProcess, "fork", lacks_files)
    pool._server = server = object.__new__(ForkingProcess)
    with pytest.raises(WorkerPoolError, match="Too many open files"):
        pool.start()
    assert pool._server is server
    pool._server = None


def test_workers_cannot_exhaust_the_memory_of_the_machine(pool: Pool) -> None:
    pool.run([EASY], timeout=30, workers=1)
    limits = Path(f"/proc/{workers_of(pool)[0].pid}/limits")
    if not limits.exists():
        pytest.skip("needs /proc")
    line = next(x for x in limits.read_text().splitlines() if x.startswith("Max address space"))
    assert int(line.split()[3]) == 2 << 30


def test_a_closed_pool_begins_again(pool: Pool) -> None:
    for _ in range(2):
        assert pool.run([EASY], timeout=30, workers=1)[0].slug == "correct"
        processes = workers_of(pool)
        pool.close()
        pool.close()
        assert not any(each.is_running() for each in processes)


def test_many_threads_share_one_pool(pool: Pool) -> None:
    results: list[list[str]] = []

    def work() -> None:
        results.append([o.slug for o in pool.run([EASY] * 5, timeout=10, workers=2)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [["correct"] * 5] * 8
    assert len(workers_of(pool)) <= 2


# --- everywhere -----------------------------------------------------------------------


def both() -> list[Verdict]:
    return verify_batch([ENDLESS, EASY[0]], ["42", EASY[1]], timeout=1, worked_out=False)


def in_main_thread() -> list[Verdict]:
    return both()


def in_a_thread() -> list[Verdict]:
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.extend(both()))
    thread.start()
    thread.join()
    return found


def in_a_running_loop() -> list[Verdict]:
    async def main() -> list[Verdict]:
        return both()

    return asyncio.run(main())


def _in_child(queue: multiprocessing.Queue) -> None:
    queue.put([tuple(v) for v in both()])


def in_a_daemonic_child(method: str) -> list[Verdict]:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=afresh.call, args=(__file__, "_in_child", queue), daemon=True)
    process.start()
    found = [Verdict(*v) for v in queue.get(timeout=60)]
    process.join(10)
    assert process.exitcode == 0
    return found


def in_a_forked_child() -> list[Verdict]:
    return in_a_daemonic_child("fork")


def in_a_spawned_child() -> list[Verdict]:
    return in_a_daemonic_child("spawn")


@pytest.mark.parametrize(
    "place", [in_main_thread, in_a_thread, in_a_running_loop, in_a_forked_child, in_a_spawned_child]
)
def test_it_works_the_same(place: Callable[[], list[Verdict]]) -> None:
    verify(*EASY, worked_out=False)  # the parent has workers, which a child must not touch
    assert [v.verdict for v in place()] == ["timeout", "correct"]
    assert verify(*EASY, worked_out=False).verdict == "correct"
    assert in_main_thread()[0].verdict == "timeout"


SCRIPT = """
from rejuice.operators.verifier import verify
from rejuice.operators.verifier.pool import shared_pool
print(verify(r"\\\\frac{\\\\sqrt{8}}{2}", r"\\\\sqrt{2}", worked_out=False).verdict, shared_pool(1)._server.process.pid)
"""


@pytest.mark.parametrize("ending", ["", "\nimport os; os.kill(os.getpid(), 9)"])
def test_no_orphans_from_standard_input(ending: str) -> None:
    script = SCRIPT.replace("\\\\\\\\", "\\\\").replace("\\\\", "\\")
    script = script.replace(".pid)", ".pid, flush=True)") + ending
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=60
    )
    slug, pid = done.stdout.split()
    assert slug == "correct"
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == "zombie"


def test_a_busy_worker_does_not_outlive_its_parent() -> None:
    script = (
        "import threading, time\n"
        "from rejuice.operators.verifier import verify\n"
        "from rejuice.operators.verifier.pool import shared_pool\n"
        "import psutil\n"
        f"verify({EASY[0]!r}, {EASY[1]!r}, worked_out=False)\n"
        f"threading.Thread(target=lambda: verify({ENDLESS!r}, '42', timeout=60, worked_out=False), daemon=True).start()\n"
        "time.sleep(0.5)\n"
        "fork_server = psutil.Process(shared_pool(1)._server.process.pid)\n"
        "print(*[p.pid for p in fork_server.children()], flush=True)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(p) and psutil.Process(p).status() != "zombie" for p in pids)


def test_the_import_is_light() -> None:
    script = (
        "import sys\nimport rejuice.operators.verifier\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'sympy', 'math_verify', 'mpmath'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


FIRST = """
from rejuice.operators.verifier import verify
for answer, reference in ({first!r}, {easy!r}):
    print(verify(answer, reference, timeout=1.0, worked_out=False).verdict)
"""


@pytest.mark.parametrize(
    ("first", "slug"), [((ENDLESS, "3"), "timeout"), (EASY, "correct")], ids=["endless", "easy"]
)
def test_the_first_call_of_a_process_has_a_verdict(first: tuple[str, str], slug: str) -> None:
    script = FIRST.format(first=first, easy=EASY)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [slug, "correct"]


def test_callers_do_not_wait_for_each_other() -> None:
    pool = Pool(1, spare=8)
    with ThreadPoolExecutor(8) as executor:
        endless = [
            executor.submit(pool.run, [(ENDLESS, "42")], timeout=60, workers=1) for _ in range(8)
        ]
        while len(pool._busy) < 8:
            time.sleep(0.01)
        assert [o.slug for o in pool.run([EASY], timeout=60, workers=1)] == ["correct"]
        assert not pool._idle  # the spare one has ended
        assert not any(each.done() for each in endless)
        for worker in workers_of(pool):
            worker.kill()
        assert [each.result()[0].slug for each in endless] == ["verifier_error"] * 8
    assert [o.slug for o in pool.run([EASY], timeout=60, workers=1)] == ["correct"]
    pool.close()


def test_the_shared_pool_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = shared_pool(1)
    monkeypatch.setattr(pool, "size", pool.size)
    assert shared_pool(pool.size + 2) is pool
    assert shared_pool(1).size == pool.size
