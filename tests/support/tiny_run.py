"""The small run that tests of stored runs share: 3 prompts, 4 recorded responses to each.

    path = write_tiny(folder)      # a recipe and its data
    recipe = run_tiny(folder)      # the same, run: folder/curated.parquet and what is beside it

Prompt B is all right and is dropped; A and C stay. The second response of A is right and not in
the format: accuracy 1, format -0.1, reward 0.9, advantage 0.679365.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import Recipe, load

ROWS = (
    {
        "question": "What is 3 + 4?",
        "answer": "7",
        "responses": [r"\boxed{7}", "It is 7.", r"\boxed{8}", "It is 9."],
    },
    {
        "question": "What is 1 + 1?",
        "answer": "2",
        "responses": [r"\boxed{2}", "2", "It is 2.", "That is 2."],
    },
    {
        "question": "What is 5 + 5?",
        "answer": "10",
        "responses": [r"\boxed{10}", "It is 11.", "12", "13"],
    },
)
AFTER: tuple[dict[str, Any], ...] = (
    {"math_verify_mapper": {}},
    {"format_reward_mapper": {"style": "boxed"}},
    {"group_stats_mapper": {}},
    {"pass_rate_filter": {"max": 0.9}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    {"grpo_advantage_mapper": {}},
)
"""The steps after sampling."""
PROCESS = (
    {"prompt_template_mapper": {}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    *AFTER,
)


def write_tiny(folder: Path, process: Sequence[Mapping[str, Any]] = PROCESS, **head: Any) -> Path:
    """Write the data and the recipe into a folder; the path of the recipe.

    Args:
        folder: where they go.
        process: other steps.
        head: keys of the recipe's head.
    """
    data = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    (folder / "data.jsonl").write_text(data, "utf-8")
    document = {
        "project_name": "tiny",
        "dataset_path": str(folder / "data.jsonl"),
        "export_path": str(folder / "curated.parquet"),
        **head,
        "process": [dict(step) for step in process],
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return path


def run_tiny(
    folder: Path,
    process: Sequence[Mapping[str, Any]] = PROCESS,
    *,
    chunk_rows: int | None = 1,
    **head: Any,
) -> Recipe:
    """Run it, by default in chunks of one prompt; the recipe."""
    recipe = load(write_tiny(folder, process, **head))
    engine.run(recipe, chunk_rows=chunk_rows)
    return recipe
