"""The folder of a training run that nobody trained: what verl and rejuice would have left there."""

import json

import yaml

PROCESS = [
    {"prompt_template_mapper": {}},
    {"policy_rollout_mapper": {"n": 2, "max_tokens": 16}},
    {"math_verify_mapper": {}},
    {"format_reward_mapper": {}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
]


def line(step, accuracy=None, validation=None, **more):
    """A line of metrics.jsonl: of a step where it has an accuracy, of a validation where it has."""
    data = dict(more)
    if validation is not None:
        data["val-core/try/reward/mean@1"] = validation
    if accuracy is not None:
        data |= {
            "rejuice/reward": accuracy + 0.1,
            "rejuice/reward_accuracy": accuracy,
            "rejuice/reward_format": 0.1,
            "rejuice/pass_rate": accuracy,
            "rejuice/response_tokens": 20.0 + step,
            "rejuice/rows_sampled": 100.0,
            "rejuice/rows_trained": 90.0,
            "rejuice/dropped/group_of_one": 10.0,
            "actor/entropy_loss": 0.5 - 0.01 * step,
            "actor/ppo_kl": 1e-9,
            "actor/grad_norm": 0.2,
            "timing_s/step": 2.0,
        }
    return json.dumps({"step": step, "data": data}) + "\n"


def write_recipe(path, train=None, data=None, **head):
    """A recipe that can be trained, with made-up questions."""
    rows = [{"question": f"{a} + {b}?", "answer": str(a + b)} for a in range(5) for b in range(4)]
    data = data or path.with_name("data.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = data.with_name("held_out.jsonl")
    others = ({**row, "question": f"Not {row['question']}"} for row in rows)
    held_out.write_text("".join(json.dumps(row) + "\n" for row in others))
    document = {
        "project_name": "try",
        "dataset_path": str(data),
        "export_path": str(data.with_name("out.parquet")),
        "process": PROCESS,
        "train": {
            "steps": 4,
            "prompts_per_step": 4,
            "validation_path": str(held_out),
            **(train or {}),
        },
        **head,
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def save(folder, step):
    """A checkpoint, whole and the newest."""
    checkpoint = folder / "checkpoints" / f"global_step_{step}"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "data.pt").touch()
    (checkpoint.parent / "latest_checkpointed_iteration.txt").write_text(str(step))


def write_run(folder, lines=(), checkpoints=(), **recipe):
    """A run of that recipe."""
    folder.mkdir(parents=True)
    data = folder.with_name("data.jsonl")
    write_recipe(folder / "recipe.yaml", data=data, **recipe)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "train.parquet").touch()
    (folder / "metrics.jsonl").write_text("".join(lines))
    for step in checkpoints:
        save(folder, step)
    return folder
