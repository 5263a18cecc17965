"""The notebooks of the documents run, and show what they print."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs").glob("*.ipynb"))


def shown(cell):
    """The text below a cell of code."""
    texts = [
        output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", [])
    ]
    return "".join(map(str, texts))


def test_there_are_notebooks():
    assert [path.name for path in NOTEBOOKS] == ["python.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_it_prints(path, tmp_path):
    stored = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(stored)
    NotebookClient(run, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(stored.cells, run.cells, strict=True):
        assert shown(after) == shown(before), f"{path.name}: below\n{before.source}"


QUIET = """
from rejuice.pipelines import Recipe, run

length = {"text_length_filter": {"min_len": 2, "text_key": "response"}}
result = run(Recipe([length, "exact_deduplicator"], [{"prompt_id": "a", "response": "abc"}]))
"""


def test_libraries_print_nothing_in_a_notebook(tmp_path):
    """Without ipywidgets tqdm warns, and Ray logs; Data-Juicer's steps import both."""
    cell = nbformat.v4.new_code_cell(QUIET)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert cell.outputs == []
