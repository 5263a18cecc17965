"""Push an export to the Hugging Face hub: its files as they are, and a card beside them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...operators import DataError, RejuiceError
from ...pipelines.dataset.exported import exported_rows
from ...pipelines.dataset.remote import AnyPath, RemotePath
from ...pipelines.dataset.write import is_folder, parts_of
from .huggingface import dataset_card
from .trl_formats import Converted


class Pushed(NamedTuple):
    """What was pushed.

    Attributes:
        url: of the commit.
        rows: of the dataset.
        files: with the rows.
    """

    url: str
    rows: int
    files: int


def push(export: AnyPath, repo: str, *, private: bool | None = None) -> Pushed:
    """Push an export to a dataset of the hub, which is made if there is none.

    Files of rows that an earlier push has left there are replaced in the same commit.

    Args:
        export: of a run: a file, or a folder of parts.
        repo: the name of the dataset, such as `user/curated`.
        private: whether only its owner sees it, where it is made now; None: as the owner's
            settings say.

    Raises:
        DataError: there is no such export, or it has no row.
        RejuiceError: there is no token, or the hub refuses.
    """
    if not export.exists():
        raise DataError(f"{export} does not exist", "give the export of a finished run")
    files = parts_of(export) if is_folder(export) else [export]
    rows = exported_rows(export)
    if not rows.num_rows:
        raise DataError(f"{export} has no row", "change the filters of its recipe")
    names = "data/*" if is_folder(export) else f"data/{export.name}"
    card = dataset_card(export, None, rows, Converted(rows, rows.num_rows), names)
    with TemporaryDirectory(prefix="rejuice-") as made:
        folder = Path(made)
        (folder / "README.md").write_text(card, "utf-8")
        (folder / "data").mkdir()
        for file in files:
            _put(file, folder / "data" / file.name)
        url = _upload(folder, repo, private)
    return Pushed(url, rows.num_rows, len(files))


def _put(file: AnyPath, path: Path) -> None:
    if isinstance(file, RemotePath):
        path.write_bytes(file.read_bytes())
    else:
        path.symlink_to(file.resolve())


def _upload(folder: Path, repo: str, private: bool | None) -> str:
    """Push a folder in one commit, and give its address."""
    from httpx import HTTPError
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise RejuiceError(
            "no token of the Hugging Face hub was found", "run `hf auth login`, or set HF_TOKEN"
        )
    api = HfApi()
    try:
        made = api.create_repo(repo, private=private, repo_type="dataset", exist_ok=True)
        commit = api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Push an export of rejuice",
            delete_patterns="data/*",
        )
    except (HTTPError, OSError, ValueError) as error:  # A name that is none is a ValueError.
        message = " ".join(str(error).split())
        raise RejuiceError(f"cannot push to '{repo}'", message) from None
    return str(commit.commit_url)
