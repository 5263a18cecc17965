"""Processes that end when they should not, and what those of the pool have of this one."""

import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time

import psutil
import pytest

from rejuice.operators.process_pool import (
    ForkingProcess,
    ProcessPool,
    WorkerProcess,
    batches,
    python_path,
    receive,
    reply,
    send,
    serve_forks,
)

# --- A pool ---------------------------------------------------------------------------


class Echo(WorkerProcess):
    """A thread that answers with what it is asked; or one that ends before it is ready."""

    is_ready = False
    attempts = 3

    def __init__(self, ends):
        self.link, self.theirs = socket.socketpair()
        if ends:
            self.theirs.close()
        else:
            threading.Thread(target=self.serve).start()

    def serve(self):
        send(self.theirs, b"")
        for rows in batches(self.theirs):
            for number, request in rows:
                reply(self.theirs, number, request)

    def prepare(self):
        receive(self.link)
        self.is_ready = True

    def close(self):
        self.link.close()


class Echoes(ProcessPool):
    def __init__(self, ends, size=1):
        super().__init__("echoes", size)
        self.ends = iter(ends)

    def start(self):
        return Echo(next(self.ends))

    def answer(self, process, *fields):
        return fields[0]

    def lost(self, process, *, late):
        return "lost"


@pytest.mark.parametrize(
    ("workers", "ends"), [(1, [True, True, False]), (3, [True] * 6 + [False] * 3)]
)
def test_what_ends_before_it_is_ready_is_replaced(workers, ends):
    pool = Echoes(ends, workers)
    assert pool.ask("abc", seconds=60, workers=workers) == ["a", "b", "c"]
    pool.close()


def test_a_call_fails_where_one_after_the_other_ends_before_it_is_ready():
    with pytest.raises(EOFError):
        Echoes([True] * 3).ask("abc", seconds=60, workers=1)


def test_an_idle_process_that_has_ended_costs_no_row():
    pool = Echoes([False] * 4, 2)
    assert pool.ask("ab", seconds=60, workers=2) == ["a", "b"]
    for each in pool._idle:
        each.theirs.shutdown(socket.SHUT_RDWR)
        each.theirs.close()
    assert pool.ask("cde", seconds=60, workers=2) == ["c", "d", "e"]
    pool.close()


class EndsAtRequest(Echo):
    def serve(self):
        send(self.theirs, b"")
        self.theirs.recv(1 << 10)
        self.theirs.close()


def test_a_large_request_at_which_each_process_ends_is_lost(monkeypatch):
    monkeypatch.setattr(Echoes, "start", lambda pool: EndsAtRequest(next(pool.ends)))
    pool = Echoes([False] * 3)
    assert pool.ask([bytes(8 << 20)] * 2, seconds=60, workers=1) == ["lost", "lost"]
    pool.close()


# --- Forks ----------------------------------------------------------------------------


@pytest.fixture
def server_of():
    """A server whose forks do something, and its process."""
    processes = []

    def start(serve):
        ours, theirs = socket.socketpair()
        process = multiprocessing.get_context("fork").Process(
            target=serve_forks, args=(theirs, serve)
        )
        process.start()
        theirs.close()
        server = object.__new__(ForkingProcess)
        server.link = ours
        processes.append(process)
        return server, psutil.Process(process.pid)

    yield start
    for each in processes:
        each.kill()
        each.join()


def spin(link):
    """Hold the GIL."""
    link.sendall(b"x")
    re.match(r"(a+)+$", "a" * 60 + "b")


@pytest.mark.slow
def test_a_fork_that_holds_the_gil_ends_with_its_server(server_of):
    server, process = server_of(spin)
    link, _ = server.fork()
    link.recv(1)
    time.sleep(0.1)  # Until it spins.
    (fork,) = process.children()
    process.kill()
    assert link.recv(1) == b""
    while fork.is_running() and fork.status() != "zombie":
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGPROF, b"-27"), (None, b"-9")])
def test_how_a_fork_has_ended_is_known_and_nothing_of_it_is_left(server_of, number, code):
    def serve(link):
        if number is not None:
            os.kill(os.getpid(), number)
        link.recv(1)

    server, process = server_of(serve)
    link, end = server.fork()
    if number is not None:
        assert link.recv(1) == b""
    with end() as answer:
        assert receive(answer) == code
    assert process.children() == []
    with end() as answer, pytest.raises(EOFError):  # It has ended already.
        receive(answer)


# --- Where processes find modules -----------------------------------------------------


def test_modules_beside_a_notebook_are_found_after_all_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", "finder"])
    assert python_path() == ["/a", "finder", str(tmp_path)]
    tmp_path.rmdir()
    assert python_path() == ["/a", "finder"]
    monkeypatch.setattr(sys, "path", ["/a"])
    assert python_path() == ["/a"]
