"""Python as a tool: what the policy sees of its code."""

from __future__ import annotations

import asyncio
import os
import pickle

import psutil
import pytest

from rejuice.operators.agents.tool import Observation, ToolError, described
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools import python
from rejuice.operators.agents.tools.python import Python
from rejuice.operators.errors import RecipeError
from rejuice.operators.sandbox.run import SandboxError

pytestmark = pytest.mark.slow


def observe(*codes, **fields):
    """The observations of calls at the same time, by the way that flows take."""

    async def main():
        tool = Python(**fields)
        box = await Toolbox.of([tool])
        try:
            return await asyncio.gather(*(box.call("python", {"code": code}, {}) for code in codes))
        finally:
            await tool.close()

    return asyncio.run(main())


def test_what_the_policy_reads():
    (function,) = asyncio.run(Python().functions())
    assert described(function) == {
        "type": "function",
        "function": {
            "name": "python",
            "description": "Run Python code and return what it prints, and the value of its last "
            "line. Only the standard library is there: no files, no network, no other processes, "
            "no threads. Each call starts anew.",
            "parameters": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Python source"}},
                "required": ["code"],
                "additionalProperties": False,
            },
        },
    }


TRACEBACK = """Traceback (most recent call last):
  File "<program>", line 2, in <module>
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero"""


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        ("print('a')\nprint('b')", "a\nb", "ok"),
        ("6 * 7", "42", "ok"),
        ("x = [1, 'é']\nx", "[1, 'é']", "ok"),
        ("x = 1", "The code printed nothing.", "ok"),
        ("import sys\nprint('to stderr', file=sys.stderr)\n1", "1\nto stderr", "ok"),
        ("print('so far')\n1 / 0", "so far\n" + TRACEBACK, "error"),
        ("def f(:", "  File \"<program>\", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax", "error"),
        ("import sys\nsys.exit(3)", "The code ended with exit code 3.", "error"),
        ("import os\nos.abort()", "The code was ended by signal 6: Aborted.", "error"),
        ("x = bytearray(10 ** 9)", "The code was ended: it needed more than 64 MiB of memory.", "error"),
        ("while True: print('xyz')", "xyz\nxyz\nxy\nThe code was ended: it printed more than 300 bytes.", "error"),
        ("open('/etc/passwd')", "PermissionError: [Errno 1] Operation not permitted: '/etc/passwd'", "error"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'", "error"),
    ],
)  # fmt: skip
def test_observations(code, text, status):
    (found,) = observe(code, seconds=60, memory_mb=64, max_output=300)
    assert found.status == status
    if status == "ok" or text.startswith(("so far", "The code")):
        assert found.text == text
    elif "xyz" in text:
        assert found.text.startswith("xyz\n")
        assert found.text.endswith(text.rpartition("\n")[2])
    else:
        assert found.text.endswith(text)


def test_code_that_does_not_end_is_ended_and_the_others_go_on():
    endless, honest, later = observe("while True: pass", "1 + 1", "2 + 2", seconds=6)
    assert endless == Observation("The code was ended: it ran for more than 6 s.", "error")
    assert (honest, later) == (Observation("2"), Observation("4"))


def test_calls_do_not_see_one_another():
    first, second = observe("x = 1", "x")
    assert first.status == "ok"
    assert second.text.endswith("NameError: name 'x' is not defined")


def test_a_text_of_a_long_traceback_is_short():
    (found,) = observe("def f(n): return f(n - 1)\nf(1)")
    assert len(found.text.splitlines()) == 6
    assert found.text.endswith("RecursionError: maximum recursion depth exceeded")


def test_wrong_arguments_run_nothing():
    async def main():
        box = await Toolbox.of([Python()])
        return await box.call("python", {"source": "1"}, {}), await box.call("python", "{}", {})

    for found in asyncio.run(main()):
        assert (found.status, found.text) == ("bad_arguments", "code: Field required")


def test_a_sandbox_that_fails_is_not_the_fault_of_the_code(monkeypatch):
    def fail(*_, **__):
        raise SandboxError("the fork server has ended")

    monkeypatch.setattr(python.Sandbox, "run", fail)
    with pytest.raises(ToolError, match="python: the fork server has ended"):
        observe("1")


def test_close_ends_its_processes_and_a_later_call_starts_them_again():
    async def main():
        tool = Python()
        for _ in range(2):
            assert (await tool.call("1")).text == "1"
            assert len(psutil.Process().children()) == before + 1
            await tool.close()
            await tool.close()
            assert len(psutil.Process().children()) == before

    before = len(psutil.Process().children())
    asyncio.run(main())


def test_it_is_a_config_that_travels():
    tool = Python(seconds=2)
    assert pickle.loads(pickle.dumps(tool)) == tool
    assert tool.cache_key_fields() == {
        "seconds": 2.0,
        "memory_mb": 512,
        "max_output": 16_384,
        "code": "1",
    }
    assert tool.is_read_only()
    assert tool.reads() == ()


def test_a_machine_that_cannot_confine_is_found_before_sampling(monkeypatch):
    def fail():
        raise RecipeError("this machine cannot confine", "use another")

    Python().check()
    monkeypatch.setattr(python, "check_confinement", fail)
    with pytest.raises(RecipeError, match="this machine cannot confine; use another"):
        Python().check()


def test_the_environment_of_this_process_is_not_seen(monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    (found,) = observe("import os\ndict(os.environ)")
    assert found == Observation("{}")
    assert os.environ["SECRET"] == "hunter2"


def test_calls_that_wait_do_not_start_the_sandbox_again_when_the_tool_is_closed(monkeypatch):
    monkeypatch.setattr(python, "usable_cores", lambda: 1)

    async def main():
        tool = Python(seconds=60)
        calls = [asyncio.ensure_future(tool.call("while True: pass")) for _ in range(4)]
        await asyncio.sleep(0)
        sandbox, threads = tool._running
        while sandbox.pid is None:
            await asyncio.sleep(0.01)
        await tool.close()
        found = await asyncio.gather(*calls, return_exceptions=True)
        threads.shutdown()
        assert sandbox.pid is None
        return [type(each) for each in found]

    assert set(asyncio.run(main())) <= {ToolError, asyncio.CancelledError}


def test_a_call_that_is_cancelled_leaves_its_place_to_others(monkeypatch):
    monkeypatch.setattr(python, "usable_cores", lambda: 1)

    async def main():
        tool = Python(seconds=600)
        try:
            await tool.call("1")  # The sandbox has started.
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(tool.call("while True: pass"), 0.1)
            return await asyncio.wait_for(tool.call("6 * 7"), 60)
        finally:
            await tool.close()

    assert asyncio.run(main()) == Observation("42")
