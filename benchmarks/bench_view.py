"""What `rejuice view` takes for 100,000 rows, and how long a browser takes to open the page.

    python benchmarks/bench_view.py [FOLDER]

The rows are recorded responses of a real model, under as many prompts as are needed. They are so
many that gzip, which looks back 32 KiB, finds no response twice. FOLDER keeps the run and the page.
"""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import yaml
from measure import cost

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
ROWS = 100_000
RESPONSES = 8
REJUICE = (sys.executable, "-m", "rejuice.pipelines.cli")
QUESTION = (
    "Problem {number}: a farm with {number} ducks sells what is left of its eggs each day at the market "
    "for two dollars per egg, after three were eaten for breakfast and four were baked into muffins. "
    "How many dollars does it make each day?\n\nSolve it in a few short steps, and put your final "
    "answer within \\boxed{{}}."
)


def main() -> None:
    """Print the figures."""
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))


def measure(folder: Path) -> None:
    """Run the recipe, build the page, and open it."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = write_recipe(folder)
    with timed("run of the recipe"):
        subprocess.run([*REJUICE, "run", str(recipe), "-q"], check=True)
    page = folder / "page.html"
    built = cost(*REJUICE, "view", str(folder / "curated.parquet"), "--no-open", "-o", str(page))
    print(f"{'build':<28}{built.wall:7.2f} s, {built.cpu:.2f} CPU-s, {built.anonymous:,.0f} MiB")
    print(f"{'size':<28}{page.stat().st_size / 1e6:7.2f} MB")
    open_page(page)


def open_page(page: Path) -> None:
    """Open the page three times, then search and open a group."""
    import browser as browsers

    if not browsers.CHROMIUM.exists():
        print("no chromium: the page was not opened")
        return
    browser = browsers.Browser()
    try:
        seconds = sorted(browser.open(page) for _ in range(3))
        print(f"{'open, the median of three':<28}{seconds[1]:7.2f} s")
        browser.wait("return document.getElementById('matches').dataset.rows")
        with timed("search in all texts"):
            browser.run("document.getElementById('search').value = 'python code'; applyFilters()")
            browser.wait("return samples.words === 'python code'")
        with timed("filter"):
            browser.run("document.getElementById('search').value = ''; applyFilters()")
            browser.wait("return samples.words === ''")
        with timed("open a group"):
            browser.run("nextGroup(1)")
            browser.wait("return document.getElementById('group').dataset.group")
    finally:
        browser.close()


def write_recipe(folder: Path) -> Path:
    """A dataset of rollouts with their prompts, and a recipe over it."""
    recorded = pq.read_table(ROOT / "tests" / "data" / "real_responses" / "responses.parquet")
    texts = recorded["response"].to_pylist()
    tokens, finish = recorded["tokens"].to_pylist(), recorded["finish_reason"].to_pylist()
    with (folder / "rollouts.jsonl").open("w") as file:
        for row in range(ROWS):
            group, at = row // RESPONSES, row % len(texts)
            text = QUESTION.format(number=group)
            line = {
                "prompt_id": f"{group:032x}",
                "response_id": f"{row * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}",
                "prompt": [{"role": "user", "content": text}],
                "reference": str(9 + 9 * (group % 7)),
                "response": texts[at],
                "finish_reason": finish[at],
                "response_tokens": tokens[at],
            }
            file.write(f"{json.dumps(line)}\n")
    document = {
        "project_name": "bench_view",
        "dataset_path": str(folder / "rollouts.jsonl"),
        "export_path": str(folder / "curated.parquet"),
        "process": [
            "math_verify_mapper",
            {"format_reward_mapper": {"style": "boxed"}},
            "group_stats_mapper",
            {"pass_rate_filter": {"max": 0.99}},
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 0.5}}},
            "grpo_advantage_mapper",
        ],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder / "recipe.yaml"


@contextmanager
def timed(name: str):
    """Print how long something took."""
    start = time.perf_counter()
    yield
    print(f"{name:<28}{time.perf_counter() - start:7.2f} s")


if __name__ == "__main__":
    main()
