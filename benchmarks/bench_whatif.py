"""What `rejuice whatif` and `explain` take over many stored responses: the whole command, in turns.

    python benchmarks/bench_whatif.py [ROWS]

ROWS (1,000,000) recorded responses, 8 to a prompt, are run once, which is not part of the figures.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from measure import cost

ROWS = 1_000_000
RESPONSES = 8
REJUICE = (sys.executable, "-m", "rejuice.pipelines.cli")
WORDS = ["so", "we", "add", "the", "tens", "and", "then", "carry", "what", "is", "left", "over"]
PROCESS = [
    {"prompt_template_mapper": {}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    {"math_verify_mapper": {}},
    {"format_reward_mapper": {"style": "boxed"}},
    {"group_stats_mapper": {}},
    {"pass_rate_filter": {"max": 0.9}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 0.3}}},
    {"grpo_advantage_mapper": {}},
]
CHANGES = {
    "a weight": ("--reward_sum_mapper.weights.format", "1.0"),
    "a gate": ("--reward_sum_mapper.gates", '{"format": "only_correct"}'),
    "a bound of a filter": ("--pass_rate_filter.max", "0.6"),
    "the normalisation": ("--grpo_advantage_mapper.normalise", "none"),
    "the format, by its regular expression": ("--format_reward_mapper.style", "think_answer"),
    "the verifier": ("--math_verify_mapper.worked_out", "true"),
}


def main() -> None:
    """Print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), rows)


def measure(folder: Path, rows: int) -> None:
    """Make the run, then time the commands."""
    recipe = folder / "recipe.yaml"
    write_data(folder / "data.jsonl", rows // RESPONSES)
    paths = ("dataset_path", "data.jsonl"), ("export_path", "out/curated.parquet")
    head = {**{name: str(folder / path) for name, path in paths}, "np": 2}
    recipe.write_text(yaml.safe_dump({**head, "process": PROCESS}))
    subprocess.run([*REJUICE, "run", str(recipe), "-q"], check=True)
    print(f"| of {rows:,} responses | wall | CPU | memory |")
    print("|---|---|---|---|")
    for name, change in CHANGES.items():
        report(f"`whatif` with another value of {name}", "whatif", recipe, *change)
    report("`explain` of a row in the middle", "explain", recipe, f"row {rows // RESPONSES // 2}")


def report(name: str, *words: object) -> None:
    """Run a command three times; the median by wall time."""
    found = sorted((cost(*REJUICE, *map(str, words)) for _ in range(3)), key=lambda c: c.wall)[1]
    print(f"| {name} | {found.wall:.1f} s | {found.cpu:.1f} s | {found.anonymous:,.0f} MiB |", flush=True)  # fmt: skip


def write_data(path: Path, prompts: int) -> None:
    """Additions, with right and wrong answers in a box or not."""
    draw = random.Random(0)
    with path.open("w") as file:
        for first in range(prompts):
            second = draw.randrange(1_000)
            responses = [_response(draw, first + second) for _ in range(RESPONSES)]
            row = {"question": f"What is {first} + {second}?", "answer": str(first + second)}
            file.write(f"{json.dumps({**row, 'responses': responses})}\n")


def _response(draw: random.Random, answer: int) -> str:
    found = answer + (draw.random() < 0.5)
    ending = rf"\boxed{{{found}}}" if draw.random() < 0.5 else f"The answer is {found}."
    return f"{' '.join(draw.choices(WORDS, k=60))} {ending}"


if __name__ == "__main__":
    main()
