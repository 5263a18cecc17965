"""Data-Juicer in this process, left as it was."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from dj_processes import DjProcesses

_HERE = Path(__file__).parent
_started: dict[str, DjProcesses] = {}
"""By the executor."""
_PATHS = (
    "HF_DATASETS_CACHE",
    "DEFAULT_DOWNLOADED_DATASETS_PATH",
    "DOWNLOADED_DATASETS_PATH",
    "DEFAULT_EXTRACTED_DATASETS_PATH",
    "EXTRACTED_DATASETS_PATH",
)


@pytest.fixture(scope="module")
def data_juicer():
    """Data-Juicer may be run in this process; what it sets globally is set back."""
    pytest.importorskip("data_juicer")
    import datasets
    import datasets.config
    from data_juicer.config import config

    with pytest.MonkeyPatch.context() as patch:
        for name in _PATHS:
            patch.setattr(datasets.config, name, getattr(datasets.config, name))
        patch.setattr(tempfile, "tempdir", tempfile.tempdir)
        patch.setattr(config, "global_cfg", None)
        # Without a pool of processes, each of which would import all of it.
        save = datasets.Dataset.save_to_disk
        patch.setattr(datasets.Dataset, "save_to_disk", lambda self, path, **_: save(self, path))
        yield
    datasets.enable_caching()


@pytest.fixture(scope="session")
def dj_process_of(tmp_path_factory):
    """From an executor to `dj-process` in a process that these tests share; with one Ray."""
    pytest.importorskip("data_juicer")

    # The default executor forks, which a process must not that has connected to Ray.
    def of(executor):
        if executor not in _started:
            _started[executor] = DjProcesses(tmp_path_factory.mktemp(f"dj-process-{executor}"))
        return _started[executor].run

    return of


def pytest_runtest_teardown(nextitem):
    """End them with the last test of this folder: a Ray that nobody uses takes a tenth of a core."""
    if nextitem is None or nextitem.path.parent != _HERE:
        while _started:
            _started.popitem()[1].close()


@pytest.fixture
def rows(rollouts):
    """Graded rollouts with a column `text`, which Data-Juicer wants to be there."""
    table = rollouts(groups=30, most=5)
    return table.append_column("text", pa.array([f"row {i}" for i in range(table.num_rows)]))
