"""A curated dataset as a plain Hugging Face dataset, with a card.

DIR/README.md            the card: columns, figures, funnel and recipe
DIR/data/train.parquet   for `datasets.load_dataset(DIR)`, and to upload
DIR/arrow/               for `datasets.load_from_disk(DIR/arrow)`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...operators import DataError, __version__
from ...operators.columns import MESSAGES, flat
from ...pipelines.apply.report import Report
from ...pipelines.apply.summary import merge, summarise
from ...pipelines.dataset.read import read_all
from ...pipelines.dataset.remote import AnyPath
from ...pipelines.dataset.write import run_folder
from .trl_formats import Converted, Format


def export_hf(dataset: Path, folder: Path, form: Format | None = None) -> Converted:
    """Write a dataset to a folder, and its card.

    Args:
        dataset: the export of a run, or any other file or folder of rows.
        folder: where to write; it must be empty or not exist.
        form: what to make of the rows, such as `Completions()`. None: the rows as they are.

    Returns:
        What was written and what was left out.

    Raises:
        DataError: the folder holds something, the dataset lacks a column, or nothing is left.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty", "give another folder")
    if not dataset.exists():
        raise DataError(f"{dataset} does not exist", "give a file or a folder of rows")
    rows = read_all(dataset)
    try:
        made = Converted(rows, rows.num_rows) if form is None else form.convert(rows)
    except DataError as error:
        raise error.at(str(dataset)) from None
    card = dataset_card(dataset, form, rows, made, "data/train.parquet")
    from datasets import Dataset
    from datasets.table import InMemoryTable

    written = Dataset(InMemoryTable(made.table))
    (folder / "data").mkdir(parents=True)
    written.to_parquet(str(folder / "data" / "train.parquet"))
    written.save_to_disk(str(folder / "arrow"))
    (folder / "README.md").write_text(card, "utf-8")
    return made


# ------------------------------------------------------------------ the card


def dataset_card(
    dataset: AnyPath, form: Format | None, rows: pa.Table, made: Converted, data_files: str
) -> str:
    """The card of a dataset: its columns, figures, funnel and recipe, as Markdown.

    Args:
        dataset: the export of a run, or any other file or folder of rows.
        form: what was made of its rows; None: nothing.
        rows: of the dataset.
        made: what was made of them.
        data_files: where the files are, beside the card.
    """
    return "".join(f"{line}\n" for line in _card(dataset, form, rows, made, data_files))


def _card(
    dataset: AnyPath, form: Format | None, rows: pa.Table, made: Converted, data_files: str
) -> Iterator[str]:
    report = Report.read(dataset) if (run_folder(dataset) / "report.json").exists() else None
    yield from ("---", "configs:", "- config_name: default", f"  data_files: {data_files}")
    yield from ("tags: [rejuice]", "---", "")
    yield f"# {report.project_name if report else dataset.stem}"
    yield ""
    of = "" if form is None else f"{made.table.num_rows:,} {form.name} made of "
    prompts = f" to {_prompts(rows):,} prompts" if "prompt_id" in rows.column_names else ""
    yield f"{of}{rows.num_rows:,} rows{prompts}. Written by rejuice {__version__}."
    if form is not None:
        options = ", ".join(f"`{name}`: {value}" for name, value in asdict(form).items())
        yield from ("", f"{options}.", "", *made.sentences())
    yield from ("", "## Columns", "", "| column | type |", "|---|---|")
    for field in made.table.schema:
        yield f"| `{field.name}` | {_type_name(field.type)} |"
    figures = [_figure(name, found) for name, found in _figures(rows)]
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


def _prompts(table: pa.Table) -> int:
    return len(table["prompt_id"].unique())


def _type_name(kind: pa.DataType) -> str:
    return "list of messages (role, content)" if kind == MESSAGES else str(kind)


def _figures(table: pa.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """The figures of verdicts, rewards and advantages."""
    names = [n for n in table.column_names if n.startswith(("verdict", "reward", "advantage"))]
    found = merge([summarise({name: flat(table[name]) for name in names})])
    yield from ((name, each) for name, each in found.items() if each.get("counts") != {})


def _figure(name: str, found: dict[str, Any]) -> str:
    if "counts" in found:
        counts = ", ".join(f"{value} {count:,}" for value, count in found["counts"].items())
        return f"| `{name}` | {sum(found['counts'].values()):,} | | | | {counts} |"
    values = [f"{found[key] + 0.0:.4g}" if key in found else "" for key in ("mean", "min", "max")]
    return f"| `{name}` | {found['n']:,} | {' | '.join(values)} | {found['null'] or ''} |"
