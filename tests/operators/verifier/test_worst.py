"""Inputs that hang or break a verifier without limits: as response, reference and both."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import afresh
import psutil
import pytest
from each import check_each

from rejuice.operators.process_pool import receive, send
from rejuice.operators.verifier import (
    Slug,
    Verdict,
    check_reference,
    symbolic,
    verify,
    verify_batch,
    worker,
)
from rejuice.operators.verifier.pool import WALL_FACTOR, Pool, shared_pool
from rejuice.operators.workers import usable_cores

pytestmark = pytest.mark.alone
GSM8K = Path(__file__).resolve().parents[3] / "../shared/data/gsm8k"
needs_gsm8k = pytest.mark.skipif(not GSM8K.exists(), reason="GSM8K is not next to this checkout")
TIMEOUT = 1.0
SOON_S = WALL_FACTOR * TIMEOUT + 30
"""By then even a busy machine has a verdict; without a deadline there would never be one."""
EASY = (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}")
HUNGRY = r"\sum_{k=1}^{999} (x+y+k)^{999}"
MONSTERS = {
    "tower": r"9^{9^{9^9}}",
    "factorial": "1000000!",
    "a million digits": "7" * 1_000_000,
    "brackets": "[" * 3000 + "1" + "]" * 3000,
    "boxes": r"\boxed{1} " * 10_000,
    "nested boxes": r"\boxed{" * 10_000 + "1" + "}" * 10_000,
    "binomial": r"\binom{10^9}{5\cdot10^8}",
    "integral": r"\int_0^{\infty} e^{-x^x}\sin(x^3)dx",
    "sum": r"\sum_{k=1}^{10^{9}}\frac{1}{k^k}",
    "fractions": r"\frac{1}{1+" * 1500 + "2" + "}" * 1500,
    "roots": r"\sqrt{" * 3000 + "2" + "}" * 3000,
    "roots within the limits": r"\sqrt{2+" * 11 + "x" + "}" * 11,
    "x to the x": "^{".join("x" * 30) + "}" * 29,
    "power of a sum": "(x+1)^{100000}",
    "powers of sums": "(x+y+z+1)^{900}(x+2)^{999}",
    "null byte": "4\x002",
    "lone surrogate": "4\ud8002",
    "thinking": "<think>" * 150_000,
    "thoughts": "<think></think>" * 70_000,
    "exponent": "1e999999999",
    "power of ten": r"1.5\times10^{-99999999}",
    "long set": r"\{" + ",".join(rf"\sqrt{{{i}}}" for i in range(60)) + r"\}",
    "subscripts": "a_" * 400,
    "bars": "|" * 900,
    "signs": r"\pm" * 300,
    "exponentials": r"\exp(\exp(\exp(\exp(50))))",
    "sines": r"\sin(" * 11 + "x" + ")" * 11,
    "products": "*".join(["999^{999}"] * 80),
}


@pytest.fixture(autouse=True, scope="module")
def warm_pool() -> None:
    assert verify(r"\sqrt{8}", r"2\sqrt{2}", timeout=60).verdict == "correct"


@pytest.mark.parametrize("side", ["response", "reference", "symbolic reference", "both"])
def test_a_verdict_in_time(side: str) -> None:
    def check(name: str) -> None:
        monster = MONSTERS[name]
        pair = {
            "response": (monster, "42"),
            "reference": ("42", monster),
            "symbolic reference": (monster, r"2\sqrt{3}x"),
            "both": (monster + "+1", monster),
        }[side]
        assert complaint(pair) is None

    check_each(MONSTERS, check)


def test_a_refused_answer_is_wrong_and_a_refused_reference_is_an_error() -> None:
    def check(name: str) -> None:
        assert verify(MONSTERS[name], "42").verdict == "wrong_answer"
        assert verify("42", MONSTERS[name]).verdict == "verifier_error"
        assert check_reference(MONSTERS[name])

    check_each(["tower", "factorial", "a million digits", "binomial", "roots", "exponent"], check)


def test_the_pool_still_works_afterwards() -> None:
    verdicts = verify_batch(
        [MONSTERS["integral"], r"\sqrt{8}", MONSTERS["x to the x"], r"\sqrt{12}"],
        ["42", r"2\sqrt{2}", r"\pi", r"2\sqrt{3}"],
        timeout=TIMEOUT,
    )
    assert [v.verdict for v in verdicts][1::2] == ["correct", "correct"]
    for process in psutil.Process(fork_server_of(shared_pool(1))).children():
        if process.status() != psutil.STATUS_ZOMBIE:
            assert process.memory_info().rss < 1 << 30


def fork_server_of(pool: Pool) -> int:
    """The number of its process."""
    assert pool._server is not None
    return pool._server.process.pid


# --- every caller ---------------------------------------------------------------------

PAIRS = [pair for m in MONSTERS.values() for pair in ((m, "42"), ("42", m))]
LATE = ("sines", "products")
"""As late as the integral, and handled the same; one after another they would take each caller four
deadlines. They are graded above, and from eight threads at once."""
ONE_BY_ONE = [pair for pair in PAIRS if not {*pair} & {MONSTERS[name] for name in LATE}]


def complaint(pair: tuple[str, str]) -> str | None:
    """What is wrong with the verdict on a monster, None where it is right and in time."""
    start = time.monotonic()
    slug = verify(*pair, timeout=TIMEOUT, worked_out=False).verdict
    seconds = time.monotonic() - start
    if slug != "correct" and seconds < SOON_S:
        return None
    return f"{slug} after {seconds:.2f} s: {pair[0][:40]!r} against {pair[1][:40]!r}"


def damage() -> list[str]:
    """What is wrong with the pool of this process."""
    found = list[str]()
    if (slug := verify(r"\sqrt{8}", r"2\sqrt{2}").verdict) != "correct":
        found.append(f"an ordinary pair is {slug}")
    fork_server = fork_server_of(shared_pool(1))
    deadline = time.monotonic() + 60  # what was killed takes a moment to go
    while time.monotonic() < deadline:
        workers = psutil.Process(fork_server).children()
        zombies = [p.pid for p in workers if p.status() == psutil.STATUS_ZOMBIE]
        if len(workers) <= usable_cores() and not zombies:
            return found
        time.sleep(0.05)
    return [*found, f"{len(workers)} workers, of these {len(zombies)} zombies"]


def grade_monsters() -> list[str]:
    return [c for c in map(complaint, ONE_BY_ONE) if c] + damage()


def in_a_thread() -> list[str]:
    found = ["the thread died"]
    thread = threading.Thread(target=lambda: found.__setitem__(slice(None), grade_monsters()))
    thread.start()
    thread.join()
    return found


def in_an_asyncio_task() -> list[str]:
    async def task() -> list[str]:
        return grade_monsters()

    async def main() -> list[str]:
        return await asyncio.create_task(task())

    return asyncio.run(main())


def in_eight_threads() -> list[str]:
    with ThreadPoolExecutor(8) as executor:
        return [c for c in executor.map(complaint, PAIRS) if c] + damage()


def _in_child(queue: multiprocessing.Queue) -> None:
    found = grade_monsters()
    queue.put((found, fork_server_of(shared_pool(1))))


def in_a_child(method: str) -> list[str]:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=afresh.call, args=(__file__, "_in_child", queue), daemon=True)
    process.start()
    found, fork_server = queue.get(timeout=120)
    process.join(10)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(fork_server) and psutil.Process(fork_server).status() != "zombie":
        if time.monotonic() > deadline:
            return [*found, "the child left its processes running"]
        time.sleep(0.05)
    return found + damage()


def in_a_forked_child() -> list[str]:
    return in_a_child("fork")


def in_a_spawned_child() -> list[str]:
    return in_a_child("spawn")


@pytest.mark.slow
@pytest.mark.parametrize(
    "caller",
    [in_a_thread, in_an_asyncio_task, in_eight_threads, in_a_forked_child, in_a_spawned_child],
)
def test_every_monster_from_every_caller(caller: Callable[[], list[str]]) -> None:
    assert caller() == []


@pytest.mark.slow
def test_every_monster_from_a_ray_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        assert ray.get(ray.remote(grade_monsters).remote(), timeout=120) == []
    finally:
        ray.shutdown()


def test_a_worker_at_its_memory_limit_is_an_error_and_replaced() -> None:
    pool = Pool(1)
    try:
        assert [o.slug for o in pool.run([EASY], timeout=30, workers=1)] == ["correct"]
        (worker,) = psutil.Process(fork_server_of(pool)).children()
        limit = worker.memory_info().vms + (2 << 20)  # its own of 2 GiB is the machine's to spare
        worker.rlimit(psutil.RLIMIT_AS, (limit, limit))
        outcomes = pool.run([(HUNGRY, "42"), EASY], timeout=30, workers=1)
        assert [o.slug for o in outcomes] == ["verifier_error", "correct"]
        assert re.match("MemoryError|SystemError", outcomes[0].reason)
    finally:
        pool.close()


def test_check_reference() -> None:
    graded = ["18", r"\frac{1}{2}", "A", "no solution", "x=1,x=2"]
    assert {each: check_reference(each) for each in graded} == dict.fromkeys(graded)
    refused = ["", "  ", "She has 3.\n#### 3", "\x00"]
    assert [each for each in refused if check_reference(each) is None] == []


def test_no_answer() -> None:
    responses = [None, "", "  \n", "<think>42"]
    assert [verify(each, "42") for each in responses] == [("no_answer", None)] * len(responses)


def test_the_word_for_a_missing_value_is_no_reference() -> None:
    def check(word: str) -> None:
        assert check_reference(word) == f"{word!r} is a missing value, not an answer"
        assert verify("3", word) == ("verifier_error", "3")
        assert verify(word, word).verdict == "verifier_error"

    check_each(["nan", "NaN", "inf", "-inf", "None", "null", "N/A", "<NA>"], check)


def test_infinity_and_words_are_references() -> None:
    def check(reference: str) -> None:
        assert check_reference(reference) is None
        assert verify(reference, reference)

    check_each([r"\infty", r"-\infty", "infinity", "none of these", "no"], check)


def test_a_verdict_is_true_where_it_is_correct() -> None:
    verdicts = [Verdict(slug, "3") for slug in get_args(Slug)]
    assert [v.verdict for v in verdicts if v] == ["correct"]
    assert pickle.loads(pickle.dumps(verdicts)) == verdicts
    assert verdicts[0] == ("correct", "3")


def test_a_null_reference_is_an_error_of_its_pair() -> None:
    assert check_reference(None) == "the reference is null"
    assert verify("3", None) == ("verifier_error", "3")
    assert verify(None, None) == ("verifier_error", None)
    verdicts = verify_batch(["4", "4", None], ["4", None, "4"])
    assert [v.verdict for v in verdicts] == ["correct", "verifier_error", "no_answer"]


@pytest.mark.parametrize(
    ("responses", "references", "message"),
    [
        (["3", "4"], ["3", 4], "references[1] is int, not str or None"),
        (["3", 4.0], ["3", "4"], "responses[1] is float, not str or None"),
        ("34", ["3", "4"], "responses is one str, not a sequence of them"),
        (["3", "4"], "34", "references is one str, not a sequence of them"),
    ],
)
def test_what_is_not_text_is_refused(responses: Any, references: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        verify_batch(responses, references)


@pytest.mark.parametrize(
    ("peaks", "slug"),
    [
        ((100, 600), "verifier_error"),
        ((600, 600), "wrong_answer"),
        ((960, 960), "verifier_error"),
        ((100, 400), "wrong_answer"),
    ],
)
def test_an_answer_that_exhausts_the_memory_is_not_wrong(
    peaks: tuple[int, int], slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sympy may have caught the MemoryError, and reported that it cannot.
    monkeypatch.setattr(symbolic, "equivalent", lambda answer, reference: False)
    monkeypatch.setattr(worker, "_peak", iter(peaks).__next__)
    monkeypatch.setattr(worker, "_limit", lambda: 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, pickle.dumps([(0, ("3", "4", "equivalent", 0))]))
        ours.shutdown(socket.SHUT_WR)
        worker.serve(theirs)
        assert json.loads(receive(ours))[1] == slug


def fail_with(error: type[Exception], patch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **options: object) -> None:
        raise error

    patch.setattr(symbolic, "parse", fails)


def test_a_parser_short_of_memory_gives_no_verdict_on_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(MemoryError, monkeypatch)
    with pytest.raises(MemoryError):
        symbolic.expression(r"\sin(x+17y)")


def test_what_is_nested_too_deeply_for_the_parser_is_not_mathematics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(RecursionError, monkeypatch)
    assert symbolic.expression(r"\sin(x+19y)") is None


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="1 responses but 2"):
        verify_batch(["1"], ["1", "2"])
    with pytest.raises(ValueError, match="positive"):
        verify("1", "1", timeout=0)


@needs_gsm8k
def test_model_solutions_agree_with_their_labels() -> None:
    responses, references, labels = [], [], []
    for line in (GSM8K / "model_solutions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for value in row.values():
            if isinstance(value, dict):
                responses.append(value["solution"])
                references.append(row["ground_truth"].rsplit("A:", 1)[1].strip())
                labels.append(value["is_correct"])
    assert len(labels) == 2640
    verdicts = verify_batch(responses, references)
    assert [v.verdict == "correct" for v in verdicts] == labels


@needs_gsm8k
@pytest.mark.parametrize("part", ["train", "test"])
def test_every_reference_solution_is_correct(part: str) -> None:
    solutions = [
        json.loads(line)["answer"]
        for line in (GSM8K / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    references = [s.rsplit("####", 1)[1].strip() for s in solutions]
    assert {v.verdict for v in verify_batch(solutions, references)} == {"correct"}
    assert all(check_reference(r) is None for r in references)
