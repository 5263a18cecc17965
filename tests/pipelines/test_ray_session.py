"""Connections to Ray that fail are one line, at once."""

import os
import signal
import socket

import pytest

from rejuice.operators import EngineError
from rejuice.pipelines import ray_session
from rejuice.pipelines.ray_session import connected_to_ray

pytest.importorskip("ray")


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:{port}", "Connection refused"),
        ("ray://127.0.0.1:{port}", "Connection refused"),
        ("nonsense", "Invalid address format: nonsense"),
    ],
)
def test_a_cluster_that_cannot_be_reached(address, found, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # Nobody listens there from the next line on.
    address = address.format(port=port)
    with pytest.raises(EngineError) as error, connected_to_ray(address):
        pass
    assert str(error.value) == (
        f"the Ray cluster at {address} cannot be reached: {found}; "
        "give HOST:PORT of its head node, or local; if it asks for a token, "
        "set RAY_AUTH_MODE=token"
    )


def test_the_environment_names_the_cluster(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(EngineError, match="the Ray cluster at nonsense"), connected_to_ray():
        pass


@pytest.mark.parametrize(
    ("presses", "done"),
    [(1, ["connected", "shut down"]), (2, ["shut down"])],
    ids=["once", "twice"],
)
def test_ctrl_c_waits_while_ray_is_connected(presses, done, monkeypatch, interrupts):
    """Ray's core, interrupted in the middle of it, would abort the process later."""
    import ray

    found = []

    def connect(*_):
        for _ in range(presses):
            os.kill(os.getpid(), signal.SIGINT)
        found.append("connected")

    monkeypatch.setattr(ray_session, "_connect", connect)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: found.append("shut down"))
    with pytest.raises(KeyboardInterrupt), connected_to_ray("local"):
        found.append("inside")
    assert found == done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_waits_while_ray_is_shut_down(monkeypatch, interrupts):
    import ray

    found = []

    def shut_down():
        os.kill(os.getpid(), signal.SIGINT)
        found.append("shut down")

    monkeypatch.setattr(ray_session, "_connect", lambda *_: True)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", shut_down)
    with pytest.raises(KeyboardInterrupt), connected_to_ray("local"):
        pass
    assert found == ["shut down"]
