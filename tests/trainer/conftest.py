"""verl in this process, and a run of it that needs neither Ray nor a policy that samples."""

import sys

import pytest


@pytest.fixture(scope="session")
def verl():
    """verl, imported as a process of a run on a CPU imports it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_PLATFORM", "cpu")
        modules = "rejuice.trainer.verl.plugin,rejuice.trainer.cpu.platform"
        patch.setenv("VERL_USE_EXTERNAL_MODULES", modules)
        # Only while it is imported: elsewhere in this process trl may be wanted.
        patch.setitem(sys.modules, "trl", None)
        import verl
        from verl.plugin.platform import get_platform

        assert get_platform().device_name == "cpu"
        yield verl


@pytest.fixture
def queue(verl, monkeypatch):
    """An empty TransferQueue."""
    from fake_queue import FakeQueue

    queue = FakeQueue()
    queue.install(monkeypatch)
    yield queue
    queue.close()


@pytest.fixture
def stage(queue, tmp_path):
    """A factory of training runs whose responses the test makes up."""
    from training_stage import Stage

    def make(after, **settings):
        return Stage(tmp_path / "run", queue, after, **settings)

    return make
