"""Write `data/kept`: what runs of one version leave in their cache folders, and their tables.

    cd CHECKOUT && .venv/bin/python write_kept.py DATA [CASE ...]

CHECKOUT is the version whose samples are to be found by later ones. What is there now was written
by version 0.4.0, before its modules were moved into packages; `own` by its last state in which files
of rejuice were in the key of a user's operator, commit 22504f3. Do not write it again with a later
version: a test against files of the same version shows nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path.cwd() / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from digests import SMALL
from fake_judge import FakeJudge
from fake_server import FakeServer, Trouble

from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

ASK_AGAIN_S = 0.05
KILLED_AFTER = 3


def curate(overrides=None):
    """Run the recipe of this folder and give its table."""
    shutil.rmtree("out", ignore_errors=True)
    run(load(Path("recipe.yaml"), overrides))
    return pq.read_table("out/curated.parquet")


def server_of(url, step="policy_rollout_mapper", field="openai"):
    """Overrides that point a step to a server that runs."""
    return {f"{step}.{field}.base_url": url, f"{step}.{field}.patience_s": "5"}


def refused():
    """All prompts of the recipe answered, but the second, which the server refuses."""
    with FakeServer() as server:
        seeds = [row["seed"] for row in curate(server_of(server.url))["sampling"].to_pylist()]
    second = list(dict.fromkeys(seeds))[1]
    with FakeServer({second: [Trouble.REFUSED] * 9}) as server:
        return curate(server_of(server.url))


def served(token_ids):
    """All prompts of the recipe answered, with token ids or without."""
    with FakeServer(token_ids=token_ids) as server:
        return curate(server_of(server.url))


def killed():
    """A run that was killed after some prompts; the table is that of a whole run."""
    with FakeServer() as server:
        table = curate(server_of(server.url))
    shutil.rmtree("out")
    with FakeServer(think_s=0.3) as server:
        words = [f"--{key}={value}" for key, value in server_of(server.url).items()]
        command = [Path(sys.executable).parent / "rejuice", "run", "recipe.yaml", *words]
        child = subprocess.Popen(command)
        while server.answered.total() < KILLED_AFTER:
            assert child.poll() is None
            time.sleep(ASK_AGAIN_S)
        time.sleep(ASK_AGAIN_S)  # The answer is written to the journal.
        child.send_signal(signal.SIGKILL)
        child.wait()
    return table


def scored(answers):
    """Every response scored."""
    with FakeJudge(says=answers) as server:
        return curate(server_of(server.url, "llm_quality_reward_mapper", "server"))


def stand_in():
    """Sampled by an engine that stands where vLLM's does: only the keys are of interest."""
    from rejuice.operators.sampling import engines
    from rejuice.operators.sampling.protocol import Group, Sample

    class Engine:
        def sample(self, prompts, settings):
            for index, prompt in enumerate(prompts):
                texts = [f"{prompt.seed}:{k}" for k in range(settings.n)]
                samples = tuple(Sample(text, (4, 5), (-0.5, -0.25), "stop") for text in texts)
                yield index, Group("example/policy", 0, prompt.seed, (1, 2), samples)

        def close(self):
            pass

    engines._vllm = lambda spec, options: Engine()
    return curate()


WIT = {17 * k + 3: [f'{{"clarity": {1 + k % 5}, "wit": {5 - k % 4}}}'] for k in range(6)}


def own():
    """All prompts answered, and what is thought of each response, which is on file only here."""
    Path("opinions.txt").write_text("good fair none")
    try:
        with FakeServer() as server:
            return curate(server_of(server.url, "greeted_rollout_mapper"))
    finally:
        Path("opinions.txt").unlink()


CASES = {
    "transformers": curate,
    "openai_completions": refused,
    "openai_chat": lambda: served(False),
    "openai_generate": lambda: served(True),
    "recorded": curate,
    "vllm": stand_in,
    "killed": killed,
    "own": own,
    "judge": lambda: scored({}),
    "judge_expected": lambda: scored(WIT),
}


def write(folder, tables):
    """Run the case of a folder and keep what a later run may find."""
    os.chdir(folder)
    shutil.rmtree("kept", ignore_errors=True)
    Path("scores.sqlite").unlink(missing_ok=True)
    table = tables()
    pq.write_table(table, "table.parquet", **SMALL)
    # Once all of a cache, with what this version may not find but must not stumble over; and
    # scores are found by the answers alone.
    pattern = "*" if folder.name == "recorded" else "kept-*"
    for each in Path("out/.rejuice").glob(pattern):
        if not Path("scores.sqlite").exists():
            shutil.copytree(each, Path("kept") / each.name, ignore=shutil.ignore_patterns("*.lock"))
    shutil.rmtree("out")
    for lock in Path().glob("scores.sqlite?*"):
        lock.unlink()


if __name__ == "__main__":
    data = Path(sys.argv[1]).resolve()
    for name in sys.argv[2:] or CASES:
        write(data / name, CASES[name])
