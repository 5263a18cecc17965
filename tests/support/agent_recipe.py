"""A recipe that trains agents, with a flow and tools of the test's own."""

import json

import yaml


def pears(n):
    """A problem whose answer is n - 8."""
    question = f"Ivy has {n} pears. Leo has 8 fewer than Ivy. How many pears does Leo have?"
    return {"question": question, "answer": str(n - 8)}


def write_recipe(home, parts, agents, section, **datasets):
    """`recipe.yaml` in a folder, with its parts and its datasets.

    Args:
        parts: code of the flow and the tools.
        agents: fields of the step that samples.
        section: keys of `train` that differ from case to case.
        datasets: rows by the name of their file; `train` is the one of the recipe.
    """
    for name, rows in datasets.items():
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "parts.py").write_text(parts)
    document = {
        "project_name": "agents",
        "dataset_path": str(home / "train.jsonl"),
        "export_path": str(home / "curated.parquet"),
        "custom_operator_paths": [str(home / "parts.py")],
        "process": [
            {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
            {"agent_rollout_mapper": {"max_tokens": 40, **agents}},
            {"math_verify_mapper": None},
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
            {"grpo_advantage_mapper": {"std_floor": 0.1}},
        ],
        "train": {"learning_rate": 1e-4, "max_prompt_tokens": 128, "loggers": [], **section},
    }
    (home / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
