"""What `rejuice export hub` gives the hub: the files of an export as they are, and a card."""

import errno
import shutil
import uuid
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import runner
from huggingface_hub.errors import HfHubHTTPError

from rejuice.operators import DataError, RejuiceError
from rejuice.pipelines.dataset.files import run_folder
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.export.huggingface import push

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


@pytest.mark.slow  # It loads datasets.
@pytest.mark.parametrize("path", ["out/curated.parquet", "out/curated", "out/curated.jsonl"])
def test_the_hub_gets_the_files_and_a_card(export, hub, path, tmp_path):
    from datasets import load_dataset

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
    assert rejuice("export", "hub", made, "user/curated", "--private") == (0, line, "")
    assert rejuice("export", "hub", made, "user/curated") == (0, line, "")
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


@pytest.fixture
def in_store(recipe_file, s3, monkeypatch, tmp_path):
    """A recipe whose export is in an object store, in parts of a row."""
    monkeypatch.chdir(tmp_path)
    path = f"s3://rollouts/{uuid.uuid4().hex}/curated"
    return load(recipe_file(STEPS, ROWS), {"export_path": path, "max_rows_per_file": "1"})


@pytest.mark.slow
def test_an_export_in_a_store_is_pushed(in_store, hub):
    engine.run(in_store)
    export = in_store.head.export_path
    (export / "part-00099.parquet").write_bytes((export / "part-00000.parquet").read_bytes())
    found = push(export, "user/curated")
    assert (found.rows, found.files) == (4, 3), "a part that is not in the list is not pushed"
    sent = {p.name: p.read_bytes() for p in (hub.folder / "data").iterdir()}
    assert sent == {f"part-0000{n}.parquet": (export / f"part-0000{n}.parquet").read_bytes() for n in range(3)}  # fmt: skip
    assert "\n4 rows to 3 prompts. " in (hub.folder / "README.md").read_text()


@pytest.mark.slow
def test_what_is_not_finished_in_a_store_is_not_pushed(in_store, hub, monkeypatch):
    engine.run(in_store)
    export = in_store.head.export_path
    refused = f"the run that writes {export} has not ended; run its recipe again"
    # As a run that is killed between its parts, and one that is killed before its report.
    for stopped in ("export.write_parts_list", "report.Report.of"):
        (run_folder(export) / "manifest.json").unlink()
        with monkeypatch.context() as patch:
            patch.setattr(f"rejuice.pipelines.engine.{stopped}", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                engine.run(in_store)
        with pytest.raises(DataError) as error:
            push(export, "user/curated")
        assert str(error.value) == refused
        engine.run(in_store)
    (export / "_manifest.json").unlink()
    with pytest.raises(DataError, match=r"curated is not a finished export: it lacks _manifest"):
        push(export, "user/curated")
    assert not hub.asked


def test_a_single_file_of_a_store_whose_run_was_stopped_is_not_pushed(in_store, hub, monkeypatch):
    path = f"{in_store.head.export_path}.parquet"
    recipe = load(in_store.path, {"export_path": path})
    monkeypatch.setattr("rejuice.pipelines.engine.report.Report.of", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.run(recipe)
    assert to_path(path).exists()
    with pytest.raises(DataError, match=r"curated\.parquet has not ended; run its recipe again$"):
        push(to_path(path), "user/curated")


def test_an_export_that_is_written_again_meanwhile_is_not_pushed(export, hub, monkeypatch):
    made = export("out/curated", max_rows_per_file="1")

    def card(*arguments):
        export("out/curated", max_rows_per_file="100")
        return "---\n---\n"

    monkeypatch.setattr("rejuice.trainer.export.huggingface.dataset_card", card)
    with pytest.raises(DataError) as error:
        push(made, "user/curated")
    assert str(error.value) == f"{made} was written again meanwhile; push it again"
    assert not hub.asked


def test_an_export_that_is_written_again_during_the_upload_is_reported(export, hub, monkeypatch):
    made = export("out/curated", max_rows_per_file="1")

    def upload(*arguments):
        export("out/curated", max_rows_per_file="100")
        return "https://hub"

    monkeypatch.setattr("rejuice.trainer.export.huggingface._upload", upload)
    with pytest.raises(DataError, match=r"curated was written again meanwhile; push it again$"):
        push(made, "user/curated")


def test_a_copy_that_does_not_fit_is_one_line(in_store, hub, monkeypatch):
    engine.run(in_store)

    def copy(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rejuice.trainer.export.huggingface.copyfileobj", copy)
    with pytest.raises(DataError) as error:
        push(in_store.head.export_path, "user/curated")
    assert str(error.value).endswith(
        "/data: No space left on device; make room there, or set TMPDIR to another folder"
    )


@pytest.mark.parametrize("in_a_store", [False, True])
def test_a_part_that_is_gone_is_one_line(in_store, export, hub, in_a_store):
    if in_a_store:
        engine.run(in_store)
    made = in_store.head.export_path if in_a_store else export("out/curated", max_rows_per_file="1")
    (made / "part-00001.parquet").unlink()
    with pytest.raises(DataError) as error:
        push(made, "user/curated")
    assert str(error.value) == f"{made}/part-00001.parquet does not exist; run its recipe again"
    assert not hub.asked


def test_figures_are_those_of_all_parts(export, hub):
    cards = []
    for most in ("1", "2", "100"):
        push(export("out/curated", max_rows_per_file=most), "user/curated")
        cards.append((hub.folder / "README.md").read_text().replace(f"max_rows_per_file: {most}", ""))  # fmt: skip
    assert cards[0] == cards[1] == cards[2]
    assert "| `reward` | 4 | 0.775 | 0.5 | 1 |  |" in cards[0]


def test_memory_does_not_grow_with_the_rows(tmp_path, hub):
    text = pa.array(["x" * 1_000] * 20_000)
    rows = pa.table({"prompt_id": [str(n) for n in range(20_000)], "response": text, "reward": [1.0] * 20_000})  # fmt: skip
    pq.write_table(rows, tmp_path / "large.parquet", use_dictionary=False, compression="none")
    text_bytes = rows["response"].nbytes
    del rows, text
    before, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counted)
    try:
        assert push(tmp_path / "large.parquet", "user/large").rows == 20_000
    finally:
        pa.set_memory_pool(before)
    assert counted.max_memory() < text_bytes / 4, "texts are not in the card, and not read"
