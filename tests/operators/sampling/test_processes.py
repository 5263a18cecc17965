"""Engines in processes: which process samples what, how they end, and their output."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stub_engine import CAPACITY, StubEngine

from rejuice.operators import __version__
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.processes import DEFAULT_ENVIRONMENT, EngineProcesses
from rejuice.operators.sampling.protocol import Prompt, Settings, listening
from rejuice.operators.workers import usable_cores

pytestmark = pytest.mark.slow

ONE = Settings(n=1)


def ask(*texts):
    return [Prompt((("user", text),), seed) for seed, text in enumerate(texts)]


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(pids):
    deadline = time.monotonic() + 60
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def two():
    engine = EngineProcesses(StubEngine, workers=2)
    yield engine
    engine.close()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=20).filter(lambda text: len(text) != 5), max_size=12))
def test_every_prompt_once_and_its_own(two, texts):
    prompts = ask(*(f"_{text}" for text in texts))
    results = list(two.sample(prompts, ONE))
    assert sorted(index for index, _ in results) == list(range(len(prompts)))
    for index, group in results:
        assert group.seed == index
        assert group.samples[0].text == prompts[index].messages[0][1]


def test_tokens_are_reported_from_the_processes(two):
    reported = []
    with listening(reported.append):
        assert len(list(two.sample(ask("tokens", "tokens"), ONE))) == 2
    assert reported == [7, 7]
    assert len(list(two.sample(ask("tokens"), ONE))) == 1  # Nobody listens.


def test_tokens_of_short_calls_are_not_lost(two):
    """As the turns of agents are, many of which end within a second."""
    reported = []
    with listening(reported.append):
        for _ in range(3):
            assert len(list(two.sample(ask("tokens", "tokens", "tokens", "tokens"), ONE))) == 4
    assert sum(reported) == 3 * 4 * 7


def test_work_is_distributed_by_length(two):
    texts = ["a" * length for length in (9, 1, 8, 2, 7, 3)]
    results = dict(two.sample(ask(*texts), ONE))
    workers = {}
    for index, group in results.items():
        workers.setdefault(group.samples[2].text, []).append(len(texts[index]))
    assert sorted(map(sorted, workers.values())) == [[1, 3, 8], [2, 7, 9]]


def test_threads_and_environment(monkeypatch):
    for name in DEFAULT_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)

    def seen(variable, **arguments):
        engine = EngineProcesses(partial(StubEngine, variable), **arguments)
        try:
            return next(engine.sample(ask("a"), ONE))[1].samples[1].text
        finally:
            engine.close()

    assert seen("OMP_NUM_THREADS", threads=3) == "3"
    assert seen("OMP_NUM_THREADS", threads=None) == os.environ.get("OMP_NUM_THREADS", "")
    assert seen("OMP_WAIT_POLICY") == "PASSIVE"
    # Tensors of hundreds of megabytes are not asked from the kernel anew at each step.
    assert int(seen("MALLOC_MMAP_THRESHOLD_")) >= 1 << 30
    assert int(seen("MALLOC_TRIM_THRESHOLD_")) >= 1 << 30
    assert seen("ODD", own_environment=[{"ODD": "even"}]) == "even"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")  # What a user has set stays.
    assert seen("OMP_WAIT_POLICY") == "ACTIVE"


def test_another_interpreter_has_its_own_path(tmp_path):
    """It gets no `sys.path` of ours, so here only PYTHONPATH leads to the stub."""
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    with pytest.raises(EngineError, match=r"^a sampling process died with exit code 1; "):
        EngineProcesses(StubEngine, python=str(link), own_environment=[{"PYTHONPATH": ""}])
    path = {"PYTHONPATH": os.path.dirname(sys.modules["stub_engine"].__file__)}
    engine = EngineProcesses(StubEngine, python=str(link), own_environment=[path])
    assert next(engine.sample(ask("a"), ONE))[1].seed == 0
    engine.close()


def test_another_version_is_an_error(tmp_path):
    package = tmp_path / "rejuice" / "operators" / "sampling"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "processes.py").write_text(
        "import pickle, socket, struct\n"
        "def main(descriptor, parent):\n"
        "    version = pickle.dumps('0.1.0')\n"
        "    socket.socket(fileno=descriptor).sendall(struct.pack('!Q', len(version)) + version)\n"
    )
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    link.chmod(0o755)
    expected_message = (
        rf"^{link} has rejuice 0\.1\.0, this one is {__version__}; install the same version there$"
    )
    with pytest.raises(EngineError, match=expected_message):
        EngineProcesses(
            StubEngine, python=str(link), own_environment=[{"PYTHONPATH": str(tmp_path)}]
        )


def test_interpreter_that_does_not_exist():
    message = r"^cannot run '/no/python'; No such file or directory$"
    with pytest.raises(EngineError, match=message):
        EngineProcesses(StubEngine, python="/no/python")


def test_engine_that_cannot_be_built():
    with pytest.raises(EngineError, match=r"^no such variable; name another one$"):
        EngineProcesses(partial(StubEngine, "none"), workers=2)


def test_what_they_print_is_kept_from_the_terminal(two, capfd):
    list(two.sample(ask("chatter", "chatter"), ONE))
    assert capfd.readouterr() == ("", "")


def test_last_words_of_a_process_that_dies(two, capfd):
    pids = two.pids
    message = r"^a sampling process died with exit code 3; its output is above$"
    with pytest.raises(EngineError, match=message):
        list(two.sample(ask("a", "exit"), ONE))
    assert capfd.readouterr().err.endswith("last words\n")
    assert two.pids == []
    wait_until_gone(pids)
    assert len(list(two.sample(ask("a", "b"), ONE))) == 2  # started again


def test_process_that_is_killed(capfd):
    engine = EngineProcesses(StubEngine)
    os.kill(engine.pids[0], signal.SIGKILL)
    message = (
        r"^a sampling process died with exit code -9; it printed nothing; perhaps memory ran out"
    )
    with pytest.raises(EngineError, match=message):
        list(engine.sample(ask("a"), ONE))
    assert capfd.readouterr().err == ""
    engine.close()


def test_bug_of_an_engine_is_shown(two, capfd):
    with pytest.raises(EngineError, match=r"^a sampling process died with exit code 1; "):
        list(two.sample(ask("bug"), ONE))
    assert "ZeroDivisionError: of the engine" in capfd.readouterr().err


def test_engine_error_ends_the_call_and_not_the_next(two):
    with pytest.raises(EngineError, match=r"^no more; stop$"):
        list(two.sample(ask("fail", "a", "b"), ONE))
    assert len(list(two.sample(ask("a", "b", "c"), ONE))) == 3


def test_call_that_is_left_ends_its_processes(two):
    results = two.sample(ask("a", "b", "sleep", "sleep"), ONE)
    next(results)
    pids = two.pids
    results.close()
    wait_until_gone(pids)
    assert len(list(two.sample(ask("a", "b"), ONE))) == 2


def test_new_weights_stay_loaded_after_a_failed_load(two):
    two.load_weights("somewhere", 7)
    with pytest.raises(EngineError, match=r"^cannot load the policy 'nowhere'$"):
        two.load_weights("nowhere", 8)
    versions = {group.version for _, group in two.sample(ask("a", "b", "c"), ONE)}
    assert versions == {7}


def test_closing_twice(two):
    pids = two.pids
    two.close()
    two.close()
    assert all(map(gone, pids))


def test_usable_cores_obey_affinity():
    program = (
        "import os; from rejuice.operators.workers import usable_cores\n"
        "print(usable_cores()); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print(usable_cores())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [str(usable_cores()), "1"]


PARENT = """
import signal, sys; sys.path[:] = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored in the background of a shell.
from rejuice.operators.sampling.processes import EngineProcesses
from rejuice.operators.sampling.protocol import Prompt, Settings
from stub_engine import CAPACITY, StubEngine
engine = EngineProcesses(StubEngine, workers=2)
assert "torch" not in sys.modules
prompts = [Prompt((("user", text),), 0) for text in ["", "", "sleep", "sleep"]]
print(*engine.pids, flush=True)
try:
    for _ in engine.sample(prompts, Settings()):
        print("sampled", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_processes_die_with_their_parent(ending):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *sys.path], stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(map(gone, pids))
        parent.send_signal(ending)
    wait_until_gone(pids)


def test_interrupt_is_the_parents():
    """Ctrl-C goes to the whole process group: no child may shout, the parent ends them."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *sys.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert parent.stdout.readline() == "sampled\n"
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.read().removeprefix("sampled\n") == "interrupted\n"  # Two may end.
        assert parent.stderr.read() == ""
    wait_until_gone(pids)


def test_token_ids_decide_which_process_samples_a_prompt(two):
    """Prompts in order of length, by turns: the chats are all of one length."""
    prompts = [Prompt((("user", "_"),), 0, (7,) * length) for length in (4, 1, 3, 2)]
    pids = {index: group.samples[2].text for index, group in two.sample(prompts, ONE)}
    assert pids[1] == pids[2] != pids[3] == pids[0]


def test_others_sample_the_prompts_of_a_process_that_is_killed(caplog):
    engine = EngineProcesses(StubEngine, workers=3)
    try:
        found, victim = {}, engine.pids[0]
        for number, (index, group) in enumerate(engine.sample(iter(ask(*"a" * 60)), ONE)):
            assert index not in found
            found[index] = group
            if number == 4:
                os.kill(victim, signal.SIGKILL)
                wait_until_gone([victim])
        assert sorted(found) == list(range(60))
        assert victim not in engine.pids
        assert len(engine.pids) == 2
        (line,) = [each.message for each in caplog.records]
        assert line.startswith("a sampling process died with exit code -9; it printed nothing; ")
        assert ": 2 of 3 go on, with its " in line
    finally:
        engine.close()


@pytest.fixture
def three():
    engine = EngineProcesses(StubEngine, workers=3)
    yield engine
    engine.close()


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(pids)


DIED = "a sampling process died with exit code -9; it printed nothing; perhaps memory ran out"


def test_others_go_on_if_one_is_killed_between_two_calls(three, caplog):
    before = list(three.sample(ask("a", "b"), ONE))
    kill(three.pids[1])
    assert three.capacity(ONE) == 2 * (CAPACITY + 1)
    assert len(list(three.sample(ask(*"a" * 9), ONE))) == 9
    kill(three.pids[0])
    three.load_weights("somewhere", 7)
    found = dict(three.sample(ask("a", "b"), ONE))
    assert sorted(found) == sorted(index for index, _ in before) == [0, 1]
    assert {group.version for group in found.values()} == {7}
    lines = [each.message for each in caplog.records]
    assert lines == [f"{DIED}: 2 of 3 go on", f"{DIED}: 1 of 2 go on"]


def test_others_go_on_if_one_is_killed_that_has_no_prompt(three, caplog):
    """It is missed at the end of the call, or by the next one."""
    for _ in three.sample(ask("a"), ONE):
        kill(three.pids[1], three.pids[2])
    assert len(list(three.sample(ask(*"a" * 9), ONE))) == 9
    assert len(three.pids) == 1
    assert len([each for each in caplog.records if each.message.startswith(DIED)]) == 2


def test_others_sample_the_prompts_of_one_that_is_killed_after_all_were_handed_out(three, caplog):
    found = set()
    for index, _ in three.sample(ask("a", "b", "rest"), ONE):
        if not found:
            kill(three.pids[2])  # It has the longest prompt.
        found.add(index)
    assert found == {0, 1, 2}
    assert [each.message for each in caplog.records] == [
        f"{DIED}: 2 of 3 go on, with its 1 prompts"
    ]


def test_the_last_one_may_die_once_all_prompts_are_sampled(caplog):
    engine = EngineProcesses(StubEngine)
    try:
        found = set()
        for index, _ in engine.sample(ask("linger"), ONE):
            found.add(index)
            kill(*engine.pids)
        assert found == {0}
        assert [each.message for each in caplog.records] == [
            f"{DIED}: all prompts were sampled before"
        ]
        assert len(list(engine.sample(ask("a", "b"), ONE))) == 2  # started again
    finally:
        engine.close()


def test_each_process_has_its_own_environment():
    own = [{"GPU": "0"}, {"GPU": "1"}]
    engine = EngineProcesses(partial(StubEngine, "GPU"), workers=2, own_environment=own)
    try:
        texts = {group.samples[1].text for _, group in engine.sample(ask("a", "b"), ONE)}
        assert texts == {"0", "1"}
    finally:
        engine.close()


def test_prompts_are_taken_no_further_ahead_than_the_processes_have_capacity(two):
    taken, finished = 0, 0

    def prompts():
        nonlocal taken
        for each in ask(*"a" * 40):
            taken += 1
            assert taken - finished <= 2 * (CAPACITY + 1)
            yield each

    for _ in two.sample(prompts(), ONE):
        finished += 1
    assert (taken, finished, two.capacity(ONE)) == (40, 40, 2 * (CAPACITY + 1))
