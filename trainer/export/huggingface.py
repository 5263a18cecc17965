"""A curated dataset as a plain Hugging Face dataset, with a card.

DIR/README.md            the card: columns, figures, funnel and recipe
DIR/data/train.parquet   for `datasets.load_dataset(DIR)`, and to upload
DIR/arrow/               for `datasets.load_from_disk(DIR/arrow)`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import DataError, RejuiceError, __version__
from ...operators.columns import MESSAGES, ROW_CONTRACT, flat
from ...operators.errors import needs
from ...operators.groups import hash_each
from ...operators.logs import know
from ...pipelines.dataset.files import (
    check_finished,
    filled,
    is_folder,
    open_input,
    run_folder,
)
from ...pipelines.dataset.read import Dataset, read_batches
from ...pipelines.dataset.remote import AnyPath, RemotePath
from ...pipelines.dataset.schemas import conform
from ...pipelines.dataset.write import parts_of, written_columns
from ...pipelines.engine.finished_export import Manifest, read_manifest
from ...pipelines.engine.report import Report, Summary, merge, summarise
from .rows import read_rows
from .trajectories import TOOL_MESSAGES, has_calls, has_trajectories, tools_of
from .trl_formats import Converted, Format, converted

_FIGURES = ("verdict", "reward", "advantage")
"""How the names of columns begin of which the card has figures."""


def export_hf(
    dataset: Path, folder: Path, form: Format | None = None, *, overwrite: bool = False
) -> Converted:
    needs("a Hugging Face dataset", "rejuice[hub]", "datasets")
    rows = read_rows(dataset)
    made = Converted(rows, rows.num_rows) if form is None else converted(dataset, rows, form)
    if form is not None and has_trajectories(rows):
        made = _with_tools(made, tools_of(dataset))
    known = {*ROW_CONTRACT, *written_columns(dataset), *made.table.column_names}
    if gone := [name for name in rows.column_names if name not in known]:
        made = made._replace(notes=(*made.notes, f"Columns left out: {', '.join(gone)}."))
    card = dataset_card(dataset, described(rows.schema, [rows]), "data/train.parquet", form, made)
    with filled(folder, overwrite=overwrite) as into:
        (into / "data").mkdir()
        _write(made.table, into)
        (into / "README.md").write_text(card, "utf-8")
    return made


def _write(table: pa.Table, folder: Path) -> None:
    """As `load_dataset` and `load_from_disk` read them, without progress bars."""
    import datasets
    from datasets.table import InMemoryTable

    written, shown = datasets.Dataset(InMemoryTable(table)), datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        written.to_parquet(str(folder / "data" / "train.parquet"))
        written.save_to_disk(str(folder / "arrow"))
    finally:
        if shown:
            datasets.enable_progress_bars()


def _with_tools(made: Converted, tools: str | None) -> Converted:
    """Add what TRL passes to the chat template as the tools, if it is known and they are called."""
    note = ""
    if not has_calls(made.table):
        note = "No turn ends with a tool call in JSON: the messages are plain text."
    elif tools is None:
        note = "The tools are not known: add a column 'tools', in JSON, for the model to see them."
    if note:
        return made._replace(notes=(*made.notes, note))
    column = pa.repeat(pa.scalar(tools), made.table.num_rows)
    return made._replace(table=made.table.append_column("tools", column))


# ------------------------------------------------------------------ the card


class Described(NamedTuple):
    schema: pa.Schema  # of the rows
    rows: int  # how many they are
    prompts: int | None  # to how many prompts; None: they have no column `prompt_id`
    figures: Summary  # of each column of verdicts, rewards and advantages


def described(schema: pa.Schema, tables: Iterable[pa.Table]) -> Described:
    """Few rows need to be in memory at a time."""
    rows, parts, hashes = 0, list[Summary](), np.zeros(0, np.uint64)
    has_prompts = "prompt_id" in schema.names
    names = [name for name in described_columns(schema) if name != "prompt_id"]
    for table in tables:
        rows += table.num_rows
        parts.append(summarise({name: flat(table[name]) for name in names}))
        if has_prompts:  # 8 bytes for each prompt.
            hashes = np.union1d(hashes, hash_each(table["prompt_id"].cast(pa.string())))
    figures = {name: each for name, each in merge(parts).items() if each.get("counts") != {}}
    return Described(schema, rows, len(hashes) if has_prompts else None, figures)


def described_columns(schema: pa.Schema) -> list[str]:
    """The columns of which a card has figures, and the one that counts prompts."""
    names: list[str] = schema.names
    return [n for n in names if n.startswith(_FIGURES) or n == "prompt_id"]


def dataset_card(
    dataset: AnyPath,
    rows: Described,
    data_files: str,
    form: Format | None = None,
    made: Converted | None = None,
) -> str:
    return "".join(f"{line}\n" for line in _card(dataset, rows, data_files, form, made))


def _card(
    dataset: AnyPath, rows: Described, data_files: str, form: Format | None, made: Converted | None
) -> Iterator[str]:
    report = Report.read(dataset) if (run_folder(dataset) / "report.json").exists() else None
    yield from ("---", "configs:", "- config_name: default", f"  data_files: {data_files}")
    yield from ("tags: [rejuice]", "---", "")
    yield f"# {report.project_name if report else dataset.stem}"
    yield ""
    of = f"{made.table.num_rows:,} {form.name} made of " if form and made else ""
    prompts = "" if rows.prompts is None else f" to {rows.prompts:,} prompts"
    yield f"{of}{rows.rows:,} rows{prompts}. Written by rejuice {__version__}."
    if form and made:
        options = ", ".join(f"`{name}`: {value}" for name, value in asdict(form).items())
        yield from ("", f"{options}.", "", *made.sentences())
    yield from ("", "## Columns", "", "| column | type |", "|---|---|")
    for field in made.table.schema if made else rows.schema:
        yield f"| `{field.name}` | {_type_name(field.type)} |"
    figures = [_figure(name, found) for name, found in rows.figures.items()]
    if figures:  # Of the rows, even if pairs are made of them.
        yield from ("", "## Figures", "", "| column | rows | mean | min | max | null or reason |")
        yield from ("|---|---|---|---|---|---|", *figures)
    if report is not None:
        yield from ("", "## Funnel", "", "| step | rows in | added | dropped | rows out |")
        yield "|---|---|---|---|---|"
        for step in report.steps:
            dropped = ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.items())
            yield (
                f"| {step.step} | {step.rows_in:,} | {step.added or ''} | {dropped} "
                f"| {step.rows_out:,} |"
            )
    recipe = run_folder(dataset) / "recipe.yaml"
    if recipe.exists():  # `dj-process` writes a report, but no recipe.
        yield from ("", "## Recipe", "", "```yaml", recipe.read_text("utf-8").rstrip(), "```")


def _type_name(kind: pa.DataType) -> str:
    if kind == TOOL_MESSAGES:
        return "list of messages (role, content, tool_calls, name)"
    return "list of messages (role, content)" if kind == MESSAGES else str(kind)


def _figure(name: str, found: dict[str, Any]) -> str:
    if "counts" in found:
        counts = ", ".join(f"{value} {count:,}" for value, count in found["counts"].items())
        return f"| `{name}` | {sum(found['counts'].values()):,} | | | | {counts} |"
    values = [f"{found[key] + 0.0:.4g}" if key in found else "" for key in ("mean", "min", "max")]
    return f"| `{name}` | {found['n']:,} | {' | '.join(values)} | {found['null'] or ''} |"


# --- Push -----------------------------------------------------------------------------
# Push an export to the Hugging Face hub: its files as they are, and a card beside them.

_COPIED_BYTES = 16 << 20


class Pushed(NamedTuple):
    url: str  # of the commit
    rows: int  # of the dataset
    files: int  # with the rows


def push(export: AnyPath, repo: str, *, private: bool | None = None) -> Pushed:
    """Push an export to a dataset of the hub, which is made if there is none.

    Files of rows that an earlier push has left there are replaced in the same commit. Rows are read
    some at a time; an export in an object store is first copied to a temporary folder.
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
    """A link to a file or, of one in a store, a copy."""
    try:
        if isinstance(file, RemotePath):
            with open_input(file) as source, path.open("wb") as copy:
                copyfileobj(source, copy, _COPIED_BYTES)
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
    needs("pushing to the hub", "rejuice[hub]", "huggingface_hub")
    from huggingface_hub import get_token

    token = get_token()
    know(token)
    if token is None:
        raise RejuiceError(
            "no token of the Hugging Face hub was found", "run `hf auth login`, or set HF_TOKEN"
        )


def _upload(folder: Path, repo: str, private: bool | None) -> str:
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
