"""What tests of several engines need."""

import signal

import pytest


@pytest.fixture
def interrupts():
    """Ctrl-C as it mostly is; in the background of a shell it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def one_thread():
    """Torch with one thread, as the engine's processes have it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
