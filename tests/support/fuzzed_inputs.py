"""Inputs of the commands that are mutated at random, and what the commands make of them.

    fuzz = FuzzedInputs(folder)             # makes small runs, whose files are mutated
    for found in fuzz.draws(range(200)):    # in forks, so that a crash or a hang is seen
        assert found.outcome in RIGHT, found

A draw is decided by its number alone, so a fault is repeated by `fuzz.draws([number])`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml
from mutations import (
    YAML_VALUES,
    encoded,
    hostile_bytes,
    hostile_json,
    hostile_parquet,
    hostile_yaml,
)
from tiny_run import ROWS, run_tiny
from trained_run import write_trained

from rejuice.operators.registry import load_all
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.cli import main
from rejuice.pipelines.engine import finished_export

DONE, LINE = "done", "one line"
RIGHT = (DONE, LINE)
"""What may become of an input: all else is a fault."""
TRACEBACK, CRASH, HANG, UNCLEAR = "traceback", "crash", "hang", "unclear message"
CPU_S, WALL_S = 20, 120
"""How long an input may take: of the processor, and of the clock, if it waits for something."""
MEMORY = 6 << 30
"""Bytes of address space that inputs may take beside what the process has already."""
_LONGEST = 2_000
"""Characters of a message."""
_ROOT = Path(__file__).parents[2]
_KEPT = ("curated.run", "training", ".rejuice")
"""Folders of the case."""


class Found(NamedTuple):
    """What became of an input.

    Attributes:
        number: of the draw.
        target: what was mutated.
        outcome: one of `RIGHT`, or the fault.
        kind: what faults of one cause have in common; empty where there is none.
        details: the command, and what it printed.
    """

    number: int
    target: str
    outcome: str
    kind: str = ""
    details: str = ""


class FuzzedInputs:
    """A small run and a training run, of which a file is mutated in each draw.

    Args:
        folder: a new folder, which is best in memory.
    """

    def __init__(self, folder: Path) -> None:

        self._folder = folder
        self._case, self._stack, self._note = (folder / name for name in ("case", "stack", "note"))
        self._case.mkdir()
        run_tiny(self._case)
        self._tiny, self._export = self._case / "tiny.yaml", self._case / "curated.parquet"
        rows = pa.Table.from_pylist(list(ROWS))
        pq.write_table(rows, self._case / "data.parquet")
        with pa.ipc.new_file(self._case / "data.arrow", rows.schema) as file:
            file.write_table(rows)
        (one,) = open_stored(self._export).sets
        responses = one.final()["response_id"].to_pylist()[:2]
        (self._case / "labels.jsonl").write_text(
            "\n".join(json.dumps({"response_id": each, "label": "right"}) for each in responses)
        )
        (self._case / "training").mkdir()
        write_trained(self._case / "training" / "run", one.base(0).table(), [1, 2])
        files = [f for f in self._case.rglob("*") if f.is_file() and ".rejuice" not in f.parts]
        self._files = {file: file.read_bytes() for file in files if file.suffix != ".lock"}
        self._recipes = [file.read_text() for file in sorted((_ROOT / "recipes").glob("*.yaml"))]
        self._operators = load_all()[0]
        self._command = typer.main.get_command(main.app)

    def draws(self, numbers: Sequence[int]) -> Iterator[Found]:
        """What becomes of these draws, in processes that are forks of this one."""
        left = list(numbers)
        while left:
            for found in self._in_fork(left):
                left = left[left.index(found.number) + 1 :]
                yield found

    def _in_fork(self, numbers: Sequence[int]) -> Iterator[Found]:
        """What becomes of draws, until one of them ends the process."""
        ours, theirs = os.pipe()
        process = os.fork()
        if not process:
            os.close(ours)
            self._work(numbers, theirs)
        os.close(theirs)
        with open(ours, "rb") as results:
            for number in numbers:
                found = None
                if select.select([results], [], [], WALL_S)[0]:
                    with contextlib.suppress(EOFError, pickle.UnpicklingError):
                        found = pickle.load(results)
                else:
                    os.kill(process, signal.SIGABRT)
                if found is None:
                    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                    yield self._ended(number, status)
                    return
                yield found
        os.waitpid(process, 0)

    def _ended(self, number: int, status: int) -> Found:
        """What became of a draw that has ended its process."""
        text, note = (file.read_text(errors="replace") for file in (self._stack, self._note))
        ours = [line for line in text.splitlines() if str(_ROOT) in line and ".venv" not in line]
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        outcome = HANG if status in (-signal.SIGPROF, -signal.SIGABRT) else CRASH
        kind = f"{name} {ours[0].strip() if ours else '?'}"
        return Found(number, note.partition("\n")[0], outcome, kind, f"{note}\n{text[:3_000]}")

    # In the fork

    def _work(self, numbers: Sequence[int], pipe: int) -> None:
        """Do draws one after another, and end the process."""
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, -1))
            os.environ.update(HF_HUB_OFFLINE="1", COLUMNS="200")
            main._chosen = lambda _: self._command
            with open(pipe, "wb") as results, self._stack.open("w") as stack:
                faulthandler.enable(stack)
                signal.signal(signal.SIGPROF, signal.SIG_DFL)
                faulthandler.register(signal.SIGPROF, stack, chain=True)
                for number in numbers:
                    stack.truncate(0)
                    signal.setitimer(signal.ITIMER_PROF, CPU_S)
                    pickle.dump(self._attempt(number), results)
                    results.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(9)

    def _attempt(self, number: int) -> Found:
        rng = random.Random(number)
        self._restore()
        kinds = {draw: many for many, draws in self._draws().items() for draw in draws}
        (draw,) = rng.choices(list(kinds), list(kinds.values()))
        target = draw.__name__.strip("_").replace("_", " ")
        words = draw(rng)
        note = f"{target}\nrejuice {' '.join(map(repr, words))}"
        self._note.write_text(note, errors="replace")
        outcome, kind, text = self._call(words)
        return Found(number, target, outcome, kind, "" if outcome in RIGHT else f"{note}\n{text}")

    def _restore(self) -> None:
        """Undo what the draw before has done to the case."""
        for file in self._case.iterdir():
            if file.is_dir() and not file.is_symlink():
                if file.name not in _KEPT:
                    shutil.rmtree(file)
            elif file not in self._files:
                file.unlink()
        for file, content in self._files.items():
            if file.is_symlink() or not file.is_file() or file.read_bytes() != content:
                file.unlink(missing_ok=True)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)

    def _call(self, words: Sequence[str]) -> tuple[str, str, str]:
        """Run a command in this process: the outcome, its kind, and what was printed."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in "oe")
        sys.argv = ["rejuice", *words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main.main()
            except SystemExit as end:
                status = int(end.code or 0)
            except BaseException as error:
                return TRACEBACK, _kind(error), traceback.format_exc()[-6_000:]
        printed = err.buffer.getvalue().decode()
        if "Traceback (most recent" in printed:
            return TRACEBACK, f"printed: {printed.splitlines()[-1][:100]}", printed[-6_000:]
        lines = [x for x in printed.split("\n") if x and not x.startswith("rejuice: warning: ")]
        if status == 0 or (status == 1 and not lines):
            return DONE, "", ""
        if len(lines) != 1 or len(lines[0]) > _LONGEST or status not in (1, 2):
            return UNCLEAR, f"status {status}, {len(lines)} lines", printed[:6_000]
        return LINE, "", ""

    # Draws: each mutates a file of the case, and gives the words of a command that reads it.

    def _draws(self) -> dict[int, tuple[Callable[[random.Random], tuple[str, ...]], ...]]:
        """The draws, by how often each of them is taken."""
        return {
            42: (self._recipe,),
            14: (self._parquet,),
            10: (self._report, self._dataset),
            7: (self._option, self._training),
            6: (self._path, self._stored_recipe),
            4: (self._manifest, self._saved),
            1: (self._labels,),
        }

    def _recipe(self, rng: random.Random) -> tuple[str, ...]:
        kind = rng.random()
        if kind < 0.3:
            text = rng.choice(self._recipes)
        else:
            text = self._tiny.read_text() if kind < 0.5 else self._of_operator(rng)
        path = self._case / "mutated.yaml"
        path.write_bytes(encoded(hostile_yaml(rng, text)))
        return "explain" if rng.random() < 0.15 else "check", str(path)

    def _of_operator(self, rng: random.Random) -> str:
        """A recipe with an operator, of which some fields have values."""
        name = rng.choice(sorted(self._operators))
        fields = {}
        for field, info in self._operators[name].model_fields.items():
            value = info.get_default(call_default_factory=True)
            if isinstance(value, (str, int, float, bool)) and rng.random() < 0.5:
                fields[info.alias or field] = value
            elif info.is_required() or rng.random() < 0.1:
                some = ("prompt", 1, ["prompt"], {"accuracy": 1})
                fields[info.alias or field] = rng.choice(some)
        head = yaml.safe_load(self._tiny.read_text())
        steps = head["process"][: rng.randrange(len(head["process"]) + 1)]
        steps.insert(rng.randrange(len(steps) + 1), {name: fields})
        return yaml.safe_dump({**head, "process": steps}, sort_keys=False)

    def _option(self, rng: random.Random) -> tuple[str, ...]:
        """A field that is set on the command line."""
        keys = ["np", "export_path", "dataset_path", "text_keys", "columns", "train", "suffixes"]
        keys += ["max_rows_per_file", "executor_type", "train.steps", "train.gpu.nodes"]
        for name, kind in self._operators.items():
            keys += [f"{name}.{field}" for field in kind.model_fields]
        key = rng.choice(keys)
        step = key.partition(".")[0]
        document = yaml.safe_load(self._tiny.read_text())
        if step in self._operators and not any(step in each for each in document["process"]):
            document["process"].append({step: {}})
            self._tiny.write_text(yaml.safe_dump(document))
        return "check", str(self._tiny), f"--{key}={rng.choice(YAML_VALUES) or '1'}"

    def _report(self, rng: random.Random) -> tuple[str, ...]:
        file = self._case / "curated.run" / "report.json"
        file.write_bytes(encoded(hostile_json(rng, file.read_text())))
        return self._look(rng)

    def _manifest(self, rng: random.Random) -> tuple[str, ...]:
        file = self._case / "curated.run" / "manifest.json"
        text = hostile_json(rng, file.read_text())
        with contextlib.suppress(
            ValueError, LookupError, RecursionError, AttributeError, TypeError
        ):
            content = json.loads(text)  # With a checksum that is right again, mostly.
            if rng.random() < 0.7:
                del content["checksum"]
                text = json.dumps({**content, "checksum": finished_export._checksum(content)})
        file.write_bytes(encoded(text))
        if rng.random() < 0.3:
            return "cache", "ls", str(self._tiny)
        return "run", str(self._tiny), "--quiet", "--chunk_rows", "1"

    def _stored_recipe(self, rng: random.Random) -> tuple[str, ...]:
        file = self._case / "curated.run" / "recipe.yaml"
        file.write_bytes(encoded(hostile_yaml(rng, file.read_text())))
        return self._look(rng)

    def _parquet(self, rng: random.Random) -> tuple[str, ...]:
        decisions = self._case / "curated.run" / "06_pass_rate_filter" / "decisions.parquet"
        data = self._case / "data.parquet"
        (file,) = rng.choices((self._export, decisions, data), (2, 1, 2))
        file.write_bytes(hostile_parquet(rng, file.read_bytes()))
        if file == data or (file == self._export and rng.random() < 0.3):
            return "check", str(self._tiny), "--dataset_path", str(file)
        return self._look(rng)

    def _dataset(self, rng: random.Random) -> tuple[str, ...]:
        if rng.random() < 0.3:
            file = self._case / "data.arrow"
            file.write_bytes(hostile_bytes(rng, file.read_bytes()))
            return "check", str(self._tiny), "--dataset_path", str(file)
        file = self._case / "data.jsonl"
        lines = file.read_text().splitlines()
        at = rng.randrange(len(lines))
        lines[at] = hostile_json(rng, lines[at])
        file.write_bytes(encoded("\n".join(lines)))
        return "check", str(self._tiny)

    def _saved(self, rng: random.Random) -> tuple[str, ...]:
        """A dataset in a folder, with a list of its files."""
        folder = self._case / "saved"
        folder.mkdir()
        shutil.copy(self._case / "data.jsonl", folder)
        name, text = rng.choice(
            (
                ("state.json", '{"_data_files": [{"filename": "data.jsonl"}], "_split": null}'),
                ("dataset_dict.json", '{"splits": ["train", "test"]}'),
                ("_parts.json", '{"parts": [{"file": "part-00000.parquet", "rows": 3}]}'),
            )
        )
        (folder / name).write_bytes(encoded(hostile_json(rng, text)))
        return "check", str(self._tiny), "--dataset_path", str(folder)

    def _training(self, rng: random.Random) -> tuple[str, ...]:
        """A file of a training run."""
        folder = self._case / "training" / "run"
        mutations = {".parquet": hostile_parquet, ".yaml": _yaml_bytes, ".jsonl": _lines_bytes}
        files = [f for f in self._files if folder in f.parents and f.suffix in mutations]
        file = rng.choice(sorted(f for f in files if self._files[f]))
        file.write_bytes(mutations[file.suffix](rng, file.read_bytes()))
        step = str(folder / "steps" / "000002")
        commands = [
            ("report", str(folder)),
            ("report", step),
            ("explain", step, "row 1"),
            ("explain", str(folder)),
            ("diff", step, str(folder / "steps" / "000001")),
            ("whatif", step, "--pass_rate_filter.max", "0.5"),
        ]
        return ("view", step, "--no-open") if rng.random() < 0.05 else rng.choice(commands)

    def _labels(self, rng: random.Random) -> tuple[str, ...]:
        """Labels for `audit`."""
        file = self._case / "labels.jsonl"
        file.write_bytes(_lines_bytes(rng, file.read_bytes()))
        return "audit", str(self._export), "--labels", str(file)

    def _path(self, rng: random.Random) -> tuple[str, ...]:
        """Something else than a file, in place of one."""
        document = yaml.safe_load(self._tiny.read_text())
        odd = self._case / rng.choice(_NAMES)
        rng.choice(_ODD)(odd)
        place = rng.choice(("dataset_path", "dataset_path", "export_path", *_PLACES))
        command: tuple[str, ...] = ("check",)
        if place == "recipe":
            return "check", str(odd)
        if place == "dataset_path":
            document[place] = str(odd)
        elif place == "export_path":
            document[place] = str(odd)
            command = rng.choice((("check",), ("explain",), ("report",), ("view", "--no-open")))
        elif place == "custom_operator_paths":
            document[place] = [str(odd)]
        elif place == "pattern":
            document["dataset_path"] = str(self._case / "odd*")
        elif place == "folder":
            (self._case / "many").mkdir()
            if os.path.lexists(odd):
                odd.rename(self._case / "many" / odd.name)
            document["dataset_path"] = str(self._case / "many")
        elif place == "recording":
            recorded = {"engine": "recorded", "recorded": {"path": str(odd)}}
            document["process"][1:2] = [{"policy_rollout_mapper": recorded}]
        else:
            document["dataset_path"] = str(odd)
            document["generated_datasets"] = {str(odd): {"type": "arithmetic", "prompts": 2}}
        path = self._case / "mutated.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return command[0], str(path), *command[1:]

    def _look(self, rng: random.Random) -> tuple[str, ...]:
        """A command that looks at the run."""
        export, tiny = str(self._export), str(self._tiny)
        folder = str(self._case / "curated.run")
        commands = [
            ("report", export),
            ("report", folder),
            ("explain", export, "row 1"),
            ("explain", folder, "row 2"),
            ("explain", export),
            ("whatif", export, "--pass_rate_filter.max", "0.5"),
            ("diff", export, tiny),
            ("cache", "ls", export),
            ("cache", "prune", tiny, "--dry-run"),
            ("check", tiny, "--dataset_path", export),
        ]
        return ("view", export, "--no-open") if rng.random() < 0.03 else rng.choice(commands)


def _yaml_bytes(rng: random.Random, content: bytes) -> bytes:
    return encoded(hostile_yaml(rng, content.decode()))


def _lines_bytes(rng: random.Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = hostile_json(rng, lines[at])
    return encoded("\n".join([*lines, ""]))


def _kind(error: BaseException) -> str:
    """What exceptions of one cause have in common."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/tests/" not in f.filename and ".venv" not in f.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    last = frames[-1]
    return f"{type(error).__name__} {place} {re.sub(r'.*/', '', last.filename)}:{last.name}"


def _chain(path: Path) -> None:
    other = path.with_name(f"other{path.suffix}")
    path.symlink_to(other)
    other.symlink_to(path)


_NAMES = ("odd.jsonl", "odd.parquet", "odd.arrow", "odd.jsonl.gz", "odd", "odd\udcff.jsonl", "o\nd.jsonl", "x" * 250)  # fmt: skip
_PLACES = ("custom_operator_paths", "recipe", "pattern", "folder", "recording", "generated")
_ODD: tuple[Callable[[Path], Any], ...] = (
    os.mkfifo,
    Path.mkdir,
    _chain,
    Path.touch,
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/nowhere"),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/proc/self/mem"),
    lambda path: path.symlink_to("/"),
    lambda path: path.symlink_to("data.jsonl"),
    lambda path: path.write_bytes(b"\0" * 100),
    lambda path: path.write_bytes(b"PAR1" + b"\xff" * 8 + b"PAR1"),
    lambda path: path.write_bytes(b"ARROW1\0\0" + b"\xff" * 30),
    lambda _: None,
)
