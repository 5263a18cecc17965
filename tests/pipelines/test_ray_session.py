"""Connections to Ray that fail are one line, at once."""

import socket

import pytest

from rejuice.operators import EngineError
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
