"""A run whose samples and judgements are paid for: each one is a line in a log, for tests to count.

Its steps are of every kind: rows, rows that are sampled one by one, rows that a judge scores, whole
groups, and all rows.
"""

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import yaml

OPERATORS = """
import os, pathlib, random, signal, time
import pyarrow as pa
from rejuice.operators import Change, Mapper, ResumableOperator
from rejuice.operators.deduplicator.exact_deduplicator import ExactDeduplicator
from rejuice.operators.servers.judge import key_of, open_cache
from rejuice.pipelines.engine import dataset_step

decided = 0  # shards decided by this process
done = 0  # rows sampled by this process
pause = lambda: time.sleep(float(os.environ.get("PAUSE", "0")))

def log(path, line):
    with open(path, "a") as file:
        file.write(f"{time.time()} {line}\\n")

def answer(seed):
    draw = random.Random(seed)  # Each response occurs twice, for a deduplicator to find.
    return f"{seed}: " + " ".join(draw.choices(["so", "then", "thus", "two", "ten"], k=150))

class SampleMapper(ResumableOperator):
    log: str
    reasons = {"refused": "the policy gives no answer"}
    def reads(self): return ("prompt_id", "prompt")
    def writes(self): return ("response_id", "response")
    def apply(self, table): return self._change(*table.select(self.reads()).to_pydict().values())
    def process_rows(self, table, rows):
        global done
        ids, prompts = table.select(self.reads()).to_pydict().values()
        for row in rows:
            if str(done) == os.environ.get("DIE_AFTER"): os.kill(os.getpid(), signal.SIGKILL)
            pause()
            yield row, self._change(ids[row:row + 1], prompts[row:row + 1])
            done += 1
            log(self.log, ids[row])  # It is kept now.
    def _change(self, ids, prompts):
        refused = [prompt.endswith("3?") for prompt in prompts]
        parents = [row for row, no in enumerate(refused) if not no for _ in range(4)]
        numbers = [at % 4 for at in range(len(parents))]
        response_ids = [f"{ids[row]}-{k}" for row, k in zip(parents, numbers)]
        responses = [answer(f"{ids[row]} {k // 2}") for row, k in zip(parents, numbers)]
        return Change(
            {"response_id": pa.array(response_ids, pa.string()), "response": pa.array(responses, pa.string())},
            pa.array(["refused" if no else None for no in refused], pa.string()),
            pa.array(parents, pa.int64()).to_numpy(),
        )

class JudgeMapper(Mapper):
    cache: str
    log: str
    gil_bound = True
    def reads(self): return ("response",)
    def writes(self): return ("reward",)
    def map(self, table):
        cache, scores = open_cache(pathlib.Path(self.cache)), []
        try:
            for response in table["response"].to_pylist():
                key = key_of({"text": response}, "judge")
                score = cache.get(key)
                if score is None:
                    pause()
                    score = f"{len(response) % 2}.{sum(response.encode()) % 7}"
                    cache.put(key, score)
                    log(self.log, response)
                scores.append(float(score))
        finally:
            cache.close()
        return {"reward": pa.array(scores, pa.float64())}

class RepeatDeduplicator(ExactDeduplicator):
    def reads(self):
        dataset_step.SHARD_BYTES = int(os.environ.get("SHARD_BYTES", dataset_step.SHARD_BYTES))
        return super().reads()
    def apply(self, table):
        global decided
        if str(decided) == os.environ.get("DIE_DECIDING"): os.kill(os.getpid(), signal.SIGKILL)
        decided += 1
        return super().apply(table)
"""
PROCESS = [
    {"length_filter": {"column": "prompt", "min": 3}},
    {"sample_mapper": {}},
    {"judge_mapper": {}},
    {"reward_std_filter": {"min": 0.0}},
    {"grpo_advantage_mapper": {}},
    {"repeat_deduplicator": {}},
    {"length_filter": {"column": "response", "min": 1}},
]


def is_refused(prompt_id: str) -> bool:
    """Whether the policy gives no answer to a prompt: where a run is stopped before the end of its
    chunk, the next one asks again."""
    return prompt_id.endswith("3")


class Paid(NamedTuple):
    """A sample or a judgement.

    Attributes:
        at: when it was paid for, in seconds since the epoch.
        what: the id of the prompt, or the response.
    """

    at: float
    what: str


class PaidRun:
    """A recipe in a folder.

    Args:
        folder: everything is in here; what the run writes is in its folder `out`.
        prompts: how many rows the dataset has.
        chunk_rows: rows in a chunk.

    Attributes:
        arguments: of the command `rejuice`.
        out: what the run writes, and the judge's cache.
        export: the export.
    """

    def __init__(self, folder: Path, *, prompts: int = 24, chunk_rows: int = 8) -> None:
        self.folder, self.out = folder, folder / "out"
        self.export = self.out / "curated.parquet"
        self._samples, self._judgements = folder / "samples.log", folder / "judgements.log"
        folder.mkdir(exist_ok=True)
        (folder / "paid.py").write_text(OPERATORS)
        rows = [{"prompt_id": f"p{n:04d}", "prompt": f"What is {n}?"} for n in range(prompts)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        process = [{name: dict(fields)} for step in PROCESS for name, fields in step.items()]
        process[1]["sample_mapper"]["log"] = str(self._samples)
        process[2]["judge_mapper"] |= {
            "log": str(self._judgements), "cache": str(self.out / "judge" / "scores")
        }  # fmt: skip
        recipe = folder / "recipe.yaml"
        head = {
            "dataset_path": str(folder / "prompts.jsonl"),
            "export_path": str(self.export),
            "custom_operator_paths": [str(folder / "paid.py")],
        }
        recipe.write_text(yaml.safe_dump({**head, "process": process}, sort_keys=False))
        self.arguments = ["run", str(recipe), "--chunk_rows", str(chunk_rows)]

    def log(self) -> tuple[list[Paid], list[Paid]]:
        """Samples and judgements since the last call."""
        found = []
        for log in (self._samples, self._judgements):
            lines = log.read_text().splitlines() if log.exists() else ()
            parts = [line.partition(" ") for line in lines]
            found.append([Paid(float(at), what) for at, _, what in parts])
            log.unlink(missing_ok=True)
        return found[0], found[1]

    def paid(self) -> tuple[Counter[str], Counter[str]]:
        """How often each sample and each judgement was paid for since the last call."""
        samples, judgements = self.log()
        return Counter(each.what for each in samples), Counter(each.what for each in judgements)

    def result(self) -> dict[str, object]:
        """What the run is for: the bytes of its export, each decision, and each step's counts."""
        folder = self.export.with_suffix(".run")
        decisions = {
            str(path.parent.relative_to(folder)): _table(path).to_pylist()
            for path in folder.glob("*/decisions*")
        }
        report = json.loads((folder / "report.json").read_text())
        steps = [(s["step"], s["rows_in"], s["rows_out"], s["dropped"]) for s in report["steps"]]
        return {"export": self.export.read_bytes(), "decisions": decisions, "steps": steps}


def _table(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
