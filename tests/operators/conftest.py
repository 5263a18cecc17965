"""What tests of several engines need."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Torch with one thread, as the engine's processes have it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def asked_of_shared_client(monkeypatch):
    """What the shared client of servers is asked: it sends nothing, and refuses each request.

    That a place asks by it is tested with this; all that the client does about a server that fails
    is tested in `servers/test_client.py` alone.
    """
    from rejuice.operators.servers.client import OpenAIClient
    from rejuice.operators.servers.wire import AttemptError, RetryClass

    error = AttemptError("request_refused", "by the shared client", RetryClass.REFUSED)
    asked = []

    async def answer(_, request, *more):
        asked.append(request)
        raise error

    monkeypatch.setattr(OpenAIClient, "answer", answer)
    return asked
