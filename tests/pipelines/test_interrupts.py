"""Signals that end a run as Ctrl-C does."""

import os
import signal
import threading

import pytest

from rejuice.operators.workers import signals_interrupt


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
