"""Which files of a folder are read that has those of several splits."""

import pytest

from rejuice.operators import DataError
from rejuice.pipelines.dataset.read import Dataset
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec, lines_about_files

HUB = ("dataset_infos.json", "data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/test-00000-of-00001.jsonl")  # fmt: skip
FOLDERS = ("train/a.jsonl", "test/b.jsonl", "validation/deeper/c.jsonl")


def made(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"name": "{name}"}}\n')
    return folder


def read(path, split=None):
    spec = DatasetSpec((DatasetPart(path),), split=split)
    return Dataset(spec).table()["name"].to_pylist()


def refused(path, split=None):
    with pytest.raises(DataError) as error:
        read(path, split)
    return str(error.value).replace(str(path), "F")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (HUB, {"train": HUB[1:3], "test": HUB[3:]}),
        (FOLDERS, {"train": FOLDERS[:1], "test": FOLDERS[1:2], "validation": FOLDERS[2:], "dev": FOLDERS[2:]}),
        (("test.jsonl", "train.jsonl"), {"train": ["train.jsonl"], "test": ["test.jsonl"]}),
        (("gsm8k_Train.jsonl", "gsm8k-eval.jsonl", "all.jsonl"), {"train": ["gsm8k_Train.jsonl"], "eval": ["gsm8k-eval.jsonl"]}),
        (("trainset.jsonl", "testset.jsonl"), {"train": ["trainset.jsonl"]}),
        (("TrainData.jsonl", "Test-data.jsonl"), {"train": ["TrainData.jsonl"], "test": ["Test-data.jsonl"]}),
        (("train_sft-00000-of-00001.jsonl", "train_gen-00000-of-00001.jsonl"), {"train_sft": ["train_sft-00000-of-00001.jsonl"]}),
    ],
)  # fmt: skip
def test_a_folder_with_several_splits(tmp_path, names, splits):
    folder = made(tmp_path, *names)
    found = refused(folder)
    assert found.startswith("F has the splits ")
    assert "; say `split: train" in found
    for split, expected in splits.items():
        assert read(folder, split) == list(expected)
    assert refused(folder, "trian").startswith("F has no split 'trian'; there are: ")


@pytest.mark.parametrize(
    "names",
    [
        ("train-1.jsonl", "train-2.jsonl"),
        ("more.jsonl", "train.jsonl"),
        ("contest.jsonl", "latest.jsonl", "restrained.jsonl"),
        ("part-00000.jsonl", "part-00001.jsonl"),
        ("data/train-00000-of-00001.jsonl",),
    ],
)
def test_a_folder_with_one_split_or_none_is_read_whole(tmp_path, names):
    assert read(made(tmp_path, *names)) == list(names)


def test_files_and_patterns_are_not_asked_for_a_split(tmp_path):
    folder = made(tmp_path, *HUB)
    assert read(folder / HUB[1]) == [HUB[1]]
    assert len(read(folder / "**/*.jsonl")) == 3
    assert read(folder / "**/*.jsonl", "test") == [HUB[3]]
    assert "has no split 'test'; there are: train" in refused(folder / HUB[1], "test")
    plain = made(tmp_path / "plain", "a.jsonl")
    assert read(plain / "a.jsonl", "train") == ["a.jsonl"]
    assert refused(plain, "train") == "F has no split 'train'; leave out `split`"


def test_several_configurations_are_several_datasets(tmp_path):
    folder = made(tmp_path, "main/train-0.jsonl", "main/test-0.jsonl", "socratic/train-0.jsonl")
    found = "F has several datasets: F/main, F/socratic; let dataset_path be one of these folders"
    assert refused(folder) == refused(folder, "train") == found
    assert read(folder / "main", "train") == ["main/train-0.jsonl"]


def test_files_of_no_split_beside_folders_of_splits_are_not_left_out_in_silence(tmp_path):
    folder = made(tmp_path, "train/a.jsonl", "extra/b.jsonl")
    assert refused(folder).startswith(
        "F has files of splits, and F/extra/b.jsonl, which is of none; "
    )
    assert "say `split`" in refused(folder)
    assert read(folder, "train") == ["train/a.jsonl"]
    assert sorted(read(folder / "**")) == ["extra/b.jsonl", "train/a.jsonl"]


@pytest.mark.parametrize(
    ("names", "split", "found"),
    [
        (("train.csv", "test.jsonl"), None, "F has the splits test, train; say `split: train`"),
        (("train.csv", "test.jsonl"), "train", "F/train.csv is not read, as others of F are; convert it, with pandas: `python -c"),
        (("train/a.tsv", "test/b.jsonl"), "train", "F/train/a.tsv is not read, as others of F are; convert it"),
        (("part1.jsonl", "part2.csv"), None, "F/part2.csv is not read, as others of F are; convert it"),
        (("part1.parquet", "part2.csv", "part3.csv", "README.txt"), None, "; convert them, with pandas: "),
    ],
)  # fmt: skip
def test_tables_beside_files_that_are_read_are_not_left_out_in_silence(
    tmp_path, names, split, found
):
    assert found in refused(made(tmp_path, *names), split)


def test_tables_that_are_converted_or_of_another_split_are_left_out(tmp_path):
    folder = made(tmp_path, "train.jsonl", "test.csv", "train.csv", "README.txt", "valid.xlsx")
    assert read(folder, "train") == read(folder / "*.jsonl") == ["train.jsonl"]


def test_splits_further_down_are_read_if_one_is_named(tmp_path):
    folder = made(tmp_path, "metadata.jsonl", "data/test-0.jsonl", "data/train-0.jsonl")
    assert read(folder, "train") == ["data/train-0.jsonl"]
    assert read(folder) == ["metadata.jsonl"]
    made(tmp_path / "named", "sample.jsonl", *FOLDERS)
    assert refused(tmp_path / "named").startswith("F has files of splits, and F/sample.jsonl, ")


@pytest.mark.parametrize(
    ("names", "path", "line"),
    [
        (HUB, "data/*.jsonl", "F/data/*.jsonl reads the splits test, train: say `split`"),
        (("trainset.jsonl", "devset.jsonl"), "*", "F/* reads the splits train, validation: say `split`"),
        (("sample.jsonl", "old/a.jsonl"), "", ""),
        (("train-1.jsonl", "train-2.jsonl"), "", ""),
        (("train-1.jsonl", "train-2.jsonl"), "*.jsonl", ""),
    ],
)  # fmt: skip
def test_splits_that_are_mixed_or_left_out_have_a_line(tmp_path, names, path, line):
    dataset = DatasetSpec.of(made(tmp_path, *names) / path)
    found = list(lines_about_files(dataset))
    assert len(found) == bool(line)
    assert not line or found[0].replace(str(tmp_path), "F").startswith(line)
    named = DatasetSpec((DatasetPart(tmp_path / path, split="train"),))
    assert not list(lines_about_files(named))


def test_a_folder_without_files_of_splits_is_not_searched(tmp_path):
    made(tmp_path, "deeper/a.jsonl", "run.run/train.jsonl", "_x/train.jsonl")
    assert refused(tmp_path).startswith("F holds no dataset file; one of .jsonl")


def test_the_words_are_those_of_datasets():
    from datasets.data_files import SPLIT_KEYWORDS

    from rejuice.pipelines.dataset.spec import _SPLIT_OF_WORD

    known = {word: str(split) for split, words in SPLIT_KEYWORDS.items() for word in words}
    assert known == _SPLIT_OF_WORD
