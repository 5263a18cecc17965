"""Whether recipes, verdicts, training steps and generated files are what tests/data/parity.json says.

    python tests/parity.py [--part PART ...] [--ways np1,np2,ray,store] [--write]

Prints what is equal and a line for each difference, and fails where there is one. `--write` records
what is found: in a commit of its own, after each difference was read. What needs the shared data is
left out where that is not beside the checkout.

recipes   each shipped recipe with recorded responses: rows of the export as values, decisions, and
          the report without seconds, places and what was found in the cache. With one worker, with
          two and small chunks, on Ray, and in an object store: each way must give what is recorded.
          Of `mixed_tasks` and `flow_*`, which ask a server or sample, other tests know the results;
          what the embedded policy samples depends on the processor, so it is read from a file.
verdicts  verdict and extracted answer of all cases of the shared data, also as `worked_out` has them
steps     keys, rewards and advantages that three training steps put into TransferQueue
texts     `rejuice ops --schema`, `rejuice ops --markdown`, and each recipe as it is resolved
code      figures of benchmarks/bench_code_paths.py, for information: they never fail
"""

import argparse
import base64
import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))

from recorded_recipes import OVERRIDES, RECIPES, ROOT, TABLES
from verdict_letters import VERDICTS

from rejuice.pipelines.dataset.files import run_folder
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.dataset.write import exported_rows
from rejuice.pipelines.engine.report import read_decisions
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

BASELINE = ROOT / "tests" / "data" / "parity.json"
SHARED = ROOT.parent / "shared" / "data"
WAYS = ("np1", "np2", "ray", "store")
NEED_SHARED = {"gsm8k_solutions"}
CHUNK_ROWS = {"gsm8k_solutions": 200}
"""For `np2` and `ray`: several chunks of each recipe, which has 12 prompts where it is not here."""
OF_THE_MACHINE = {"recipe", "dataset_path", "export_path", "key", "cache", "chunk_rows"}
OF_THE_MACHINE |= {"seconds", "cached", "retried", "reasons"}
"""Fields of a report that are left out."""
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
CREDIT = ("rm_scores", "advantages", "response_mask", "loss_mask")
SLUGS = {slug: letter for letter, slug in VERDICTS.items() if slug}

Found = dict[str, Any]
Compare = Callable[[str, Found, str], None]  # what it is of, what was found, by which way


def digest(value: Any) -> str:
    """A short hash of a value, of which floats are compared to the last bit."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def flat(found: Found, at: str = "") -> dict[str, Any]:
    """Nested values by their path."""
    paths = dict[str, Any]()
    for key, value in found.items():
        path = f"{at}: {key}" if at else key
        paths |= flat(value, path) if isinstance(value, dict) else {path: value}
    return paths


# --- recipes ---------------------------------------------------------------------------


def recipes(compare: Compare, ways: Sequence[str]) -> None:
    names = {path.stem for path in RECIPES.glob("*.yaml")}
    shipped = {name: each for name, each in OVERRIDES.items() if name in names}
    solutions = SHARED / "gsm8k" / "model_solutions.jsonl"
    if solutions.is_file():
        shipped["gsm8k_solutions"] = {"dataset_path": str(solutions)}
    for way in ways:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            shutil.copytree(TABLES, folder, dirs_exist_ok=True)
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.chdir(folder)
            options = _options(way, stack, patch)
            for name, overrides in shipped.items():
                compare(name, _run(name, overrides, way, options), way)


def _options(way: str, stack: ExitStack, patch: pytest.MonkeyPatch) -> Found:
    """Arguments of `run`, with what they need."""
    if way == "ray":
        from rejuice.pipelines.ray_session import connected_to_ray

        stack.enter_context(connected_to_ray("local", num_cpus=2))
        return {"engine": "ray", "ray_address": "local"}
    if way == "store":
        from object_store import ENVIRONMENT, object_store

        address = stack.enter_context(object_store("parity"))
        for key, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(key, value)
        return {"cache": to_path("s3://parity/cache")}
    return {}


def _run(name: str, overrides: dict[str, str], way: str, options: Found) -> Found:
    export = f"{'s3://parity/' if way == 'store' else ''}{name}/curated.parquet"
    np = "1" if way in ("np1", "store") else "2"
    recipe = load(RECIPES / f"{name}.yaml", {**overrides, "export_path": export, "np": np})
    chunk_rows = CHUNK_ROWS.get(name, 5) if way in ("np2", "ray") else None
    report = run(recipe, chunk_rows=chunk_rows, **options).model_dump(mode="json")
    table = exported_rows(to_path(export))
    rows = {
        field.name: f"{field.type} {digest(table[field.name].to_pylist())}"
        for field in table.schema
    }
    lines = enumerate(report.pop("steps"), 1)
    steps = {f"{at:02d} {line['step']}": _reported(line) for at, line in lines}
    return {
        "columns": digest(table.column_names),
        "rows": rows,
        "decisions": digest(read_decisions(run_folder(to_path(export))).to_pylist()),
        "report": {"whole run": _reported(report), **steps},
    }


def _reported(fields: Found) -> str:
    """The digest of a report's fields; a mean of zero has either sign, as chunks are added up."""
    kept = {name: value for name, value in fields.items() if name not in OF_THE_MACHINE}
    return digest(re.sub(r"-0\.0(?!\d)", "0.0", json.dumps(kept, sort_keys=True)))


# --- verdicts --------------------------------------------------------------------------


def verdicts(compare: Compare, _: Sequence[str]) -> None:
    from rejuice.operators.verifier import verify_batch

    for title, pairs in _cases():
        for worked_out in (False, True):
            graded = verify_batch(*zip(*pairs, strict=True), worked_out=worked_out)
            rows = [f"{SLUGS[slug]}{digest(answer)[:2]}" for slug, answer in graded]
            # The letters, then two characters of each answer's hash: equal ones compress.
            text = "".join(row[0] for row in rows) + "".join(row[1:] for row in rows)
            packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
            whole = digest([list(each) for each in graded])
            title_of_way = f"{title}, worked_out" if worked_out else title
            compare(title_of_way, {"cases": len(rows), "all": whole, "rows": packed}, "")


def _cases() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Responses with their references, by where they are from."""
    for name, response, reference in (
        ("verifier_cases", "prediction", "gold"),
        ("answer_pairs", "answer", "gold"),
        ("answer_types", "response", "reference"),
    ):
        yield name, [(row[response], row[reference]) for row in _rows(name)]
    solutions = [
        (row[model]["solution"], row["ground_truth"].rsplit("A:", 1)[1].strip())
        for row in _rows("gsm8k/model_solutions")
        for model in MODELS
    ]
    yield "gsm8k/model_solutions", solutions
    for name in ("gsm8k/train", "gsm8k/test"):
        yield name, [(row["answer"], row["answer"].rpartition("#### ")[2]) for row in _rows(name)]


def _rows(name: str) -> list[Any]:
    text = (SHARED / f"{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def changed_rows(before: Found, now: Found) -> Iterator[str]:
    """A line for each row that has another verdict or answer; numbers begin with 1."""
    if before["cases"] != now["cases"]:
        yield f"{before['cases']} -> {now['cases']} cases"
        return
    old, new = (zlib.decompress(base64.b64decode(each["rows"])).decode() for each in (before, now))
    cases = now["cases"]
    for row in range(cases):
        answer = slice(cases + 2 * row, cases + 2 * row + 2)
        if old[row] != new[row]:
            yield f"row {row + 1}: {VERDICTS[old[row]]} -> {VERDICTS[new[row]]}"
        elif old[answer] != new[answer]:
            yield f"row {row + 1}: {VERDICTS[new[row]]}, another extracted answer"


# --- training steps --------------------------------------------------------------------

AFTER_SAMPLING = [
    "exact_deduplicator",
    "math_verify_mapper",
    "format_reward_mapper",
    "group_stats_mapper",
    {"pass_rate_filter": {"min": 0.01, "max": 0.99}},
    {"diversity_reward_mapper": {"measure": "centroid"}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0, "diversity": 0.5}}},
    "grpo_advantage_mapper",
]


def steps(compare: Compare, _: Sequence[str]) -> None:
    import pyarrow.parquet as pq
    from fake_queue import FakeQueue
    from training_stage import Stage, estimated

    rows = [json.loads(line) for line in (TABLES / "arithmetic.jsonl").read_text().splitlines()]
    rows = [{**row, "answer": row["answer"].rpartition("#### ")[2]} for row in rows]
    recorded = dict[str, list[str]]()
    for row in pq.read_table(TABLES / "rollouts.parquet").to_pylist():
        recorded.setdefault(row["prompt"][-1]["content"], []).append(row["response"])
    queue = FakeQueue()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("VERL_PLATFORM", "cpu")
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "rejuice.trainer.cpu.platform")
        queue.install(patch)
        stage = Stage(Path(folder) / "run", queue, AFTER_SAMPLING, rows=rows, prompts=12, n=8)
        for step in (1, 2, 3):
            asked = range(4 * step - 4, 4 * step)
            stage.answer({n: recorded[rows[n]["question"]] for n in asked}, step=step)
            batch, _ = stage.sample(step=step, groups=4)
            estimated(batch)
            data = queue.kv_batch_get(batch.keys, "train", CREDIT)
            found = {"keys": f"{len(batch.keys)} {digest(list(batch.keys))}"}
            for name in CREDIT:
                values = [[f"{value:.6g}" for value in row.tolist()] for row in data[name].unbind()]
                found[name] = digest(values)
            left = sorted(stage.queue.partitions["train"])
            dropped = {" ".join(key): n for key, n in stage.dropped(step).items()}
            compare(f"step {step}", {**found, "in the queue": digest(left), "dropped": dropped}, "")
        queue.close()


# --- generated texts, and figures of the code ------------------------------------------


def texts(compare: Compare, _: Sequence[str]) -> None:
    schema = json.loads(_python("-m", "rejuice.pipelines.cli", "ops", "--schema"))
    parts = {**schema.pop("properties"), **schema.pop("$defs", {})}
    found = {name: digest(part) for name, part in parts.items()}
    compare("schema", {**found, "the rest": digest(schema)}, "")
    page = _python("-m", "rejuice.pipelines.cli", "ops", "--markdown")
    sections = re.split(r"^#+ ", page, flags=re.MULTILINE)
    compare("ops", {each.split("\n", 1)[0]: digest(each) for each in sections if each}, "")
    recipes = {path.stem: digest(load(path).resolved()) for path in sorted(RECIPES.glob("*.yaml"))}
    compare("resolved recipe", recipes, "")


def code(compare: Compare, _: Sequence[str]) -> None:
    lines = _python("benchmarks/bench_code_paths.py").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    for name, *numbers in rows:
        compare(name, dict(zip(head[1:], numbers, strict=True)), "")


def _python(*words: str) -> str:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


# --- comparing -------------------------------------------------------------------------

PARTS = {each.__name__: each for each in (texts, verdicts, steps, recipes, code)}


class Baseline:
    """What is recorded, and how much was found to differ from it."""

    def __init__(self, write: bool) -> None:
        self.write = write
        self.recorded: Found = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
        self.differences = 0
        self.seen = set[str]()

    def compare(self, part: str, name: str, found: Found, way: str) -> None:
        """Compare what was found of one thing, or record it; another way is compared with that."""
        title = ", ".join(filter(None, (f"{part}: {name}", way)))
        of_part = self.recorded.setdefault(part, {})
        self.seen.add(f"{part}: {name}")
        if self.write and way in ("", WAYS[0]):
            of_part[name] = found
            print(f"{title}: recorded", flush=True)
            return
        before = of_part.get(name, {})
        lines = list(_differences(before, found))
        if part == "code":
            print(f"{title}: {found}" + (f"; recorded: {before}" if lines else ""), flush=True)
            return
        print(*(f"{title}: {line}" for line in lines or ["equal"]), sep="\n", flush=True)
        self.differences += len(lines)

    def check_all_were_seen(self, part: str) -> None:
        """What is recorded and was not compared is gone; without the shared data, what needs it."""
        for name in [*self.recorded.get(part, {})]:
            if f"{part}: {name}" in self.seen or (name in NEED_SHARED and not SHARED.is_dir()):
                continue
            if self.write:
                del self.recorded[part][name]
            else:
                print(f"{part}: {name}: gone")
                self.differences += 1


def _differences(before: Found, found: Found) -> Iterator[str]:
    if before.get("rows") and isinstance(before["rows"], str):  # verdicts
        if before != found:
            yield from list(changed_rows(before, found)) or ["another extracted answer"]
        return
    old, new = flat(before), flat(found)
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            yield f"{key}: {old.get(key, 'not recorded')} -> {new.get(key, 'gone')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--part", nargs="*", choices=PARTS, default=[*PARTS])
    parser.add_argument("--ways", default=",".join(WAYS), help="of recipes, by default all four")
    parser.add_argument("--write", action="store_true", help="record what is found")
    given = parser.parse_args()
    ways = given.ways.split(",")
    if unknown := {*ways} - {*WAYS}:
        parser.error(f"--ways: {', '.join(sorted(unknown))} is none of {', '.join(WAYS)}")
    for name in ("rejuice", "werkzeug"):
        logging.getLogger(name).setLevel(logging.ERROR)
    baseline = Baseline(given.write)
    for part in given.part:
        if part in ("verdicts", "recipes") and not SHARED.is_dir():
            print(f"{part}: left out what needs {SHARED}, which is not there")
            if part == "verdicts":
                continue
        PARTS[part](partial(baseline.compare, part), ways)
        baseline.check_all_were_seen(part)
    if given.write:
        BASELINE.write_text(json.dumps(baseline.recorded, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{baseline.differences} differences" if baseline.differences else "No difference.")
    sys.exit(bool(baseline.differences))


if __name__ == "__main__":
    main()
