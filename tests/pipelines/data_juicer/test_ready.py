"""What a step of Data-Juicer's lacks is found before anything runs; each failure is one line."""

import errno
import os
import subprocess
import sys

import pyarrow as pa
import pytest
import requests
from change_of import change_of

from rejuice.operators import EngineError, OperatorError
from rejuice.operators.errors import NotReadyError
from rejuice.pipelines.data_juicer import catalogue, steps
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.recipe.recipe import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

SPACES = "whitespace_normalization_mapper"


def failure(name, rows, **fields):
    with pytest.raises(OperatorError) as raised:
        change_of(steps.step(name, fields), Frame.of(pa.table(rows)))
    return str(raised.value)


@pytest.fixture
def fails(monkeypatch):
    """Makes the next operator raise an error as it is made."""
    monkeypatch.setattr(steps, "_instances", {})

    def set_up(error):
        def load(kind, fields):
            raise error

        monkeypatch.setattr(steps, "_load", load)

    return set_up


# On rows


def test_what_is_wrong_with_a_row_names_row_and_column(tmp_path):
    code = tmp_path / "own.py"
    code.write_text(
        "def length(row):\n    return {**row, 'n': len(row['answer'])}\n"
        "def share(row):\n    return {**row, 'n': 1 / len(row['text'])}\n"
    )
    own = {"file_path": str(code), "response_key": "answer"}
    message = failure(SPACES, {"text": ["fine", "fine", None, "x"]})
    assert "(column 'text' is null), at row 3; drop rows in which it is null" in message
    rows = {"text": ["a", "b"], "answer": ["x", None]}
    message = failure("python_file_mapper", rows, **own, function_name="length")
    assert "(column 'answer' is null), at row 2; drop rows" in message
    rows = {"text": ["", "b"], "answer": [None, "x"]}
    message = failure("python_file_mapper", rows, **own, function_name="share")
    assert message == "failed with ZeroDivisionError: division by zero, at row 1"


# Before the first row


def test_a_step_that_cannot_be_made_ends_a_run_before_any_step(recipe_file):
    """Also where the recipe samples first: nothing is paid."""
    for name, fields, facts in (
        ("python_file_mapper", {"file_path": "/no/such.py"}, "'/no/such.py' does not exist"),
        ("document_minhash_deduplicator", {"ignore_pattern": "("}, "missing ) at position 1"),
        ("flagged_words_filter", {"lang": "xx", "tokenization": True}, ""),
    ):
        path = recipe_file([{"clean_links_mapper": {}}, {name: fields}], [{"text": "a"}])
        with pytest.raises(EngineError) as raised:
            engine.run(load(path))
        place, found = str(raised.value).split(f", step 2 {name}: ")
        assert place.startswith(f"{path}, line ")
        assert facts in found
        commits = (path.parent / "out" / ".rejuice").glob("clean_links_mapper-*/*.arrow")
        assert not list(commits), "no step has run"


@pytest.mark.recommended("pipelines/data_juicer/failures.py", "pip install {…}")
def test_a_missing_package_is_one_line_and_nothing_is_installed(monkeypatch, capfd):
    from data_juicer.utils.lazy_loader import LazyLoader

    states = []

    class Operator:
        def run(self, dataset):
            states.append((os.environ.get("UV_OFFLINE"), os.environ.get("PIP_NO_INDEX")))
            LazyLoader.check_packages(["PyYAML"])  # It is imported by another name.
            return LazyLoader("no_such_module", "no-such-package").anything

    for name in ("UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(steps, "_load", lambda *_: Operator())
    monkeypatch.setattr(steps, "_instances", {})
    message = failure(SPACES, {"text": ["a"]})
    assert message == "needs no-such-package, which is not installed; pip install no-such-package"
    assert capfd.readouterr() == ("", "")
    assert states == [("1", "1")]
    assert "PIP_NO_INDEX" not in os.environ, "who calls us may install what they like"
    started = []
    monkeypatch.setattr(subprocess, "check_call", started.append)
    LazyLoader.check_packages(["no-such-package"])
    assert started


def test_what_could_not_be_fetched_is_named(fails):
    error = OSError("We couldn't connect to 'https://huggingface.co' to load the files.\nCheck")
    error.__cause__ = requests.ConnectionError()
    fails(error)
    with pytest.raises(NotReadyError) as raised:
        kind = catalogue.get("token_num_filter")
        steps.prepare(kind, {"hf_tokenizer": "a/b", "text_key": "a/b"})
    message = str(raised.value)
    assert message.startswith("could not fetch a/b (hf_tokenizer): OSError: We couldn't connect")
    assert message.endswith("it has to be reached, or named by a path on this disk")


def test_errors_of_all_kinds(fails):
    rows = {"text": ["a"]}
    fails(LookupError("\n*****\n  Resource punkt not found.\n  Please use"))
    assert failure(SPACES, rows) == "failed with LookupError: Resource punkt not found."
    fails(AssertionError())
    assert failure(SPACES, rows).startswith("failed with AssertionError: no message, at test_ready")
    fails(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        change_of(steps.step(SPACES, {}), Frame.of(pa.table(rows)))


def test_an_operator_whose_results_are_known_is_not_made(recipe_file, monkeypatch):
    path = recipe_file([{"clean_links_mapper": {}}], [{"text": "a"}])
    engine.run(load(path))
    monkeypatch.setattr(steps, "_load", lambda *_: 1 / 0)
    monkeypatch.setattr(steps, "_instances", {})
    assert engine.run(load(path)).steps[0].cached


def test_what_is_made_to_be_checked_is_not_kept(monkeypatch):
    """It may hold a model, and workers make their own."""
    monkeypatch.setattr(steps, "_instances", {})
    steps.step(SPACES, {}).preflight()
    assert not steps._instances


def test_index_key_numbers_all_rows(recipe_file, tmp_path):
    import pyarrow.parquet as pq

    rows = [{"text": "ab" if n % 3 else "a"} for n in range(10)]
    path = recipe_file([{"text_length_filter": {"index_key": "place", "min_len": 2}}], rows)
    engine.run(load(path), chunk_rows=2)
    places = pq.read_table(tmp_path / "out" / "curated.parquet")["place"].to_pylist()
    assert places == [1, 2, 4, 5, 7, 8]


def test_what_data_juicer_logs_as_it_is_imported_is_not_shown():
    code = (
        "from rejuice.pipelines.data_juicer import steps;"
        "steps.step('text_length_filter', {}).preflight()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    )
    assert done.stderr + done.stdout == ""
