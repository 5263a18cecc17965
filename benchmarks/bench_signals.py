"""End runs by SIGTERM or Ctrl-C at moments from 0.3 s after their start to their end.

    python benchmarks/bench_signals.py --moments 10
    python benchmarks/bench_signals.py --command train --signal INT --moments 4

Of each: the seconds until the command has ended, its exit status, what it printed, which processes
are left, and whether the same command, given again, finishes without making anything again that
was saved. Ctrl-C goes to the process group, as from a terminal; SIGTERM goes to the command alone.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import psutil
import yaml
from fake_server import FakeServer
from paid_run import PaidRun, is_refused

from rejuice.trainer import metrics
from rejuice.trainer.launch import checkpoints
from rejuice.trainer.run import RUN_VARIABLE

MARK = "REJUICE_BENCH_SIGNALS"
LONGEST_S = 120
COMMAND = [sys.executable, "-m", "rejuice.pipelines.cli"]
STEPS = 40


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        at: seconds from its start to the signal; None: none was sent.
        seconds: from the signal, or else the start, to its end.
        status: its exit status, or minus the signal that killed it.
        errors: what it wrote to stderr.
        left: processes that it left, as their command lines.
    """

    at: float | None
    seconds: float
    status: int
    errors: str
    left: list[str]


class Run:
    """`rejuice run`, with samples that are counted."""

    options: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self._run = PaidRun(folder)
        self.environment = {"PAUSE": "0.02"}

    def words(self, *, again: bool) -> list[str]:
        return [*self._run.arguments, *self.options]

    def clear(self) -> None:
        shutil.rmtree(self._run.out, ignore_errors=True)
        self._run.paid()

    def saved(self) -> object:
        return None

    def faults(self, _: object) -> list[str]:
        """What was lost, once the run has finished.

        A refused prompt is asked again if its chunk was unfinished; each chunk has one at most.
        """
        again = [what for each in self._run.paid() for what in (each - Counter([*each])).elements()]
        allowed = len(again) == 1 and is_refused(again[0])
        return [f"made again: {again}"] if again and not allowed else []

    def close(self) -> None:
        pass


class RunByWorkers(Run):
    """The same by two worker processes."""

    options = ("--np", "2")


class RunFromServer:
    """`rejuice run`, with samples of a server, which counts them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._out, self._recipe = folder / "out", folder / "recipe.yaml"
        self._server = FakeServer(think_s=0.02)
        rows = "".join(f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(1500))
        (folder / "data.jsonl").write_text(rows)
        server = {"api": "chat", "base_url": self._server.url, "concurrency": 16}
        policy = {"engine": "openai", "model": "m", "n": 4, "max_tokens": 9, "openai": server}
        document = {
            "dataset_path": str(folder / "data.jsonl"),
            "export_path": str(self._out / "out.parquet"),
            "process": [{"prompt_template_mapper": {}}, {"policy_rollout_mapper": policy}],
        }
        self._recipe.write_text(yaml.safe_dump(document, sort_keys=False))
        self.environment = dict[str, str]()

    def words(self, *, again: bool) -> list[str]:
        return ["run", str(self._recipe)]

    def clear(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        self._server.answered.clear()
        self._server.taken.clear()

    def saved(self) -> set[int]:
        """The prompts whose answers the run is known to have had, and not to have been sent yet."""
        return {*self._server.taken}

    def faults(self, taken: set[int]) -> list[str]:
        again = {seed for seed, times in self._server.answered.items() if times > 1}
        lost = len(again & taken)
        return [f"{lost} answers lost that it had, of {len(again)} asked for again"] * bool(lost)

    def close(self) -> None:
        self._server.__exit__()


class Train:
    """`rejuice train` of a tiny policy on CPU cores."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._recipe = folder / "run", folder / "recipe.yaml"
        rows = [
            {"question": f"Ivy has {n} pears and eats 8. How many are left?", "answer": str(n - 8)}
            for n in range(12, 12 + 4 * STEPS)
        ]
        data = folder / "data.jsonl"
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        policy = {"engine": "transformers", "model": "embedded", "n": 4, "max_tokens": 48}
        document = {
            "dataset_path": str(data),
            "export_path": str(folder / "out.parquet"),
            "process": [
                {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
                {"policy_rollout_mapper": policy},
                {"math_verify_mapper": {}},
                {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
                {"grpo_advantage_mapper": {}},
            ],
            "train": {
                "steps": STEPS,
                "prompts_per_step": 4,
                "max_prompt_tokens": 128,
                "save_every": 15,
                "loggers": [],
            },
        }
        self._recipe.write_text(yaml.safe_dump(document, sort_keys=False))
        self.environment = dict[str, str]()

    def words(self, *, again: bool) -> list[str]:
        words = ["train", str(self._recipe), "--output", str(self.folder)]
        return [*words, "--resume"] if again and (self.folder / "recipe.yaml").exists() else words

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def saved(self) -> dict[Path, int]:
        """The files of the steps that are saved, and when they were written."""
        last = checkpoints.last(self.folder) or 0
        folders = [self.folder / "steps" / f"{step:06d}" for step in range(1, last + 1)]
        return {
            file: file.stat().st_mtime_ns for each in folders for file in each.glob("*.parquet")
        }

    def faults(self, saved: dict[Path, int]) -> list[str]:
        trained = [point.step for point in metrics.read(self.folder) if point.trained]
        faults = [] if trained == [*range(1, STEPS + 1)] else [f"steps {trained}"]
        again = [path for path, when in saved.items() if path.stat().st_mtime_ns != when]
        return [*faults, f"made again: {again}"] if again else faults

    def close(self) -> None:
        pass


class ViewLive(Train):
    """`rejuice view --live` of a run that trains until the page is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        train = [*COMMAND, *super().words(again=False), "--train.steps", "4", "--quiet"]
        subprocess.run(train, check=False)  # No group may have had a signal.
        environment = {**os.environ, RUN_VARIABLE: str(self.folder.resolve())}
        self._trains = subprocess.Popen(["sleep", "3600"], env=environment)

    def words(self, *, again: bool) -> list[str]:
        words = ["view", str(self.folder), "--overwrite"]
        return words if again else [*words, "--live"]

    def clear(self) -> None:
        pass

    def faults(self, saved: dict[Path, int]) -> list[str]:
        return [] if saved == self.saved() and self.folder.exists() else ["the run has changed"]

    def close(self) -> None:
        self._trains.kill()
        self._trains.wait()


KINDS = {
    "run": Run,
    "run --np 2": RunByWorkers,
    "run from a server": RunFromServer,
    "train": Train,
    "view --live": ViewLive,
}


def end(
    words: list[str], environment: dict[str, str], number: int | None, at: float, log: Path
) -> Ended:
    """Run a command, and send it a signal after some seconds, unless `number` is None."""
    mark = uuid4().hex
    with log.open("w") as errors:
        start = time.perf_counter()
        running = subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment, MARK: mark, "COLUMNS": "300"},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    sent = None
    if number is not None:
        try:
            running.wait(at)
        except subprocess.TimeoutExpired:
            sent, start = time.perf_counter() - start, time.perf_counter()
            (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
    try:
        status = running.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        running.kill()
        status = running.wait()
    seconds = time.perf_counter() - start
    # Python's own resource tracker ends right after the process that it belongs to.
    _, left = psutil.wait_procs(_marked(mark), timeout=2)
    lines = [" ".join(process.cmdline())[:100] for process in left]
    for process in left:
        process.kill()
    return Ended(sent, seconds, status, log.read_text(), lines)


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue  # It has ended, or belongs to another user.
    return found


def measure(
    kind: str, number: int, moments: int, whole: float, case: Run | RunFromServer | Train
) -> list[str]:
    """End one command at some moments; the row of a table, and the faults on stdout."""
    ended, wrong, log = list[Ended](), 0, Path(tempfile.mkdtemp()) / "log"
    name = signal.Signals(number).name
    for moment in range(moments):
        case.clear()
        at = 0.3 + (whole - 0.3) * moment / max(moments - 1, 1)
        found = end(case.words(again=False), case.environment, number, at, log)
        saved = case.saved()
        faults = [f"left: {each}" for each in found.left]
        if found.at is not None:
            own = [line for line in found.errors.splitlines() if line.startswith("rejuice: ")]
            if found.seconds > 10:
                faults.append("longer than 10 s")
            if found.status == 130 and len(own) != 1:
                faults.append(f"{len(own)} lines of ours")
            if found.status not in (0, 130):
                faults.append(f"status {found.status}")
            if "Traceback" in found.errors or "Exception ignored" in found.errors:
                faults.append("traceback")
        if kind == "view --live" or found.status:
            again = end(case.words(again=True), case.environment, None, 0, log)
            if again.status:
                faults.append(f"the run again: {again.status}: {again.errors[-500:]}")
            faults += [f"left: {each}" for each in again.left]
        faults += case.faults(saved)
        line = f"{kind} {name} at {at:.1f} s: {found.seconds:.1f} s, status {found.status}"
        print(line, *faults, found.errors[-1500:] if faults else "", flush=True, sep="; ")
        wrong += bool(faults)
        ended.append(found)
    sent = [each for each in ended if each.at is not None]
    statuses = ", ".join(sorted({str(each.status) for each in sent}))
    longest = max((each.seconds for each in sent), default=0.0)
    return [kind, name, str(len(sent)), f"{longest:.1f} s", statuses, str(moments - wrong)]


def main() -> None:
    """Send signals, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--command", choices=KINDS, action="append")
    parser.add_argument("--signal", choices=("INT", "TERM"), action="append")
    wanted = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for place, kind in enumerate(wanted.command or KINDS):
            case = KINDS[kind](Path(folder) / str(place))
            try:
                log = Path(folder) / "log"
                for name in wanted.signal or ("TERM", "INT"):
                    whole = 8.0
                    if kind != "view --live":  # Just before: the machine may be busier by then.
                        case.clear()
                        done = end(case.words(again=False), case.environment, None, 0, log)
                        whole = done.seconds
                        if done.status:
                            sys.exit(done.errors)
                    number = signal.Signals[f"SIG{name}"]
                    rows.append(measure(kind, number, wanted.moments, whole, case))
            finally:
                case.close()
    print("| command | signal | sent | longest until its end | status | all right |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    main()
