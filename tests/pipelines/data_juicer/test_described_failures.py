"""What is wrong with a step of Data-Juicer's is one line that names the cause."""

import errno
import subprocess
import sys
import traceback

import pyarrow as pa
import pytest
import requests

from rejuice.operators import EngineError, OperatorError, Scope
from rejuice.operators.errors import NotReadyError
from rejuice.pipelines.data_juicer import run_operator, steps
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import compute_change
from rejuice.pipelines.recipe.recipe import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow


def failure(name, rows, **fields):
    with pytest.raises(OperatorError) as raised:
        compute_change(steps.step(name, fields), Frame.of(pa.table(rows)))
    return str(raised.value)


@pytest.fixture
def fails(monkeypatch):
    """Makes the next operator raise an error as it is made."""
    monkeypatch.setattr(run_operator, "_instances", {})

    def set_up(error):
        def load(name, fields):
            raise error

        monkeypatch.setattr(run_operator, "_load", load)

    return set_up


def test_a_null_in_the_text_names_row_and_column():
    message = failure("whitespace_normalization_mapper", {"text": ["fine", "fine", None, "x"]})
    assert message == (
        "failed with AttributeError: 'NoneType' object has no attribute 'strip' "
        "(column 'text' is null), at row 3; drop rows in which it is null"
    )


def test_a_null_in_another_column_names_it(monkeypatch, tmp_path):
    code = tmp_path / "own.py"
    code.write_text("def process_single(row):\n    return {**row, 'n': len(row['answer'])}\n")
    rows = {"text": ["a", "b"], "answer": ["x", None]}
    message = failure("python_file_mapper", rows, file_path=str(code), response_key="answer")
    assert message == (
        "failed with TypeError: object of type 'NoneType' has no len() "
        "(column 'answer' is null), at row 2; drop rows in which it is null"
    )


def test_a_failure_that_is_not_about_nulls_does_not_name_one(tmp_path):
    code = tmp_path / "own.py"
    code.write_text("def process_single(row):\n    return {**row, 'n': 1 / len(row['text'])}\n")
    rows = {"text": ["", "b"], "answer": [None, "x"]}
    message = failure("python_file_mapper", rows, file_path=str(code), response_key="answer")
    assert message == "failed with ZeroDivisionError: division by zero, at row 1"


def test_a_message_whose_first_line_is_blank(fails):
    fails(LookupError("\n*****\n  Resource punkt not found.\n  Please use"))
    message = failure("whitespace_normalization_mapper", {"text": ["a"]})
    assert message == "failed with LookupError: Resource punkt not found."


def test_an_error_without_a_message_names_the_line(fails):
    fails(AssertionError())
    message = failure("whitespace_normalization_mapper", {"text": ["a"]})
    assert message.startswith(
        "failed with AssertionError: no message, at test_described_failures.py:"
    )


def test_what_could_not_be_fetched_is_named(fails):
    url = "https://example.invalid/stopwords.json"
    fails(requests.ConnectionError("Max retries", request=requests.Request("GET", url).prepare()))
    message = failure("stopwords_filter", {"text": ["a"]}, tokenization=False)
    assert message == (
        f"could not fetch {url}: ConnectionError: Max retries; "
        "it has to be reached, or named by a path on this disk"
    )


def test_a_model_that_could_not_be_fetched_is_named(fails):
    error = OSError("We couldn't connect to 'https://huggingface.co' to load the files.\nCheck")
    error.__cause__ = requests.ConnectionError()
    fails(error)
    with pytest.raises(NotReadyError) as raised:
        run_operator.run_operator(
            "token_num_filter", "k", {"hf_tokenizer": "a/b"}, pa.table({"text": ["a"]})
        )
    assert str(raised.value) == (
        "could not fetch a/b (hf_tokenizer): OSError: We couldn't connect to "
        "'https://huggingface.co' to load the files.; "
        "it has to be reached, or named by a path on this disk"
    )


def test_a_network_error_is_not_one_of_the_disk(fails, recipe_file):
    fails(requests.ConnectionError("no route"))
    path = recipe_file([{"whitespace_normalization_mapper": {}}], [{"text": "a"}])
    with pytest.raises(EngineError) as raised:
        engine.run(load(path))
    assert str(raised.value).startswith(
        f"{path}, line 4, step 1 whitespace_normalization_mapper: could not fetch "
    )


def test_a_full_disk_stays_one(fails):
    fails(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        compute_change(
            steps.step("whitespace_normalization_mapper", {}), Frame.of(pa.table({"text": ["a"]}))
        )


# Before the first row


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("python_file_mapper", {"file_path": "/no/such.py"}, "failed with FileNotFoundError: The file '/no/such.py' does not exist."),
        ("document_minhash_deduplicator", {"ignore_pattern": "("}, "failed with error: missing ) at position 1"),
    ],
)  # fmt: skip
def test_what_a_constructor_refuses_ends_a_run_before_any_step(recipe_file, name, fields, message):
    path = recipe_file([{"clean_links_mapper": {}}, {name: fields}], [{"text": "a"}])
    with pytest.raises(EngineError) as raised:
        engine.run(load(path))
    place, found = str(raised.value).split(f", step 2 {name}: ")
    assert place.startswith(f"{path}, line ")
    assert found == message
    commits = (path.parent / "out" / ".rejuice").glob("clean_links_mapper-*/*.arrow")
    assert not list(commits), "no step has run"


def test_an_operator_whose_results_are_known_is_not_made(recipe_file, monkeypatch):
    path = recipe_file([{"clean_links_mapper": {}}], [{"text": "a"}])
    engine.run(load(path))
    monkeypatch.setattr(run_operator, "_load", lambda *_: traceback.print_stack() or 1 / 0)
    monkeypatch.setattr(run_operator, "_instances", {})
    assert engine.run(load(path)).steps[0].cached


# Fields that are about the whole dataset


def test_index_key_numbers_all_rows(recipe_file, tmp_path):
    import pyarrow.parquet as pq

    fields = {"index_key": "place", "min_len": 2}
    rows = [{"text": "ab" if n % 3 else "a"} for n in range(10)]
    path = recipe_file([{"text_length_filter": fields}], rows)
    engine.run(load(path), chunk_rows=2)
    places = pq.read_table(tmp_path / "out" / "curated.parquet")["place"].to_pylist()
    assert places == [1, 2, 4, 5, 7, 8]
    assert steps.step("text_length_filter", fields).scope is Scope.DATASET


def test_what_data_juicer_logs_as_it_is_imported_is_not_shown():
    code = (
        "from rejuice.pipelines.data_juicer import steps;"
        "steps.step('text_length_filter', {}).preflight()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    )
    assert done.stderr + done.stdout == ""
