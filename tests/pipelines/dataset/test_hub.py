"""A dataset of the hub becomes a file; here a folder stands in for the hub."""

import json

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rejuice.operators import DataError
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec, HubDataset, download
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.recipe import load

ROWS = [{"question": f"{k} + 1?", "answer": f"#### {k + 1}"} for k in range(5)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return str(folder)


@pytest.mark.slow
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


@pytest.mark.recommended("pipelines/dataset/spec.py", "give another --split")
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


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({"a.jsonl": '{"a": 1}\n{"a": \n'}, "JSON parse error: Invalid value. in row 1"),
        ({"a.jsonl": '{"a": 1}\n', "b.jsonl": '{"a": "x"}\n'}, "Failed to parse string: 'x' as a scalar of type int64"),
        ({"a.jsonl": '{"a": 1}\n', "b.jsonl": '{"b": 1}\n'}, "Couldn't cast b: int64 a: int64 to"),
        ({"a.csv": "a,b\n1,2\n1,2,3\n"}, "Error tokenizing data. C error: Expected 2 fields in line 3, saw 3"),
        ({"a.parquet": "no Parquet"}, "Parquet magic bytes not found in footer."),
        ({"a.jsonl": ""}, "its files have no row"),
        ({"set.py": "", "README.md": ""}, ""),
    ],
)  # fmt: skip
def test_files_that_are_wrong_are_one_line_with_the_cause(tmp_path, monkeypatch, files, cause):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "set"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(DataError) as error:
        download(HubDataset(str(folder), split="train"), tmp_path / "out.parquet")
    assert str(error.value).startswith(f"cannot load '{folder}'; {cause}")
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "out.parquet").exists()


def test_pickles_are_not_read(tmp_path):
    with pytest.raises(DataError, match=r"^'pandas' reads pickles, which may run code; "):
        download(HubDataset("pandas", data_files="a.pkl"), tmp_path / "a.parquet")


def test_a_format_that_is_not_known(hub, tmp_path):
    with pytest.raises(DataError, match=r"a\.csv has no known format; end it in"):
        download(HubDataset(hub, split="train"), tmp_path / "a.csv")


@pytest.fixture
def loads(monkeypatch):
    """A hub with one dataset; gives the calls of `load_dataset`."""
    import datasets

    calls = []

    def load_dataset(name, config=None, *, split=None, **given):
        calls.append((name, config, split, given))
        if name != "some/set":
            raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{name}' doesn't exist")
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


@pytest.mark.parametrize(
    "dataset",
    [
        {"dataset_path": "hf://datasets/some/set?config=main&split=train"},
        {
            "dataset": {
                "configs": [
                    {
                        "type": "remote",
                        "source": "huggingface",
                        "path": "some/set",
                        "name": "main",
                        "split": "train",
                    }
                ]
            }
        },
    ],
)
def test_a_recipe_reads_a_dataset_of_the_hub_once(loads, tmp_path, monkeypatch, dataset):
    monkeypatch.chdir(tmp_path)
    recipe = {
        **dataset,
        "export_path": "out/a.jsonl",
        "process": [{"prompt_template_mapper": {"reference_pattern": "#### (.*)"}}],
    }
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    report = run(load(tmp_path / "r.yaml"))
    assert report.rows_out == len(ROWS)
    assert loads == [("some/set", "main", "train", {})]
    (tmp_path / "out" / "a.jsonl").unlink()
    run(load(tmp_path / "r.yaml"))
    assert len(loads) == 1  # The rows are kept in the cache.


def test_a_recipe_whose_dataset_is_not_on_the_hub(loads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = {
        "dataset_path": "hf://datasets/no/set",
        "export_path": "out/a.jsonl",
        "process": ["prompt_template_mapper"],
    }
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    with pytest.raises(DataError, match=r"cannot load 'no/set'; Dataset 'no/set' doesn't exist"):
        run(load(tmp_path / "r.yaml"))


@pytest.mark.recommended("pipelines/dataset/spec.py", "download it by `rejuice data download`")
def test_a_dataset_of_the_hub_where_nothing_is_kept(loads, tmp_path, monkeypatch):
    dataset = HubDataset("some/set", split="train")
    with pytest.raises(DataError) as error:
        Dataset(DatasetSpec((DatasetPart(dataset),))).table()
    right = "hf://datasets/some/set?split=train is no file; download it by `rejuice data download`"
    assert str(error.value) == right
    path = tmp_path / "set.jsonl"
    words = ["data", "download", "some/set", str(path), "--split", "train"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert Dataset(path).table().num_rows == len(ROWS)


def test_the_options_of_an_address_of_the_hub():
    text = "hf://datasets/some/set?config=main&split=train&limit=3"
    assert HubDataset.parse(text) == HubDataset("some/set", "main", "train", 3)
    assert str(HubDataset.parse(text)) == text
    with pytest.raises(ValueError, match="unknown option 'spilt'; did you mean 'split'"):
        HubDataset.parse("hf://datasets/some/set?spilt=train")
    with pytest.raises(ValueError, match="write it as hf://datasets/OWNER/NAME"):
        HubDataset.parse("hf://datasets/")
