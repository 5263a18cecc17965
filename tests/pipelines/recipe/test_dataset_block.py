"""What `dataset_path`, `dataset` and `columns` may be, and one line for what they may not."""

from pathlib import Path

import pytest
import yaml
from each import check_each

from rejuice.operators import RecipeError
from rejuice.pipelines.dataset.remote import RemotePath
from rejuice.pipelines.dataset.spec import DatasetPart, HubDataset
from rejuice.pipelines.recipe.recipe import load

LOCAL = {"type": "local", "path": "a.jsonl"}
REMOTE = {"type": "remote", "source": "huggingface", "path": "some/set"}


def recipe(tmp_path, **head):
    path = tmp_path / "recipe.yaml"
    document = {**head, "export_path": "out.parquet", "process": ["exact_deduplicator"]}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def spec(tmp_path, **head):
    return load(recipe(tmp_path, **head)).head.dataset_spec


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("a.jsonl", [Path("a.jsonl")]),
        (["a.jsonl", "more"], [Path("a.jsonl"), Path("more")]),
        ("a.jsonl b.parquet", [Path("a.jsonl"), Path("b.parquet")]),
        ("0.3 a.jsonl .7 b.jsonl", [Path("a.jsonl"), Path("b.jsonl")]),
        ("2 'a b.jsonl'", [Path("a b.jsonl")]),
        ("s3://b/a.jsonl", [RemotePath("s3", "b/a.jsonl")]),
        ("a folder", [Path("a folder")]),
    ],
)
def test_paths(tmp_path, value, paths):
    assert spec(tmp_path, dataset_path=value).parts == tuple(map(DatasetPart, paths))


def test_a_file_may_be_named_as_a_mixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("2 a.jsonl").touch()
    assert spec(tmp_path, dataset_path="2 a.jsonl").paths == [Path("2 a.jsonl")]


def test_a_mixture_with_weights(tmp_path):
    configs = [{**LOCAL, "weight": 0.3}, {"type": "local", "path": "s3://b/b.parquet"}]
    found = spec(tmp_path, dataset={"configs": configs, "max_sample_num": 9})
    assert found.parts == (
        DatasetPart(Path("a.jsonl"), 0.3),
        DatasetPart(RemotePath("s3", "b/b.parquet"), 1.0),
    )
    assert (found.max_rows, found.repeats) == (9, True)


def test_a_dataset_of_the_hub(tmp_path):
    found = spec(tmp_path, dataset={"configs": [{**REMOTE, "name": "main", "split": "train"}]})
    assert found.parts == (DatasetPart(HubDataset("some/set", "main", split="train")),)


def test_a_split_is_of_all_that_say_no_other(tmp_path):
    configs = [{**LOCAL, "split": "test"}, {"type": "local", "path": "b"}]
    found = spec(tmp_path, dataset={"configs": configs}, split="train")
    assert [part.split for part in found.parts] == ["test", None]
    assert found.split == "train"


def test_what_is_wrong_is_one_line(tmp_path):
    cases = [
        ({"dataset_path": []}, "1, dataset_path: it is an empty list; give a path"),
        ({"dataset_path": " "}, "1, dataset_path: a path is empty; give a path"),
        ({"dataset_path": [3]}, "1, dataset_path: 3 is no path; give one, or a list of them"),
        ({"dataset": [LOCAL]}, "1: 'dataset' is [{'type': 'local', 'path': 'a.jsonl'}]; input should be a valid dictionary or"),
        ({"dataset": {"config": [LOCAL]}}, "1: 'dataset.configs' is missing; add"),
        ({"dataset": {"configs": []}}, "2: 'dataset.configs' is []; tuple should have at least 1 item"),
        ({"dataset": {"configs": "a.jsonl"}}, "2: 'dataset.configs' is 'a.jsonl'; input should be a valid tuple"),
        ({"dataset": {"configs": [LOCAL], "max_sample_num": 0}}, "5: 'dataset.max_sample_num' is 0; input should be greater than 0"),
        ({"dataset": {"configs": ["a.jsonl"]}}, "3: 'dataset.configs.0' is 'a.jsonl'; input should be a valid dictionary"),
        ({"dataset": {"configs": [LOCAL, {"type": "local"}]}}, "5: 'dataset.configs.1.path' is missing; add"),
        ({"dataset": {"configs": [{"path": "a.jsonl"}]}}, "3: 'dataset.configs.0.type' is missing; add"),
        ({"dataset": {"configs": [{**LOCAL, "weight": -1}]}}, "3: 'dataset.configs.0.weight' is -1; input should be greater than or equal to 0"),
        ({"dataset": {"configs": [{**LOCAL, "wieght": 1}]}}, "3: unknown key 'dataset.configs.0.wieght'; did you mean 'weight'?"),
        ({"dataset": {"configs": [{**LOCAL, "limit": 3}]}}, "3, dataset.configs.0: limit is of a remote dataset, and this is local"),
        ({"dataset": {"configs": [{**REMOTE, "source": "s3"}]}}, "3, dataset.configs.0: the source of a remote dataset is 's3'; give huggingface, or a path such as s3://… as dataset_path"),
        ({"dataset": {"configs": [LOCAL, REMOTE]}}, "1, dataset: a remote dataset is not alone; give that one, or several by dataset_path"),
        ({"dataset": {"configs": [REMOTE, REMOTE]}}, "1, dataset: a remote dataset is not alone; give that one, or several by dataset_path"),
        ({"dataset": {"configs": [{**LOCAL, "weight": 0}], "max_sample_num": 3}}, "1, dataset: all weights are 0; give one that is not"),
        ({"dataset_path": "a.jsonl", "columns": []}, "2, columns: it selects no column; name one, or leave it out"),
        ({"dataset_path": "a.jsonl", "columns": {"a": "x", "b": "x"}}, "2, columns: two columns are called 'x'; rename one"),
    ]  # fmt: skip

    def check(head, line):
        path = recipe(tmp_path, **head)
        with pytest.raises(RecipeError) as error:
            load(path)
        assert str(error.value).startswith(f"{path}, line {line}")

    check_each(cases, check)
