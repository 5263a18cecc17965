"""What a program gets and gives, and what happens to the processes around it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from rejuice.operators import process_pool
from rejuice.operators.errors import RecipeError
from rejuice.operators.sandbox import confine, run, server
from rejuice.operators.sandbox.run import (
    Execution,
    Sandbox,
    SandboxError,
    SandboxLimits,
    Stop,
    check_confinement,
)

pytestmark = pytest.mark.slow

PATIENT = SandboxLimits(seconds=60)
GONE_S = 30.0  # that processes may take to be gone; usually milliseconds


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=4) as sandbox:
        yield sandbox


# --- one program ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('é')", Execution("ok", "é\n", "", 0)),
        ("", Execution("ok", "", "", 0)),
        ("import sys\nprint('x', file=sys.stderr)", Execution("ok", "", "x\n", 0)),
        ("print(1)\nraise SystemExit", Execution("ok", "1\n", "", 0)),
        ("nothing", Execution("error", "", "NameError", 1)),
        ("exit(3)", Execution("error", "", "", 3)),
        ("import sys; sys.exit(3)", Execution("error", "", "", 3)),
        ("import sys; sys.exit(-1)", Execution("error", "", "", 255)),
        ("import sys; sys.exit('no')", Execution("error", "", "no\n", 1)),
        ("import os; os.abort()", Execution("error", "", "", -signal.SIGABRT)),
        ("x = bytearray(10 ** 9)", Execution("memory", "", "MemoryError\n", 1)),
        ("while True: print('x' * 99)", Execution("output", "x" * 99 + "\n", "", None)),
    ],
)
def test_how_programs_end(sandbox, source, expected):
    found = sandbox.run(source, limits=PATIENT)
    assert (found.status, found.exit_code) == (expected.status, expected.exit_code)
    assert found.stdout.startswith(expected.stdout)
    assert expected.stderr in found.stderr


def printed_into(file):
    with contextlib.suppress(OSError):
        return "memfd" in os.readlink(f"/proc/self/fd/{file}") and os.fstat(int(file)).st_size


def test_much_room_for_output_costs_nothing_here(sandbox):
    assert sandbox.run("print(1)", limits=SandboxLimits(output=2**45)).stdout == "1\n"


def test_too_slow(sandbox, monkeypatch):
    received = run._received

    def late(link, seconds):
        if seconds != PATIENT.seconds:
            return received(link, seconds)
        (program,) = psutil.Process(sandbox.pid).children()
        while not any(map(printed_into, os.listdir("/proc/self/fd"))):
            pass
        # It dumps no core: then its files in /proc are those of root.
        assert os.stat(f"/proc/{program.pid}/stat").st_uid == 0
        return None

    monkeypatch.setattr(run, "_received", late)
    source = "print('first', flush=True)\nwhile True: pass"
    assert sandbox.run(source, limits=PATIENT) == Execution("timeout", "first\n", "", None)


def test_its_processor_time_is_limited_even_if_nobody_looks_at_the_clock(sandbox, monkeypatch):
    source = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    received = run._received
    monkeypatch.setattr(run, "_received", lambda link, _: received(link, 600))
    found = sandbox.run(source, limits=SandboxLimits(seconds=0.1))
    assert (found.status, found.exit_code) == ("timeout", -signal.SIGKILL)


@pytest.mark.parametrize("way", ["print('x' * 99)", "try: os.write(1, b'x' * 99)\n  except: pass"])
def test_who_ignores_the_end_of_its_output_has_printed_too_much(sandbox, way):
    source = (
        "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfor _ in range(99):\n  "
    )
    found = sandbox.run(source + way, limits=PATIENT._replace(output=1000))
    assert found.status == "output"
    assert found.stdout == ("x" * 99 + "\n" * ("print" in way)) * 10 + "x" * ("write" in way) * 10


def test_output_up_to_the_limit_is_all_there(sandbox):
    limits = PATIENT._replace(output=100_000)
    source = "import sys\nsys.stdout.write('x' * {0})\nsys.stderr.write('y' * 100_000)"
    found = sandbox.run(source.format(100_000), limits=limits)
    assert found == Execution("ok", "x" * 100_000, "y" * 100_000, 0)
    found = sandbox.run(source.format(100_001), limits=limits)
    assert (found.status, found.stdout) == ("output", "x" * 100_000)


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nprint(sys.stdin.read(), end='')",
        "import sys\nfor line in sys.stdin: print(line, end='')",
        "print(open(0).read(), end='')",
        "import os, sys\nsys.stdout.flush()\nos.write(1, os.read(0, 10 ** 6))",
        "for _ in range(3): print(input())",
        "import sys\nsys.stdin.seek(0)\nsys.stdout.writelines(sys.stdin.readlines())",
    ],
)
def test_stdin(sandbox, source):
    text = "1 2\nü" + "x" * 50_000 + "\n3\n"
    assert sandbox.run(source, stdin=text, limits=PATIENT) == Execution("ok", text, "", 0)


def test_the_traceback_is_short_and_says_where(sandbox):
    source = "def f(n):\n    return f(n - 1) if n else 1 / n\n\nf(500)\n"
    lines = sandbox.run(source).stderr.splitlines()
    assert len(lines) < 20
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "<program>", line 2, in f'
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert os.path.dirname(os.__file__) not in sandbox.run("import json\njson.loads('')").stderr


@pytest.mark.parametrize(
    ("source", "stdout"),
    [
        ("6 * 7", "42\n"),
        ("x = 6\nprint('a')\nx * 7 ; 'b'", "a\n'b'\n"),
        ("print(1)\nNone", "1\n"),
        ("x = 1", ""),
        ("", ""),
        ("def f():\n    1", ""),
    ],
)
def test_the_last_value_is_shown_as_in_a_notebook(sandbox, source, stdout):
    assert sandbox.run(source, show_last=True).stdout == stdout
    assert "42" not in sandbox.run(source).stdout


def test_the_same_program_prints_the_same_again(sandbox):
    source = """
import random, time
print({str(n) for n in range(99)}, hash("x"), random.random(), time.localtime(0))
class A: pass
import sys
print(len(sys.modules), sys.argv)
"""
    with Sandbox() as other:
        assert sandbox.run(source) == sandbox.run(source) == other.run(source)
    assert sandbox.run(source).status == "ok"


def test_what_programs_import_is_there(sandbox):
    source = "import importlib\n" + "".join(
        f"try: importlib.import_module({name!r})\nexcept ImportError: print({name!r})\n"
        for name in server.MODULES
    )
    assert sandbox.run(source) == Execution("ok", "", "", 0)


@pytest.mark.parametrize(
    "source",
    [
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))",
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
        "from datetime import datetime\nprint(datetime.strptime('2024-02-29', '%Y-%m-%d').year)",
        "from fractions import Fraction\nprint(Fraction('0.1') + 1)",
        "import hashlib, base64\nprint(hashlib.sha256(b'x').hexdigest(), base64.b64encode(b'x'))",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\nunittest.main(exit=False)",
        "import doctest\ndef f():\n    '''\n    >>> 1\n    1\n    '''\nprint(doctest.testmod())",
        "import signal\nsignal.alarm(9)\nprint(signal.alarm(0))",
        "import logging\nlogging.warning('x')\nprint('x'.encode('utf-16'), 'é'.encode('idna'))",
        "import time\ntime.sleep(0.001)\nprint(time.time() > 0, time.perf_counter() > 0)",
        "import threading\nlock = threading.Lock()\nprint(lock.acquire(), lock.acquire(timeout=0.01))",
        "import warnings\nwarnings.warn('x')\nprint(1)",
        "import os, random\nprint(len(os.urandom(9)), random.SystemRandom().random() < 1)",
        "if __name__ == '__main__': print(__name__)",
        "import re, json, itertools, collections, heapq, bisect\nprint(json.dumps({'a': [1]}))",
    ],
)
def test_honest_programs(sandbox, source):
    found = sandbox.run(source, limits=PATIENT)
    assert found.status == "ok", found.stderr
    assert found.stdout or "unittest" in source


# --- the processes --------------------------------------------------------------------


def all_end(processes):
    """Whether they end; the init process of the machine may be slow to reap what it inherits."""
    deadline = time.monotonic() + GONE_S
    while not (done := all(map(has_ended, processes))) and time.monotonic() < deadline:
        time.sleep(0.001)
    return done


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_calls_of_several_threads_run_at_the_same_time_up_to_the_number_of_workers():
    most = 0
    with Sandbox(workers=2) as sandbox, ThreadPoolExecutor(6) as threads:
        sandbox.run("")
        server = psutil.Process(sandbox.pid)
        source = "while True: pass"
        calls = [threads.submit(sandbox.run, source, limits=PATIENT) for _ in range(6)]
        while left := sum(not call.done() for call in calls):
            running = server.children()
            most = max(most, len(running))
            if len(running) >= min(left, 2):  # Each runs until it has been seen beside another.
                for each in running:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
    assert most == 2


def test_a_fork_server_that_was_killed_while_idle_is_replaced_without_a_word():
    with Sandbox() as sandbox:
        sandbox.run("")
        first = psutil.Process(sandbox.pid)
        first.kill()
        assert all_end([first])
        assert sandbox.run("print(1)").stdout == "1\n"
        assert sandbox.pid != first.pid


def test_a_fork_server_that_dies_fails_the_call_and_not_the_next():
    with Sandbox() as sandbox, ThreadPoolExecutor(1) as thread:
        sandbox.run("")
        server = psutil.Process(sandbox.pid)
        call = thread.submit(sandbox.run, "while True: pass", limits=PATIENT)
        while not (children := server.children()):
            assert not call.done()
        server.kill()
        with pytest.raises(SandboxError, match="the fork server has ended"):
            call.result()
        assert all_end([server, *children])
        assert sandbox.run("print(1)").stdout == "1\n"


def test_a_fork_server_that_does_not_start(monkeypatch):
    monkeypatch.setattr(process_pool, "_START", "raise SystemExit")
    with Sandbox() as sandbox, pytest.raises(SandboxError, match="fork server"):
        sandbox.run("")


def limit_with_free_files(free):
    """The limit below which so many numbers of files are free: it bounds numbers, not how many there are."""
    numbers = itertools.count()
    while free:
        number = next(numbers)
        try:
            os.fstat(number)
        except OSError:
            free -= 1
    return number + 1


@pytest.mark.parametrize("gaps", [0, 8])
def test_a_caller_that_has_too_many_files_open_learns_it(sandbox, gaps):
    sandbox.run("")
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(2 * gaps)]
    for file in files[::2]:
        os.close(file)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with_free_files(4), hard))
    try:
        with pytest.raises(SandboxError, match="the program cannot be handed over"):
            sandbox.run("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in files[1::2]:
            os.close(file)
    assert sandbox.run("print(1)").stdout == "1\n"


def test_nothing_is_left_after_close():
    sandbox = Sandbox()
    sandbox.run("")
    server = psutil.Process(sandbox.pid)
    before = len(os.listdir("/proc/self/fd"))
    sandbox.close()
    sandbox.close()
    assert not server.is_running()
    assert len(os.listdir("/proc/self/fd")) < before
    assert sandbox.run("print(1)").stdout == "1\n", "a call after close starts it again"
    sandbox.close()


def test_nothing_is_left_of_one_that_nobody_closed():
    sandbox = Sandbox()
    sandbox.run("")
    server = psutil.Process(sandbox.pid)
    del sandbox
    gc.collect()
    assert not server.is_running()


def test_calls_leave_no_files_open(sandbox):
    sandbox.run("")
    before = os.listdir("/proc/self/fd")
    for source in ("", "1 / 0", "while True: print(1)"):
        sandbox.run(source)
    assert os.listdir("/proc/self/fd") == before


LEFT = """
import sys, threading
from rejuice.operators.sandbox.run import Sandbox, SandboxLimits
sandbox = Sandbox()
sandbox.run("")
print(sandbox.pid, flush=True)
sandbox.run("while True: pass", limits=SandboxLimits(seconds=600))
"""


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_ends_with_the_caller_however_it_ends(how):
    with subprocess.Popen(
        [sys.executable, "-c", LEFT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as caller:
        server = psutil.Process(int(caller.stdout.readline()))
        while not (children := server.children()):
            assert caller.poll() is None
        caller.send_signal(how)
        assert all_end([server, *children])


def test_a_forked_process_has_a_fork_server_of_its_own(sandbox):
    sandbox.run("")
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            text = f"{sandbox.run('print(1)').stdout.strip()} {sandbox.pid}"
            sandbox.close()
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read) as answer:
        printed, server = answer.read().split()
    assert (printed, int(server) != sandbox.pid) == ("1", True)
    assert not psutil.pid_exists(int(server))
    assert sandbox.run("print(2)").stdout == "2\n"


@pytest.mark.usefixtures("interrupts")
def test_a_call_that_is_interrupted_ends_its_program():
    with Sandbox() as sandbox:
        sandbox.run("")
        server = psutil.Process(sandbox.pid)

        def interrupt():
            while not server.children():
                time.sleep(0)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            sandbox.run("while True: pass", limits=PATIENT)
        assert sandbox.run("print(1)").stdout == "1\n"
        # The server answers before the process of the last call is gone.
        _, alive = psutil.wait_procs(server.children(), timeout=10)
        assert not alive


def test_calls_that_end_at_the_same_time_are_not_mixed_up(sandbox):
    def check(n):
        if n % 3 == 0:
            found = sandbox.run(f"while True: print({n})", limits=PATIENT._replace(output=100))
            return found.status == "output" and set(found.stdout.split()[:-1]) == {str(n)}
        return sandbox.run("print(input())", stdin=f"{n}", limits=PATIENT).stdout == f"{n}\n"

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(check, range(150)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("c.confine = lambda **_: c.os.kill(c.os.getpid(), 9)", "its process died"),
        ("c.os.setsid = lambda: 1 / 0", "ZeroDivisionError: division by zero"),
        (
            "c.os.fork = lambda: c.os.open('', 0)",
            "cannot fork: [Errno 2] No such file or directory: ''",
        ),
    ],
)
def test_a_process_that_does_not_get_ready_is_not_the_fault_of_the_program(
    monkeypatch, line, reason
):
    serve_after(monkeypatch, line)
    with Sandbox() as sandbox:
        for _ in range(2):
            with pytest.raises(SandboxError) as error:
                sandbox.run("print(1)")
            assert str(error.value) == f"the program could not be confined: {reason}"
        assert all_end(psutil.Process(sandbox.pid).children())


# --- a machine that cannot confine ------------------------------------------------------

FOUND = "this machine cannot confine the Python programs of a policy: "
RIGHT = "; run it on Linux 5.13 or newer with Landlock (`lsm=landlock,...`), on x86_64 or aarch64"


def serve_after(monkeypatch, line):
    """Fork servers run this line before they serve; `c` is the module that confines."""
    serve = f"from _rejuice.sandbox import confine as c\n{line}\nimportlib.import_module(module)"
    changed = process_pool._START.replace("importlib.import_module(module)", serve)
    monkeypatch.setattr(process_pool, "_START", changed)
    check_confinement.cache_clear()


@pytest.fixture
def _afresh():
    yield
    check_confinement.cache_clear()


def test_this_machine_confines():
    check_confinement()


@pytest.mark.usefixtures("_afresh")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "c.landlock_abi = lambda: 0",
            "the program could not be confined: its kernel has no Landlock, or has it switched off",
        ),
        (
            "c.ARCHITECTURES = {}",
            f"the program could not be confined: processors of type {os.uname().machine} are not supported",
        ),
        (
            "c._PR_SET_NO_NEW_PRIVS = 9999",
            "the program could not be confined: no_new_privs: Invalid argument",
        ),
        ("c.confine = lambda **_: None", "a test program ended with 'error'"),
    ],
)
def test_without_a_layer_no_program_runs(monkeypatch, line, found):
    serve_after(monkeypatch, line)
    with pytest.raises(RecipeError) as error:
        check_confinement()
    assert str(error.value) == FOUND + found + RIGHT


@pytest.mark.usefixtures("_afresh")
def test_another_system(monkeypatch):
    check_confinement.cache_clear()
    monkeypatch.setattr(run.sys, "platform", "darwin")
    with pytest.raises(RecipeError, match=f"it is darwin on {os.uname().machine}"):
        check_confinement()


FILES_ARE_DENIED = """
for path in ("/etc/passwd", "/proc/self/mem", "/"):
    try: open(path)
    except PermissionError: print("no")
"""


@pytest.mark.usefixtures("_afresh")
@pytest.mark.parametrize(
    "line",
    [
        "c._deny_files = lambda: None",
        "c._filter_calls = lambda: None",
        *(
            f"c._filter_calls = lambda: None\nc.landlock_abi = lambda: {abi}"
            for abi in (1, 2, 3, 5)
        ),
    ],
)
def test_seccomp_and_every_abi_of_landlock_alone_deny_files(monkeypatch, line):
    if "lambda: 5" in line and confine.landlock_abi() < 5:
        pytest.skip("an old Landlock")
    serve_after(monkeypatch, line)
    with Sandbox() as sandbox:
        assert sandbox.run(FILES_ARE_DENIED).stdout == "no\n" * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="this user cannot be root of a container")
@pytest.mark.usefixtures("_afresh")
def test_root_that_cannot_change_its_user_has_no_capabilities(monkeypatch):
    serve_after(monkeypatch, "c._deny_files = c._filter_calls = lambda: None\nc._NOBODY = 0")
    source = """
import os
print(os.getuid())
print(*(line for line in open("/proc/self/status") if line[:6] in ("CapEff", "CapPrm", "CapInh")))
os.setgroups([])
"""
    with Sandbox() as sandbox:
        found = sandbox.run(source)
    assert found.stdout.split()[::2] == ["0", *["0" * 16] * 3]
    assert found.stdout.split()[0] == "0"
    assert found.stderr.endswith("PermissionError: [Errno 1] Operation not permitted\n")


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("print(1)\nexit()\nprint(2)", "1\n"),
        ("print(1)\nquit(0)", "1\n"),
        ("import os\nprint(os.read(0, os.fstat(0).st_size))", "b'1 2\\n3'\n"),
        ("import fileinput\nprint([*fileinput.input()])", "['1 2\\n', '3']\n"),
        ("import os\ntry: os.fstat(7)\nexcept OSError as error: print(error)", "[Errno 9] Bad file descriptor\n"),
    ],
)  # fmt: skip
def test_what_programs_of_contests_do(source, printed):
    with Sandbox() as sandbox:
        found = sandbox.run(source, stdin="1 2\n3")
    assert (found.status, found.stdout) == ("ok", printed)


def test_a_program_that_is_stopped_before_it_begins():
    stop = Stop()
    stop()
    with Sandbox() as sandbox:
        with contextlib.suppress(SandboxError):  # nothing is known about it
            sandbox.run("while True: pass", limits=PATIENT, stop=stop)
        assert sandbox.run("print(1)").stdout == "1\n"
        stop()


def test_the_thread_of_a_program_that_recurses_deeply_runs(sandbox):
    source = """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(1 << 26)
def f(n):
    return 0 if n == 0 else 1 + f(n - 1)
def main():
    print(f(50_000))
thread = threading.Thread(target=main)
thread.start()
thread.join()
print(thread.is_alive())
"""
    assert sandbox.run(source, limits=PATIENT) == Execution("ok", "50000\nFalse\n", "", 0)


def test_what_a_thread_raises_ends_only_the_thread(sandbox):
    source = """
import threading
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
threading.Thread(target=exit).start()
print("on")
"""
    ran = sandbox.run(source, limits=PATIENT)
    assert (ran.status, ran.stdout) == ("ok", "on\n")
    assert "ZeroDivisionError" in ran.stderr
    assert "SystemExit" not in ran.stderr


def test_pools_of_threads_are_refused(sandbox):
    source = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(abs, [-1])))
"""
    ran = sandbox.run(source, limits=PATIENT)
    assert ran.status == "error"
    assert "can't start new thread" in ran.stderr
