"""What many tests need: made-up rollouts, recipes in temporary folders, the shared data."""

import asyncio
import json
import os
import signal
import sys
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
import tiers
import yaml
from hypothesis import settings

# Tests start hundreds of processes: each would compile what it imports, for a second or more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Before torch is imported, here and in every process that a test starts. By default, its threads spin
# while they wait for each other; where more processes compute than there are cores, each operation
# then takes a slice of the scheduler's time, and tests that use torch take twenty times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes is a matter of what else the machine does. CI draws the same examples
# each time, so that it fails for a change and not by chance; other runs draw new ones.
settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")


class Scheduling:
    """A hook of pytest-xdist, which is not always loaded."""

    def pytest_xdist_make_scheduler(self, config, log):
        from scheduling import Together

        return Together(config, log) if config.option.dist == "load" else None


def pytest_configure(config):
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(Scheduling())
    tiers.watch()


def pytest_ignore_collect(collection_path, config):
    """Files of which nothing is run are not imported: what they import takes half a minute."""
    is_test = collection_path.match("test_*.py") and collection_path.is_file()
    return (is_test and tiers.is_left_out(collection_path, config.option.markexpr)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    tiers.mark_slow(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if item.get_closest_marker("slow"):
        return (yield)
    with tiers.fast_test(item.nodeid):
        return (yield)


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def interrupts():
    """Ctrl-C as it mostly is; in the background of a shell it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def shared_data():
    """Real data that lies beside the checkout where the project is developed."""
    if not SHARED.is_dir():
        pytest.skip("the shared data is not beside this checkout")
    return SHARED


@pytest.fixture
def no_thread_is_left():
    """What a test starts, it ends."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def slow_at_once(monkeypatch):
    """`Trouble.SLOW` takes no time: the client finds the answer late as soon as it is requested.

    Good answers have all of `timeout_s`, so that none is late on a busy machine.
    """
    from fake_server import SLOW_STATUS, FakeServer

    from rejuice.operators.servers.client import OpenAIClient

    exchange = OpenAIClient._exchange_http

    async def exchange_or_time_out(self, *arguments):
        found = await exchange(self, *arguments)
        if found.status == SLOW_STATUS:
            raise asyncio.TimeoutError
        return found

    monkeypatch.setattr(OpenAIClient, "_exchange_http", exchange_or_time_out)
    monkeypatch.setattr(FakeServer, "slow_at_once", True)


@pytest.fixture(scope="session")
def rollouts():
    """A factory of graded rollouts: a table with `groups` prompts of 1 to `most` responses."""

    def make(groups=20, most=5):
        rows = [
            {
                "prompt_id": f"prompt-{g:04d}",
                "response_id": f"response-{g:04d}-{k}",
                "response": f"the answer to {g} is {(g * 7 + k * 3) % 5}",
                "verdict": ["correct", "wrong_answer", "no_answer"][(g + k * k) % 3],
                "reward": float((g + k) % 2),
            }
            for g in range(groups)
            for k in range(g % most + 1)
        ]
        schema = pa.schema(
            [(n, pa.string()) for n in ("prompt_id", "response_id", "response", "verdict")]
            + [("reward", pa.float64())]
        )
        return pa.Table.from_pylist(rows, schema=schema)

    return make


@pytest.fixture(scope="session", autouse=True)
def trusted_nowhere(tmp_path_factory):
    """What a user trusts is remembered: not that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def recipe_file(tmp_path):
    """A factory of recipe files over given rows, or over a dataset_path."""

    def make(process, rows=None, name="recipe.yaml", **head):
        if rows is not None:
            lines = rows if isinstance(rows, str) else "".join(f"{json.dumps(r)}\n" for r in rows)
            (tmp_path / "data.jsonl").write_text(lines)
        document = {
            "dataset_path": str(tmp_path / "data.jsonl"),
            "export_path": str(tmp_path / "out" / "curated.parquet"),
            "process": process,
            **head,
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return make


@pytest.fixture(scope="session")
def s3():
    """The address of an S3 server with the bucket `rollouts`; the environment names it."""
    from object_store import ENVIRONMENT, object_store

    with object_store("rollouts") as address, pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        yield address


@pytest.fixture(scope="session")
def gcs(tmp_path_factory):
    """The address of a Google Cloud Storage with the bucket `rollouts`; the environment names it.

    Paths in it begin with `gs://anonymous@rollouts/`.
    """
    from google_store import google_store

    folder = tmp_path_factory.mktemp("buckets")
    (folder / "rollouts").mkdir()
    with google_store(folder) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", address)
        yield address


@pytest.fixture(params=["s3", "gcs"])
def store(request):
    """The URI of a new folder in an object store: of S3, and of Google Cloud Storage."""
    request.getfixturevalue(request.param)
    bucket = {"s3": "s3://rollouts", "gcs": "gs://anonymous@rollouts"}[request.param]
    return f"{bucket}/{uuid.uuid4().hex}"
