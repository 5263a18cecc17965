"""What `rejuice push` gives the hub: the files of an export as they are, and a card."""

import shutil
from types import SimpleNamespace

import httpx
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner
from datasets import load_dataset
from huggingface_hub.errors import HfHubHTTPError

from rejuice.operators import DataError, RejuiceError
from rejuice.pipelines.engine import local as engine
from rejuice.pipelines.recipe.read import load
from rejuice.trainer.export.push import push

STEPS = [{"column_range_filter": {"column": "reward", "min": 0.2}}]
ROWS = [{"prompt_id": name, "reward": reward} for name, reward in zip("aabcc", (1.0, 0.0, 0.5, 0.7, 0.9), strict=True)]  # fmt: skip


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub in a folder, which records what it is asked."""

    class Hub:
        asked, folder, error = [], tmp_path / "hub", None

        def create_repo(self, repo_id, **options):
            Hub.asked.append((repo_id, options))
            if Hub.error is not None:
                raise Hub.error
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, repo_id, folder_path, repo_type, commit_message, delete_patterns):  # fmt: skip
            assert (repo_type, delete_patterns) == ("dataset", "data/*")
            shutil.rmtree(Hub.folder / "data", ignore_errors=True)
            shutil.copytree(folder_path, Hub.folder, dirs_exist_ok=True)
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    return Hub


@pytest.fixture
def export(recipe_file):
    def make(path="out/curated.parquet", **fields):
        recipe = load(recipe_file(STEPS, ROWS, project_name="mine"))
        folder = recipe.path.parent
        recipe = load(recipe.path, {"export_path": str(folder / path), **fields})
        engine.run(recipe)
        return recipe.head.export_path

    return make


@pytest.mark.parametrize("path", ["out/curated.parquet", "out/curated", "out/curated.jsonl"])
def test_the_hub_gets_the_files_and_a_card(export, hub, path, tmp_path):
    made = export(path, max_rows_per_file="2")
    found = push(made, "user/curated", private=True)
    assert hub.asked == [("user/curated", {"private": True, "repo_type": "dataset", "exist_ok": True})]  # fmt: skip
    files = [made] if made.suffix else sorted(made.glob("part-*"))
    assert found == ("https://hub/user/curated/commit/1", 4, len(files))
    assert {p.name: p.read_bytes() for p in (hub.folder / "data").iterdir()} == {f.name: f.read_bytes() for f in files}  # fmt: skip
    front, body = (hub.folder / "README.md").read_text().split("---\n")[1:]
    assert yaml.safe_load(front)["tags"] == ["rejuice"]
    assert body.startswith("\n# mine\n\n4 rows to 3 prompts. Written by rejuice ")
    assert "| column_range_filter | 5 |  | below_min 1 | 4 |" in body
    loaded = load_dataset(str(hub.folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["reward"][:] == [1.0, 0.5, 0.7, 0.9]


def test_files_of_an_earlier_push_are_gone(export, hub):
    push(export("out/curated", max_rows_per_file="1"), "user/curated")
    made = export("out/curated", max_rows_per_file="100")
    push(made, "user/curated")
    assert [p.name for p in (hub.folder / "data").iterdir()] == ["part-00000.parquet"]
    assert pq.read_table(hub.folder / "data" / "part-00000.parquet").num_rows == 4


def test_the_command(export, hub, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    made = export()
    line = "user/curated: 4 rows in 1 file: https://hub/user/curated/commit/1\n"
    assert rejuice("push", made, "user/curated", "--private") == (0, line, "")
    assert rejuice("push", made, "user/curated") == (0, line, "")
    assert [options["private"] for _, options in hub.asked] == [True, None]


def test_without_a_token_there_is_one_line(export, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(RejuiceError) as error:
        push(export(), "user/curated")
    assert str(error.value) == (
        "no token of the Hugging Face hub was found; run `hf auth login`, or set HF_TOKEN"
    )
    assert not hub.asked


def refused():
    request = httpx.Request("POST", "https://hub/api/repos/create")
    return HfHubHTTPError("403 Forbidden:\n no rights", response=httpx.Response(403, request=request))  # fmt: skip


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (refused(), "403 Forbidden: no rights"),
        (httpx.ConnectError("no network"), "no network"),
        (ValueError("Repo id must use alphanumeric chars"), "Repo id must use alphanumeric chars"),
    ],
)
def test_what_the_hub_refuses_is_one_line(export, hub, error, right):
    hub.error = error
    with pytest.raises(RejuiceError) as found:
        push(export(), "user/curated")
    assert str(found.value) == f"cannot push to 'user/curated'; {right}"


def test_an_export_that_cannot_be_pushed(export, hub, tmp_path):
    made = export(**{"column_range_filter.min": "9"})
    with pytest.raises(DataError, match=r"has no row; change the filters of its recipe$"):
        push(made, "user/curated")
    with pytest.raises(DataError, match=r"nowhere does not exist; give the export of a finished"):
        push(tmp_path / "nowhere", "user/curated")
    assert not hub.asked
