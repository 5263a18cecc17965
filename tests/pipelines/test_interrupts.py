"""Signals that end a run as Ctrl-C does."""

import os
import signal
import subprocess
import sys
import threading
import weakref

import pytest

from rejuice.operators.workers import signals_interrupt

_SLOW_TO_LOAD = """
import os, sys
number, module = int(sys.argv[1]), sys.argv[2]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
from rejuice.pipelines.cli.__main__ import main
sys.argv[1:] = ["--version"]
main()
"""
_SLOW_TO_UNLOAD = """
import os, sys
class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), numbers=(2, 15)):
        for number in numbers:
            kill(me, number)
sys.modules["last"] = Last()
from rejuice.pipelines.cli.__main__ import main
sys.argv[1:] = ["--version"]
main()
"""


def test_signals_interrupt_unless_they_are_ignored():
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        for number in numbers:
            with pytest.raises(KeyboardInterrupt), signals_interrupt():
                os.kill(os.getpid(), number)
                threading.Event().wait(60)
            assert signal.getsignal(number) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As under nohup.
        with signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_other_threads_change_nothing():
    found = []

    def work():
        with signals_interrupt():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]


def test_ctrl_c_that_python_ignores_comes_again(interrupts):
    """As one does at the end of an import, when Python calls back for a lock that has gone."""
    kept, heard = {str}, threading.Event()
    gone = weakref.ref(kept, lambda _: os.kill(os.getpid(), signal.SIGINT))
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        del kept
        heard.wait(60)
    assert gone() is None
    assert sys.unraisablehook is before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_during_the_imports_or_the_end_of_the_interpreter(number):
    def ended(code, *words):
        command = [sys.executable, "-c", code, *map(str, words)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return found.returncode, found.stderr

    module = "rejuice.pipelines.cli.analysis"
    assert ended(_SLOW_TO_LOAD, int(number), module) == (130, "rejuice: stopped\n")
    assert ended(_SLOW_TO_UNLOAD) == (0, "")
