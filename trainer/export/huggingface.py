"""A curated dataset as a plain Hugging Face dataset, with a card.

DIR/README.md            the card: columns, figures, funnel and recipe
DIR/data/train.parquet   for `datasets.load_dataset(DIR)`, and to upload
DIR/arrow/               for `datasets.load_from_disk(DIR/arrow)`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators import DataError, EmptyResultError, Groups, __version__
from ...operators.columns import MESSAGES, flat, numbers
from ...pipelines.apply.report import Report
from ...pipelines.apply.summary import merge, summarise
from ...pipelines.dataset.read import read_all
from ...pipelines.dataset.write import run_folder

Shape = Literal["rows", "completions", "pairs"]


def export_hf(
    dataset: Path, folder: Path, shape: Shape = "rows", *, allow_empty: bool = False
) -> int:
    """Write a dataset to a folder, and its card.

    Args:
        dataset: the export of a run, or any other file or folder of rows.
        folder: where to write; it must be empty or not exist.
        shape: `rows` as they are; `completions`, the columns `prompt` and `completion` of TRL's
            SFTTrainer; `pairs`, the columns `prompt`, `chosen` and `rejected` of its DPOTrainer,
            see `pairs_of`.
        allow_empty: write a dataset without rows, too.

    Returns:
        How many rows it has.

    Raises:
        DataError: the folder holds something, or the dataset lacks a column.
        EmptyResultError: there is no row to write.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty", "give another folder")
    from datasets import Dataset
    from datasets.table import InMemoryTable

    rows = read_all(dataset)
    table = _SHAPES[shape](rows)
    if not table.num_rows and not allow_empty:
        raise EmptyResultError(
            f"{dataset} gives no {shape}: {_NO_ROWS[shape]}",
            "give another dataset, or --allow_empty",
        )
    made = Dataset(InMemoryTable(table))
    (folder / "data").mkdir(parents=True)
    made.to_parquet(str(folder / "data" / "train.parquet"))
    made.save_to_disk(str(folder / "arrow"))
    (folder / "README.md").write_text("\n".join(_card(dataset, shape, rows, table)) + "\n", "utf-8")
    return int(table.num_rows)


def completions_of(table: pa.Table) -> pa.Table:
    """`prompt` and `completion` as chats of each row that has a response.

    Raises:
        DataError: a column is missing.
    """
    _check_columns(table, "prompt", "response")
    table = table.filter(pc.is_valid(table["response"]))
    return pa.table({"prompt": table["prompt"], "completion": _answers(table["response"])})


def pairs_of(table: pa.Table) -> pa.Table:
    """`prompt`, `chosen` and `rejected` of each group, and their rewards.

    Chosen is the response with the highest reward of its group, rejected the one with the lowest;
    among equals, the first. Rows without a finite reward or a response do not count. A group
    whose rewards are equal gives no pair.

    Raises:
        DataError: a column is missing, or the rows of a prompt are not next to each other.

    Example:
        >>> table = pa.table({"prompt_id": ["a"] * 3, "response": ["x", "y", "z"],
        ...     "prompt": [[{"role": "user", "content": "?"}]] * 3, "reward": [0.0, 1.0, 0.5]})
        >>> pairs_of(table).select(["chosen", "score_rejected"]).to_pylist()
        [{'chosen': [{'role': 'assistant', 'content': 'y'}], 'score_rejected': 0.0}]
    """
    _check_columns(table, "prompt_id", "prompt", "response", "reward")
    counts_N = np.isfinite(numbers(table, "reward")) & np.asarray(pc.is_valid(table["response"]))
    table = table.filter(pa.array(counts_N))
    groups, reward_N = Groups.of(table), numbers(table, "reward")
    if len(groups.starts_G) != len(table["prompt_id"].unique()):
        raise DataError("rows of a prompt are not next to each other", "sort them by prompt_id")
    best_G, worst_G = (np.flatnonzero(groups.rank(order) == 0) for order in (-reward_N, reward_N))
    apart_G = reward_N[best_G] > reward_N[worst_G]
    best, worst = (table.take(rows[apart_G]) for rows in (best_G, worst_G))
    return pa.table(
        {
            "prompt": best["prompt"],
            "chosen": _answers(best["response"]),
            "rejected": _answers(worst["response"]),
            "score_chosen": best["reward"],
            "score_rejected": worst["reward"],
        }
    )


_NO_ROWS = {
    "completions": "no row has a response",
    "pairs": "no prompt has responses of different rewards",
}
_SHAPES = {"rows": lambda table: table, "completions": completions_of, "pairs": pairs_of}


def _answers(responses: pa.ChunkedArray) -> pa.Array:
    """Chats of one message of the assistant each."""
    texts = flat(responses).cast(pa.string())
    roles = pa.repeat(pa.scalar("assistant"), len(texts))
    messages = pa.StructArray.from_arrays([roles, texts], fields=list(MESSAGES.value_type))
    return pa.ListArray.from_arrays(np.arange(len(texts) + 1, dtype=np.int32), messages)


def _check_columns(table: pa.Table, *names: str) -> None:
    for name in names:
        if name not in table.column_names:
            raise DataError(
                f"column '{name}' is missing", f"there are: {', '.join(table.column_names)}"
            )


# ------------------------------------------------------------------ the card


def _card(dataset: Path, shape: Shape, rows: pa.Table, table: pa.Table) -> Iterator[str]:
    report = Report.read(dataset) if (run_folder(dataset) / "report.json").exists() else None
    yield from ("---", "configs:", "- config_name: default", "  data_files: data/train.parquet")
    yield from ("tags: [rejuice]", "---", "")
    yield f"# {report.project_name if report else dataset.stem}"
    yield ""
    of = "" if shape == "rows" else f"{table.num_rows:,} {shape} made of "
    prompts = f" to {_prompts(rows):,} prompts" if "prompt_id" in rows.column_names else ""
    yield f"{of}{rows.num_rows:,} rows{prompts}. Written by rejuice {__version__}."
    yield from ("", "## Columns", "", "| column | type |", "|---|---|")
    for field in table.schema:
        yield f"| `{field.name}` | {_type_name(field.type)} |"
    figures = [_figure(name, found) for name, found in _figures(rows)]
    if figures:  # Figures of the rows, even if pairs are made of them.
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
        recipe = (run_folder(dataset) / "recipe.yaml").read_text("utf-8").rstrip()
        yield from ("", "## Recipe", "", "```yaml", recipe, "```")


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
