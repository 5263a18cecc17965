import asyncio
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from rejuice.operators.servers.concurrency import LoopThread


@pytest.fixture
def loop():
    loop = LoopThread("loop of a test")
    yield loop
    loop.close()
    assert "loop of a test" not in [thread.name for thread in threading.enumerate()]


def test_results_come_as_they_are_put(loop):
    seen = threading.Event()

    async def work(put):
        put(1)
        await asyncio.to_thread(seen.wait, 5)
        put(2)

    stream = loop.stream(work)
    assert next(stream) == 1
    seen.set()
    assert list(stream) == [2]


def test_what_the_work_raises_comes_last(loop):
    async def work(put):
        put(1)
        raise ValueError("broken")

    found = []
    with pytest.raises(ValueError, match=r"^broken$"):
        found.extend(loop.stream(work))
    assert found == [1]


def test_leaving_early_waits_for_the_end_of_the_work(loop):
    ended = []

    async def work(put):
        put(1)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    stream = loop.stream(work)
    next(stream)
    stream.close()
    assert ended == [True]


async def put_all(put):
    for number in range(5):
        put(number)
    await asyncio.sleep(60)


@pytest.mark.usefixtures("interrupts")
def test_what_has_come_before_ctrl_c_is_still_yielded(loop):
    found = []
    with pytest.raises(KeyboardInterrupt):
        for number in loop.stream(put_all):
            if not found:
                signal.raise_signal(signal.SIGINT)
            found.append(number)
    assert found == [*range(5)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_while_the_next_result_is_waited_for(loop):
    def interrupt():
        if len(found) == 3:
            signal.raise_signal(signal.SIGINT)

    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(loop.stream(put_all, interrupt))
    assert found == [*range(5)]


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_does_not_wait_twice_nor_for_a_stream_that_was_left_open(loop):
    found, stream = [], loop.stream(put_all)
    with pytest.raises(KeyboardInterrupt):
        for number in stream:
            found.append(number)
            signal.raise_signal(signal.SIGINT)
    assert found == [0, 1], "of those that come after the first, none waits"
    left = loop.stream(put_all)
    next(left)
    loop.close()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    left.close()


def test_closing_cancels_what_runs(loop):
    async def work(put):
        put(1)
        await asyncio.sleep(60)

    stream = loop.stream(work)
    next(stream)
    loop.close()
    with pytest.raises(asyncio.CancelledError):
        next(stream)


@pytest.mark.parametrize("message", ["can't create new thread at interpreter shutdown", "another"])
def test_end_of_the_interpreter_is_no_error_and_others_are(monkeypatch, message):
    async def no_thread():
        raise RuntimeError(message)

    loop = LoopThread("loop of a test")
    with monkeypatch.context() as patch:
        patch.setattr(loop._loop, "shutdown_default_executor", no_thread)
        if message == "another":
            with pytest.raises(RuntimeError, match=r"^another$"):
                loop.close()
        else:
            loop.close()
            assert loop._loop.is_closed()
    loop.close()


@pytest.mark.slow
def test_left_open_and_closed_by_atexit():
    """In Python 3.12 that is too late for new threads."""
    program = """
        import asyncio, atexit
        from rejuice.operators.servers.concurrency import LoopThread

        async def work(put):
            put(await asyncio.to_thread(int, "4"))

        loop = LoopThread("left open")
        atexit.register(loop.close)
        print(*loop.stream(work))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("4\n", "")


def test_results_of_coroutines(loop):
    async def double(number):
        return 2 * number

    assert loop.run(double(21)) == 42


def test_two_streams_at_once(loop):
    async def count(put):
        for number in range(100):
            put(number)
            await asyncio.sleep(0)

    pairs = list(zip(loop.stream(count), loop.stream(count), strict=True))
    assert pairs == [(number, number) for number in range(100)]


def test_putting_into_a_loop_that_another_thread_closes_meanwhile_is_no_error(monkeypatch):
    loop, queue = LoopThread("loop of a test"), asyncio.Queue()
    put = loop._loop.call_soon_threadsafe

    def closed_before(*call):
        monkeypatch.undo()
        loop.close()
        return put(*call)

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", closed_before)
    loop.call(lambda: queue.put_nowait(1))
    assert queue.empty()
    loop.call(lambda: queue.put_nowait(1))
    assert queue.empty()
