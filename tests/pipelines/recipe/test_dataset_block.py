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


def test_what_is_wrong_is_one_line(tmp_path):
    cases = [
        ({"dataset_path": []}, "it is an empty list; give a path"),
        ({"dataset_path": " "}, "a path is empty; give a path"),
        ({"dataset_path": [3]}, "3 is no path; give one, or a list of them"),
        ({"dataset": [LOCAL]}, "it is no mapping; write `dataset: {configs: [{type: local, path: …}]}`"),
        ({"dataset": {"config": [LOCAL]}}, "it has an unknown key 'config'; did you mean 'configs'?"),
        ({"dataset": {"configs": []}}, "configs is no list of datasets; give one or more"),
        ({"dataset": {"configs": "a.jsonl"}}, "configs is no list of datasets; give one or more"),
        ({"dataset": {"configs": [LOCAL], "max_sample_num": 0}}, "max_sample_num is 0; give a positive integer"),
        ({"dataset": {"configs": [LOCAL], "max_sample_num": True}}, "max_sample_num is True; give a positive integer"),
        ({"dataset": {"configs": ["a.jsonl"]}}, "dataset 1 is no mapping; write {type: local, path: …}"),
        ({"dataset": {"configs": [LOCAL, {"type": "local"}]}}, "dataset 2 has no path; give one"),
        ({"dataset": {"configs": [{"path": "a.jsonl"}]}}, "the type of dataset 1 is None; give local or remote"),
        ({"dataset": {"configs": [{**LOCAL, "weight": -1}]}}, "the weight of dataset 1 is -1; give a number that is not negative"),
        ({"dataset": {"configs": [{**LOCAL, "wieght": 1}]}}, "dataset 1 has an unknown key 'wieght'; did you mean 'weight'?"),
        ({"dataset": {"configs": [{**LOCAL, "x": 1}]}}, "dataset 1 has an unknown key 'x'; there are: type, path, weight, source"),
        ({"dataset": {"configs": [{**REMOTE, "source": "s3"}]}}, "the source of dataset 1 is 's3'; give huggingface, or a path such as s3://… as dataset_path"),
        ({"dataset": {"configs": [LOCAL, REMOTE]}}, "it mixes local and remote datasets; name the one of the hub alone"),
        ({"dataset": {"configs": [REMOTE, REMOTE]}}, "it has several remote datasets; give one, or several by dataset_path"),
        ({"dataset": {"configs": [{**LOCAL, "weight": 0}], "max_sample_num": 3}}, "all weights are 0; give one that is not"),
        ({"dataset_path": "a.jsonl", "columns": []}, "it selects no column; name one, or leave it out"),
        ({"dataset_path": "a.jsonl", "columns": {"a": "x", "b": "x"}}, "two columns are called 'x'; rename one"),
    ]  # fmt: skip

    def check(head, line):
        path = recipe(tmp_path, **head)
        with pytest.raises(RecipeError) as error:
            load(path)
        assert str(error.value) == f"{path}, line {len(head)}, {list(head)[-1]}: {line}"

    check_each(cases, check)
