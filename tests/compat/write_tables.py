"""Write `data/tables`: what each recipe makes of recorded responses, and those responses.

    cd CHECKOUT && .venv/bin/python write_tables.py DATA/tables [inputs] [RECIPE ...]
    cd CHECKOUT && .venv/bin/python write_tables.py DATA/tables gsm8k_solutions=DATASET ...
    cd CHECKOUT && .venv/bin/python write_tables.py DATA/steps NAME=RUN/steps/000001 ...

CHECKOUT is the version that later ones must agree with; what is there now is of version 0.4.0.
`inputs` samples and solves again; without it only the tables are made again, of responses that are
there. The third form keeps a step of a training run, with what it trained on. Write a table again
only where a recipe is meant to make another one, and say so in the changelog; keep the recipe as it
was in `data/recipes`, with its table.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path.cwd() / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from digests import SMALL, digest_of, dropped
from fake_judge import FakeJudge

from rejuice.pipelines.demo.agents import write_trajectories
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

CHECKOUT = Path.cwd()
HERE = Path(__file__).resolve().parent
COMMAND = Path(sys.executable).parent / "rejuice"
PROMPTS, N = 12, 8
EXACT = ("prompt_token_ids", "response_token_ids", "response_logprobs", "sampling")
SAMPLED = ("prompt", "response", "finish_reason", "policy", "policy_version", *EXACT)


def specs():
    """Overrides by recipe."""
    found = yaml.safe_load(Path("recipes.yaml").read_text("utf-8"))
    return {name: fields for name, fields in found.items() if not name.startswith(".")}


def recipe_path(name):
    """The recipe that is shipped, or was shipped, under a name."""
    earlier = HERE / "data" / "recipes" / f"{name}.yaml"
    return earlier if earlier.exists() else CHECKOUT / "recipes" / f"{name}.yaml"


def table_of(name, overrides, steps=None):
    """The export of a recipe, or of its first steps, and what it dropped."""
    with tempfile.TemporaryDirectory() as folder:
        export = f"{folder}/curated.parquet"
        recipe = load(recipe_path(name), {**overrides, "export_path": export, "np": "1"})
        run(recipe.replace(steps=recipe.steps[:steps]))
        return pq.read_table(export), dropped(Path(folder) / "curated.run")


def write_inputs():
    """Problems; what the embedded policy, simulated solvers and a made-up judge say of them."""
    words = ["--prompts", str(PROMPTS), "--responses", str(N), "--levels", "1,2"]
    subprocess.run([COMMAND, "data", "solved.jsonl", *words], check=True)
    problems = [json.loads(line) for line in Path("solved.jsonl").read_text("utf-8").splitlines()]
    Path("solved.jsonl").unlink()
    write_rows("arithmetic.jsonl", problems, {"question": "question", "answer": "answer"})
    for row in problems:
        row["reference"] = row["answer"].rpartition("#### ")[2]
    write_rows("dapo.jsonl", problems, {"question": "prompt", "reference": "solution"})
    write_rollouts()
    write_trajectories(Path("agents.parquet"), prompts=PROMPTS, trajectories=N, levels=(1, 2))
    write_solved(problems)
    Path("scores.sqlite").unlink(missing_ok=True)
    with FakeJudge() as server:
        options = {"base_url": server.url, "patience_s": "5"}
        step = "llm_quality_reward_mapper.server"
        where = {f"{step}.{key}": value for key, value in options.items()}
        table_of("grpo_gsm8k_quality", {**specs()["grpo_gsm8k_quality"], **where})
    for beside in Path().glob("scores.sqlite?*"):
        beside.unlink()


def write_rows(name, rows, columns):
    lines = (json.dumps({new: row[old] for old, new in columns.items()}) + "\n" for row in rows)
    Path(name).write_text("".join(lines), "utf-8")


def write_rollouts():
    """Answers and judgements that the embedded policy samples."""
    many = {"policy_rollout_mapper.n": str(N), "policy_rollout_mapper_2.n": str(N)}
    table, _ = table_of("self_verified_vote", {"dataset_path": "arithmetic.jsonl", **many}, 5)
    pq.write_table(table.select(SAMPLED), "rollouts.parquet", **SMALL)


def write_solved(problems):
    """Responses of simulated solvers to the prompts of each recipe, and random judgements."""
    rows, rng = [], random.Random(0)
    for name in ("grpo_gsm8k", "gsm8k_qwen", "self_verify_dapo"):
        chats, _ = table_of(name, {"dataset_path": specs()[name]["dataset_path"]}, 1)
        for chat, problem in zip(chats["prompt"].to_pylist(), problems, strict=True):
            for response in problem["responses"]:
                text = response["text"]
                if name != "grpo_gsm8k":
                    text = re.sub(r"<answer>(.*?)</answer>", r"\\boxed{\1}", text)
                rows.append({**response, "prompt": chat, "response": text})
    write_responses(rows)
    judged, _ = table_of("self_verify_dapo", specs()["self_verify_dapo"], 5)
    for chat, task in zip(judged["prompt"].to_pylist(), judged["task"].to_pylist(), strict=True):
        for _ in range(N if task == "verify" else 0):
            text = rng.choice([r"So \boxed{Yes}", r"So \boxed{No}.", r"\boxed{no}", "I give up"])
            rows.append({"prompt": chat, "response": text, "finish_reason": "stop"})
    write_responses(rows)


def write_responses(rows):
    columns = {name: [row[name] for row in rows] for name in SAMPLED[:3]}
    pq.write_table(pa.table(columns), "solved.parquet", **SMALL)


def write_step(name, source):
    """Keep the rollouts and the recipe of a training step, and digests of what it trained on."""
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    rollouts = pq.read_table(source / "rollouts.parquet")
    pq.write_table(rollouts, folder / "rollouts.parquet", **SMALL)
    text = (source / "recipe.yaml").read_text("utf-8").replace(f"{source}/", "")
    (folder / "recipe.yaml").write_text(text, "utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        paths = {
            "dataset_path": str(folder / "rollouts.parquet"),
            "export_path": f"{scratch}/a.arrow",
        }
        run(load(folder / "recipe.yaml", paths))
        reasons = dropped(Path(scratch) / "a.run")
    write_golden(folder / "table.json", pq.read_table(source / "curated.parquet"), reasons)


def write_golden(path, table, reasons):
    golden = {**digest_of(table), "dropped": reasons}
    path.write_text(json.dumps(golden, indent=1) + "\n", "utf-8")


def main(words):
    if "inputs" in words:
        words.remove("inputs")
        write_inputs()
    for word in words or specs():
        name, _, path = word.partition("=")
        if path and not name.startswith("gsm8k_solutions"):
            write_step(name, Path(path).resolve())
        else:
            overrides = {"dataset_path": str(Path(path).resolve())} if path else specs()[name]
            write_golden(Path(f"{name}.json"), *table_of(name, overrides))


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    main(sys.argv[2:])
