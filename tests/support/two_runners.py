"""Recipes as `dj-process` runs them and as `rejuice run` does, both in this process."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rejuice.pipelines import recipe
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.columns import checked_schema

pytest.importorskip("data_juicer")
from data_juicer import ops
from data_juicer.config import init_configs
from data_juicer.core.data import NestedDataset
from data_juicer.ops import op_fusion
from datasets import Dataset, disable_caching, enable_caching


def rollouts(groups: int = 12) -> pa.Table:
    texts = ["a b  c", "Die HARD 4!", "éa—b … 12", "x", "a b c", "see https://a.b/c now now", ""]
    rows = [
        {
            "text": texts[(group * 2) % 7],
            "prompt_id": f"p{group}",
            "response_id": f"p{group}-{index}",
            "response": texts[(group + 3 * index) % 7] + " " * (index % 2),
            "verdict": ["correct", "wrong_answer", None][(group + index) % 3],
            "reward_accuracy": float((group + index) % 2),
            "reward_accuracy_missing": None,
            "reward_format": 0.1 * index,
            "reward_format_missing": "timeout" if group == 7 else None,
            "share": [0.0, 1 / 3, None, 2.5][(group + index) % 4],
            "text_len": (group + index) % 5,
        }
        for group in range(groups)
        for index in range(1 + group % 4)
    ]
    return pa.Table.from_pylist(rows)


def written(folder, process, **head):
    """The path of a recipe with these steps, for the rollouts."""
    pq.write_table(rollouts(), folder / "rows.parquet")
    document = {
        "dataset_path": str(folder / "rows.parquet"),
        "export_path": str(folder / "out.parquet"),
        "np": 1,
        "skip_op_error": False,
        **head,
        "process": process,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return path


def configured(path, *options):
    """Data-Juicer's configuration for a recipe and a command line."""
    return init_configs(["--config", str(path), *options], load_configs_only=True)


def loaded(path):
    """Data-Juicer's operators for a recipe."""
    return ops.load_ops(configured(path).process)


def of_data_juicer(path, table=None, fuse=False):
    """The rows after the steps as `dj-process` reads, loads and runs them."""
    operators = loaded(path)
    if fuse:
        operators = op_fusion.fuse_operators(operators)
    for operator in operators:
        if operator.num_proc == 1:  # Not even one process beside this one.
            operator.auto_op_parallelism, operator.num_proc = False, None
    dataset = NestedDataset(Dataset(rollouts() if table is None else table))
    disable_caching()
    try:
        return list(dataset.process(operators, open_monitor=False))
    finally:
        enable_caching()


def of_rejuice(path):
    """The rows after the steps as `rejuice run` checks and runs them."""
    read = recipe.load(path)
    checked_schema(read)
    return run_in_memory([step.operator for step in read.steps], rollouts()).to_pylist()


def without_helpers(rows):
    """Rows without the columns that Data-Juicer drops at its export."""
    return [{k: v for k, v in row.items() if not k.startswith("__dj__")} for row in rows]


def check_equal(path, **options):
    """Check that both ways give the same rows, columns and values; returns the rows."""
    found, expected = without_helpers(of_data_juicer(path, **options)), of_rejuice(path)
    assert repr(found) == repr(expected)
    return expected
