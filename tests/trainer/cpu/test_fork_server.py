"""Forked processes behave as new ones do; the server ends with the last of them."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from rejuice.operators.sampling.processes import DEFAULT_ENVIRONMENT
from rejuice.trainer.cpu import fork_server
from rejuice.trainer.cpu.fork_server import PYTHON, PreloadServer, is_supported

pytestmark = pytest.mark.skipif(
    not is_supported(), reason="forks are watched by descriptors of Linux"
)
LIBRARIES = ("numpy", "wave", "not_installed")
STATE = """
import json, os, sys
state = {
    "forked": "wave" in sys.modules,
    "argv": sys.argv,
    "path": sys.path[0],
    "name": __name__,
    "directory": os.getcwd(),
    "variable": os.environ.get("OF_A_TEST"),
    "input": sys.stdin.read(),
}
print(json.dumps(state))
sys.exit(3)
"""


@pytest.fixture(scope="module")
def server():
    with PreloadServer({}, LIBRARIES) as server:
        yield server


@pytest.fixture
def python(server):
    """Run a forked Python to its end."""

    def run(*words, executable=PYTHON, **more):
        env = {**os.environ, **server.variables, **more.pop("env", {})}
        return subprocess.run(
            [*executable, *words], env=env, capture_output=True, text=True, check=False, **more
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_a_fork_does_what_a_new_process_does(python, tmp_path, kind):
    (tmp_path / "state_of_test.py").write_text(STATE)
    words = {
        "-c": ["-c", STATE],
        "-m": ["-m", "state_of_test"],
        "file": [str(tmp_path / "state_of_test.py")],
    }[kind]
    more = {"cwd": tmp_path, "env": {"OF_A_TEST": "1"}, "input": "some input"}
    forked, new = (
        python(*words, "an argument", executable=how, **more) for how in (PYTHON, [sys.executable])
    )
    assert (forked.returncode, forked.stderr) == (new.returncode, new.stderr) == (3, "")
    states = json.loads(forked.stdout), json.loads(new.stdout)
    assert [state.pop("forked") for state in states] == [True, False]
    assert states[0] == states[1]


@pytest.mark.slow
def test_a_signal_that_ends_a_fork_ends_who_waits_for_it(python):
    assert python("-c", "import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL
    assert python("-c", "import os; os.kill(os.getpid(), 15)").returncode == -signal.SIGTERM
    failed = python("-c", "1 / 0")
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def _started(server, code=WAITS, **more):
    env = {**os.environ, **server.variables}
    child = subprocess.Popen([*PYTHON, "-c", code], env=env, stdout=subprocess.PIPE, **more)
    return child, int(child.stdout.readline())


@pytest.mark.slow
def test_a_signal_reaches_the_fork(server):
    code = f"import signal; signal.signal(15, lambda *_: exit(5)); {WAITS}"
    child, _ = _started(server, code)
    child.terminate()
    assert child.wait(10) == 5


@pytest.mark.slow
def test_a_fork_ends_with_who_waits_for_it(server):
    child, pid = _started(server)
    ended = os.pidfd_open(pid)
    child.kill()
    assert _has_ended(ended)
    child.wait()


def _has_ended(pidfd):
    import select

    return bool(select.select([pidfd], [], [], 10)[0])


@pytest.mark.slow
def test_forks_draw_different_numbers(python):
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    one, two = (python("-c", code).stdout.split() for _ in range(2))
    assert len({*one, *two}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "PYTHONPATH", "MALLOC_ARENA_MAX"])
def test_a_variable_that_was_read_already_needs_a_new_process(python, variable):
    code = f"import os, sys; print('wave' in sys.modules, os.environ['{variable}'])"
    assert python("-c", code, env={variable: "7"}).stdout == "False 7\n"


@pytest.mark.slow
def test_an_option_of_the_interpreter_needs_a_new_process(python):
    code = "import sys; print('wave' in sys.modules, sys.flags.optimize)"
    assert python("-O", "-c", code).stdout == "False 1\n"


@pytest.mark.slow
def test_without_a_server_there_is_a_new_process(tmp_path):
    variables = {**os.environ, fork_server.VARIABLE: str(tmp_path / "gone")}
    words = [*PYTHON, "-c", "import sys; sys.exit(3)"]
    assert subprocess.run(words, env=variables, check=False).returncode == 3


@pytest.mark.slow
def test_the_server_ends_with_its_last_fork_and_its_forks_with_it():
    with PreloadServer({}, LIBRARIES) as server:
        child, _ = _started(server)
        server.finish()
        assert child.poll() is None, "it may finish its work"
        child.terminate()
        assert child.wait(10) == -signal.SIGTERM
        assert server.process.wait(10) == 0
    with PreloadServer({}, LIBRARIES) as server:
        child, pid = _started(server)
        ended = os.pidfd_open(pid)
    assert _has_ended(ended)
    assert child.wait(10) == -signal.SIGKILL
    assert not os.path.exists(os.path.dirname(server.variables[fork_server.VARIABLE]))


LEFT = """
import sys
from rejuice.trainer.cpu.fork_server import load_libraries
load_libraries()
before = set(sys.modules)
print(*{name.split(".")[0] for name in before} & {"ray", "verl", "transfer_queue"})
import verl.trainer.main_ppo, verl.trainer.ppo.v1, verl.workers.engine_workers
print(len({name for name in sys.modules if not name.startswith(OWN)} - before))
""".replace("OWN", "('verl', 'ray', 'transfer_queue', 'rejuice')")


@pytest.mark.slow
def test_what_verl_loads_was_loaded_but_nothing_of_ray():
    """Ids that Ray draws must differ, so that each process loads Ray itself."""
    variables = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "rejuice.trainer.verl.plugin,rejuice.trainer.cpu.platform",
    }
    done = subprocess.run(
        [sys.executable, "-c", LEFT], env=variables, capture_output=True, text=True, check=True
    )
    of_ray, left = done.stdout.split("\n")[:2]
    assert of_ray == ""
    assert int(left) < 150, "of some 4,500 modules"


SAMPLES = """
import time
from rejuice.operators.sampling.processes import EngineProcesses
from rejuice.operators.sampling.protocol import Prompt, Settings
from rejuice.trainer.cpu.fork_server import PYTHON
from stub_engine import StubEngine

engine = EngineProcesses(StubEngine, workers=2, threads=None, launcher=PYTHON)
prompts = [Prompt((("user", f"hello {k}"),), 0) for k in range(4)]
found = engine.sample(prompts, Settings(1, 1.0, 1.0, 8))
print(sorted(index for index, _ in found))
print(*engine.pids, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_sampling_processes_are_forks_and_end_with_the_sampler():
    """The sampler is killed, as Ray kills it."""
    path = os.pathsep.join(filter(None, sys.path))
    variables = {"PYTHONPATH": path, **DEFAULT_ENVIRONMENT}
    with PreloadServer(variables, LIBRARIES) as server:
        env = {**os.environ, **variables, **server.variables}
        env["PYTHONBREAKPOINT"] = "ray.util.rpdb.set_trace"  # As in a worker of Ray.
        sampler = subprocess.Popen([sys.executable, "-c", SAMPLES], env=env, stdout=subprocess.PIPE)
        assert sampler.stdout.readline() == b"[0, 1, 2, 3]\n"
        waiting = [int(pid) for pid in sampler.stdout.readline().split()]
        forks = psutil.Process(server.process.pid).children()
        assert len(forks) == len(waiting) == 2
        ended = [os.pidfd_open(pid) for pid in (*waiting, *(fork.pid for fork in forks))]
        sampler.kill()
        assert all(_has_ended(each) for each in ended)
        sampler.wait()
