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
