"""A dataset of the hub becomes a file; here a folder stands in for the hub."""

import json

import pyarrow.parquet as pq
import pytest

from rejuice.operators import DataError
from rejuice.pipelines.dataset.hub import HubDataset, download

ROWS = [{"question": f"{k} + 1?", "answer": f"#### {k + 1}"} for k in range(5)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return str(folder)


@pytest.mark.parametrize("name", ["out/train.parquet", "out/train.jsonl"])
def test_a_split_becomes_a_file(hub, tmp_path, name):
    path = tmp_path / name
    assert download(HubDataset(hub, split="train"), path) == 5
    if path.suffix == ".parquet":
        assert pq.read_table(path).to_pylist() == ROWS
    else:
        assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_split_that_is_not_there(hub, tmp_path):
    with pytest.raises(DataError, match='Unknown split "test"'):
        download(HubDataset(hub, split="test"), tmp_path / "a.parquet")


@pytest.mark.recommended("pipelines/dataset/hub.py", "give another --split")
def test_a_split_without_rows(tmp_path, monkeypatch):
    import datasets

    nothing = datasets.Dataset.from_list([])
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: nothing)
    with pytest.raises(DataError, match=r"^split train of 'some/set' has no row; give another"):
        download(HubDataset("some/set", split="train"), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"^cannot load '.*/none'; "):
        download(HubDataset(str(tmp_path / "none"), split="train"), tmp_path / "a.parquet")


def test_a_format_that_is_not_known(hub, tmp_path):
    with pytest.raises(DataError, match=r"a\.csv has no known format; end it in"):
        download(HubDataset(hub, split="train"), tmp_path / "a.csv")
