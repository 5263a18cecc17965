"""A dataset in a store that has no such bucket, or that refuses: one line, before anything runs."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from rejuice.operators import DataError
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load


class _Refuses(BaseHTTPRequestHandler):
    def _refuse(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_PUT = do_POST = _refuse

    def log_message(self, *_):
        pass


@contextmanager
def store_that_refuses():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refuses)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http"
    finally:
        server.shutdown()
        server.server_close()


def error_of(recipe_file, rollouts, dataset):
    """The error of a run, which leaves nothing."""
    path = recipe_file([{"pass_rate_filter": {"min": 0.1}}], rollouts(3).to_pylist())
    recipe = load(path, {"dataset_path": dataset})
    with pytest.raises(DataError) as error:
        engine.run(recipe)
    assert not recipe.head.export_path.exists()
    assert not (recipe.head.export_path.parent / ".rejuice").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        ("s3://rollouts", "AWS_ACCESS_KEY_ID"),
        ("gs://anonymous@rollouts", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "*.parquet"])
def test_no_rights(s3, monkeypatch, recipe_file, rollouts, bucket, key, name):
    monkeypatch.delenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", raising=False)
    with store_that_refuses() as query:
        uri = f"{bucket}/{name}?{query}"
        error = error_of(recipe_file, rollouts, uri)
    right = f"check the keys, such as {key}, and what they may do"
    assert error.endswith(f"{uri} cannot be read: the store refuses access; {right}")


@pytest.mark.parametrize("name", ["rows.jsonl", "*.jsonl"])
def test_no_such_bucket(s3, recipe_file, rollouts, name):
    error = error_of(recipe_file, rollouts, f"s3://no-such-bucket/{name}")
    right = "there is no bucket 'no-such-bucket'; create it, or give another path"
    assert error.endswith(f"s3://no-such-bucket/{name} cannot be read: {right}")


def test_no_such_file(s3, recipe_file, rollouts):
    error = error_of(recipe_file, rollouts, "s3://rollouts/none/rows.jsonl")
    right = "set dataset_path to a file or a folder of files"
    assert error.endswith(f"s3://rollouts/none/rows.jsonl does not exist; {right}")
