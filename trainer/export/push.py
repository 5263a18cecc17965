"""Push an export to the Hugging Face hub: its files as they are, and a card beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa

from ...operators import DataError, RejuiceError
from ...operators.redaction import know
from ...pipelines.dataset.formats import read_batches
from ...pipelines.dataset.read import Dataset
from ...pipelines.dataset.remote import AnyPath, RemotePath
from ...pipelines.dataset.run_folder import check_finished, is_folder, run_folder
from ...pipelines.dataset.schemas import conform
from ...pipelines.dataset.write import parts_of
from ...pipelines.engine.export.finished import Manifest, read_manifest
from .huggingface import Described, dataset_card, described, described_columns

_COPIED_BYTES = 16 << 20


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

    Files of rows that an earlier push has left there are replaced in the same commit. Rows are read
    some at a time; an export in an object store is first copied to a temporary folder.

    Args:
        export: of a run: a file, or a folder of parts.
        repo: the name of the dataset, such as `user/curated`.
        private: whether only its owner sees it, where it is made now; None: as the owner's
            settings say.

    Raises:
        DataError: there is no such export, it is not finished, or it has no row.
        RejuiceError: there is no token, or the hub refuses.
    """
    if not export.exists():
        raise DataError(f"{export} does not exist", "give the export of a finished run")
    check_finished(export)
    before = read_manifest(run_folder(export))
    files = parts_of(export) if is_folder(export) else [export]
    _check_token()
    with TemporaryDirectory(prefix="rejuice-") as made:
        folder = Path(made)
        (folder / "data").mkdir()
        for file in files:
            _put(file, folder / "data" / file.name)
        rows = _described(Dataset(folder / "data"))
        if not rows.rows:
            raise DataError(f"{export} has no row", "change the filters of its recipe")
        names = "data/*" if is_folder(export) else f"data/{export.name}"
        (folder / "README.md").write_text(dataset_card(export, rows, names), "utf-8")
        _check_unchanged(export, before)
        url = _upload(folder, repo, private)
        _check_unchanged(export, before)  # The files of an export on disk are read by the upload.
    return Pushed(url, rows.rows, len(files))


def _check_unchanged(export: AnyPath, before: Manifest | None) -> None:
    check_finished(export)
    if read_manifest(run_folder(export)) != before:
        raise DataError(f"{export} was written again meanwhile", "push it again")


def _put(file: AnyPath, path: Path) -> None:
    """Have a file in a folder: a link to it or, of one in a store, a copy."""
    try:
        if isinstance(file, RemotePath):
            with path.open("wb") as copy:
                for block in file.blocks(_COPIED_BYTES):
                    copy.write(block)
        else:
            path.symlink_to(file.resolve(strict=True))
    except FileNotFoundError:
        raise DataError(f"{file} does not exist", "run its recipe again") from None
    except OSError as error:
        right = "make room there, or set TMPDIR to another folder"
        raise DataError(
            f"{file} cannot be copied to {path.parent}: {error.strerror}", right
        ) from None


def _described(dataset: Dataset) -> Described:
    schema = dataset.schema
    columns = described_columns(schema)
    wanted = pa.schema([schema.field(name) for name in columns])

    def tables() -> Iterator[pa.Table]:
        for file in dataset.files:
            for table in read_batches(file, columns=columns):
                yield conform(table, wanted) if columns else table

    return described(schema, tables())


def _check_token() -> None:
    from huggingface_hub import get_token

    token = get_token()
    know(token)
    if token is None:
        raise RejuiceError(
            "no token of the Hugging Face hub was found", "run `hf auth login`, or set HF_TOKEN"
        )


def _upload(folder: Path, repo: str, private: bool | None) -> str:
    """Push a folder in one commit, and give its address."""
    from httpx import HTTPError
    from huggingface_hub import HfApi

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
