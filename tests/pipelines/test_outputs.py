"""A file that the user names is replaced with `--overwrite` only, and files beside it stay."""

import sys

import pytest

from rejuice.operators import DataError
from rejuice.pipelines.cli.main import main
from rejuice.pipelines.dataset.files import filled
from rejuice.trainer.run import is_prepared

RECIPE = """
dataset_path: rows.jsonl
export_path: out.parquet
process:
  - prompt_template_mapper: {reference_pattern: '#### (.*)'}
  - recorded_rollout_mapper: {columns: [responses], text: text}
  - math_verify_mapper:
  - reward_sum_mapper: {weights: {accuracy: 1.0}}
  - grpo_advantage_mapper:
"""
FILES = [
    (["data", "mine.jsonl", "--prompts", "2"], "mine.jsonl"),
    (["view", "out.parquet", "--no-open", "-o", "mine.html"], "mine.html"),
    (["audit", "out.parquet", "-o", "mine.jsonl"], "mine.jsonl"),
]
FOLDERS = [
    (["export", "verl", "out.parquet", "mine"], "train.parquet"),
    (["export", "openrlhf", "out.parquet", "mine", "--as", "pairs"], "pairs.parquet"),
    (["export", "llama_factory", "out.parquet", "mine", "--as", "pairs"], "pairs.jsonl"),
]


@pytest.fixture
def rejuice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def types(*words):
        monkeypatch.setattr(sys, "argv", ["rejuice", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err

    assert types("data", "rows.jsonl", "--prompts", "4")[0] == 0
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert types("run", "recipe.yaml", "--quiet")[0] == 0
    return types


@pytest.mark.recommended("pipelines/dataset/files.py", "give another path, or --overwrite")
@pytest.mark.recommended("pipelines/analysis/audit.py", "give another --output, or --overwrite")
@pytest.mark.parametrize(("words", "name"), FILES)
def test_a_file_of_the_user_is_replaced_only_when_asked(rejuice, tmp_path, words, name):
    file = tmp_path / name
    file.write_text("precious")
    status, line = rejuice(*words)
    assert (status, file.read_text()) == (2, "precious")
    assert name in line
    assert "--overwrite" in line
    assert rejuice(*words, "--overwrite")[0] == 0
    assert file.read_bytes() != b"precious"


@pytest.mark.recommended("pipelines/dataset/files.py", "give another folder, or --overwrite")
@pytest.mark.parametrize(("words", "name"), FOLDERS)
def test_a_folder_of_the_user_keeps_its_other_files(rejuice, tmp_path, words, name):
    folder = tmp_path / "mine"
    (folder / "operators").mkdir(parents=True)
    for file in (folder / name, folder / "operators" / "mine.py", folder / "notes"):
        file.write_text("precious")
    status, line = rejuice(*words)
    assert (status, (folder / name).read_text()) == (2, "precious")
    assert "--overwrite" in line
    assert rejuice(*words, "--overwrite")[0] == 0
    assert (folder / name).read_bytes() != b"precious"
    assert (folder / "operators" / "mine.py").read_text() == "precious"
    assert (folder / "notes").read_text() == "precious"


@pytest.mark.parametrize("taken", ["b/c", "b"])
def test_nothing_is_replaced_where_one_file_cannot_be(tmp_path, taken):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a").write_text("precious")
    if taken == "b":
        (folder / "b").write_text("precious")
    else:
        (folder / taken).mkdir(parents=True)
    with (
        pytest.raises(DataError, match=f"{folder / taken} is a f"),
        filled(folder, overwrite=True) as into,
    ):
        (into / "b").mkdir()
        for name in ("a", "b/c"):
            (into / name).write_text("new")
    assert (folder / "a").read_text() == "precious"
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


@pytest.mark.recommended("trainer/launch/training.py", "give another --output, or move it away")
@pytest.mark.parametrize("name", ["recipe.yaml", "policy", "prompts/train.parquet"])
def test_training_takes_no_folder_of_the_user(tmp_path, name):
    from fake_run import write_recipe

    from rejuice.operators import RejuiceError
    from rejuice.pipelines.recipe.recipe import load
    from rejuice.trainer.launch.training import _check_folder
    from rejuice.trainer.run import TrainingRun

    recipe = write_recipe(tmp_path / "r.yaml")
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    assert not is_prepared(tmp_path / "mine")
    with pytest.raises(RejuiceError, match="give another --output, or move it away"):
        _check_folder(TrainingRun.of(tmp_path / "mine", load(recipe)), resume=False)
    assert mine.read_text() == "precious"
