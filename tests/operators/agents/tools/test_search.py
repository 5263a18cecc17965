"""What is found, in what order, and what the policy reads where nothing is."""

import asyncio
import gzip
import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import EngineError, RecipeError
from rejuice.operators.agents.tool import Observation, ToolError
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools import search
from rejuice.operators.agents.tools import search as module
from rejuice.operators.agents.tools.search import Search

SHOPS = [
    "The bakery sells bread for 3 coins.",
    "The bookshop sells maps for 12 coins.",
    None,
    "The bakery opens at 7.",
]


def call(tool, query, documents=None):
    async def work():
        toolbox = await Toolbox.of([tool])
        return await toolbox.call("search", {"query": query}, {"documents": documents})

    return asyncio.run(work())


def test_the_best_document_of_the_task():
    tool = Search(documents="documents", k=1)
    assert tool.reads() == ("documents",)
    assert call(tool, "price of bread", SHOPS) == Observation("The bakery sells bread for 3 coins.")
    assert call(tool, "MAPS?", SHOPS) == Observation("The bookshop sells maps for 12 coins.")


def test_several_documents_are_numbered_and_long_ones_cut():
    documents = [{"title": "Tea", "text": "Tea is hot. " * 9}, {"title": None, "text": "Cold tea"}]
    documents += [{"title": "Ice", "text": None}]
    found = call(Search(documents="documents", k=2, longest=12), "tea", documents)
    assert found.text == "[1] Tea: Tea is hot.  […]\n[2] Cold tea"
    assert call(Search(documents="documents"), "ice", documents).text == "[1] Ice: "


def test_equally_good_documents_keep_their_order():
    for n in (5, 50, 500):
        documents = [f"shop {number} sells bread" for number in range(1000, 1000 + n)]
        found = call(Search(documents="documents", k=3), "bread", documents)
        lines = [f"[{at + 1}] shop {1000 + at} sells bread" for at in range(3)]
        assert found.text.split("\n") == lines


@pytest.mark.parametrize("documents", [None, [], [None], [""], ["---"], SHOPS])
def test_nothing_is_found(documents):
    assert call(Search(documents="documents"), "violin", documents) == Observation(
        "nothing was found", "ok"
    )


@pytest.mark.parametrize("query", ["", " ?!"])
def test_a_query_without_words(query):
    assert call(Search(documents="documents"), query, SHOPS) == Observation(
        "the query has no words", "error"
    )


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([{"id": 1, "body": "x"}], "a document has no text, but the fields id, body"),
        ([3], "a document is neither a text nor an object with `text`: 3"),
        (7, "'int' object is not iterable"),
    ],
)
def test_documents_that_are_none_are_not_the_policys_fault(documents, message):
    with pytest.raises(ToolError) as error:
        call(Search(documents="documents"), "tea", documents)
    assert str(error.value) == message


def written(folder, name):
    """The same documents in a file of any form."""
    rows = [{"title": "Tea", "contents": "It is hot."}, {"title": "Ice", "contents": "It is cold."}]
    lines = "".join(json.dumps(row) + "\n\n" for row in rows)
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif name.endswith(".gz"):
        file.write_bytes(gzip.compress(lines.encode()))
    elif name.endswith(".txt"):
        file.write_text("".join(f"{row['title']}: {row['contents']}\n" for row in rows))
    else:
        file.write_text(lines)
    return file


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.txt", "a.jsonl.gz"])
def test_documents_of_a_file(tmp_path, name):
    tool = Search(path=written(tmp_path, name), k=1)
    tool.check()
    assert tool.reads() == ()
    assert call(tool, "cold") == Observation("Ice: It is cold.")


def test_a_file_is_indexed_once_away_from_the_event_loop(tmp_path, monkeypatch):
    readers, read = [], module.passages_in

    def passages_in(file):
        readers.append(threading.current_thread())
        return read(file)

    monkeypatch.setattr(module, "passages_in", passages_in)
    tool = Search(path=written(tmp_path, "a.jsonl"), k=1)

    async def work():
        toolbox = await Toolbox.of([tool])
        return await asyncio.gather(
            *(toolbox.call("search", {"query": "hot"}, {}) for _ in range(20))
        )

    assert asyncio.run(work()) == [Observation("Tea: It is hot.")] * 20
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


def test_what_is_wrong_with_a_file_is_found_before_sampling(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"title": "Tea"}\n')
    other = tmp_path / "documents.csv"
    for path, message in [
        (tmp_path / "none.jsonl", "cannot be read: [Errno 2]"),
        (bad, f"search: '{bad}' cannot be read: line 1: a document has no text, but the fields ti"),
        (other, f"search: path is '{other}'; use .jsonl, .parquet, .txt"),
    ]:
        with pytest.raises(RecipeError) as error:
            Search(path=path).check()
        assert message in str(error.value)


def test_a_file_that_breaks_off_ends_the_run(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "tea"}\n{"text": ')
    Search(path=file).check()
    with pytest.raises(EngineError, match=r"cannot be read: line 2: "):
        call(Search(path=file), "tea")


def test_a_changed_file_is_another_key_and_another_place_is_not(tmp_path):
    file = written(tmp_path, "a.txt")
    key = Search(path=file).cache_key_fields()
    copy = tmp_path / "b.txt"
    copy.write_bytes(file.read_bytes())
    assert Search(path=copy).cache_key_fields() == key
    copy.write_text("other")
    assert Search(path=copy).cache_key_fields() != key


@pytest.mark.parametrize("fields", [{}, {"documents": "d", "path": "p"}])
def test_documents_come_from_one_place(fields):
    with pytest.raises(ValueError, match="needs either `documents`, a column, or `path`, a file"):
        Search(**fields)


def test_a_line_that_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "_LONGEST_LINE", 100)
    file = tmp_path / "a.txt"
    file.write_text("tea\n" + 200 * "x" + "\n")
    with pytest.raises(ValueError, match=r"^line 2 has more than 100 characters$"):
        list(search.passages_in(file))
