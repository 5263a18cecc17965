"""How much of the code one row, one group, one agent's prompt and one own operator pass.

    python benchmarks/bench_code_paths.py [--one-user]

Counts the files and the functions of rejuice that are called (`sys.setprofile`, in all threads; a
second run, so that what a first import does is left out), how often the file changes from one call
to the next, and the frames between `main` and the `decide` of a filter that is not rejuice's own.
Then the modules that only one other module imports, but for operators, of which each is a file; with
`--one-user` they are listed.
"""

import ast
import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from fake_chat import FakeChat
from fake_queue import FakeQueue
from training_stage import PLAIN, Stage

from rejuice.pipelines.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = 20
PRODUCT = tuple(str(ROOT / name) + "/" for name in ("operators", "pipelines", "trainer"))
OWN = '''
import sys
from pathlib import Path
import pyarrow as pa
from rejuice.operators import Filter

class FramesFilter(Filter):
    """Writes down through how many frames of rejuice it is called."""
    def reads(self):
        return ("response",)
    def decide(self, table):
        frame, depth = sys._getframe(1), 0
        while frame:
            depth += frame.f_code.co_filename.startswith({product})
            frame = frame.f_back
        Path({written!r}).write_text(str(depth))
        return pa.nulls(table.num_rows, pa.string())
'''


class Passed:
    """The functions that were called.

    Attributes:
        functions: file, line and name of each.
        changes: calls of a function in another file than that of the call before.
    """

    def __init__(self) -> None:
        self.functions = set[tuple[str, int, str]]()
        self.changes = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; for `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PRODUCT):
            return
        self.functions.add((code.co_filename, code.co_firstlineno, code.co_qualname))
        self.changes += code.co_filename != self._last
        self._last = code.co_filename

    def row(self, name: str, frames: str = "") -> str:
        """A row of the table."""
        files = {file for file, _, _ in self.functions}
        training = sum(file.startswith(PRODUCT[2]) for file in files)
        return f"| {name} | {len(files)} | {training} | {len(self.functions)} | {self.changes:,} | {frames} |"


@contextmanager
def profiled() -> Iterator[Passed]:
    """Note the calls of all threads that begin in the block, and of this one."""
    passed = Passed()
    threading.setprofile(passed)
    sys.setprofile(passed)
    try:
        yield passed
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def rejuice(*arguments: str) -> None:
    """Run a command in this process."""
    before, sys.argv = sys.argv, ["rejuice", *arguments]
    output = StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            main()
    except SystemExit as end:
        if end.code:
            raise AssertionError(output.getvalue()) from None
    finally:
        sys.argv = before


def second(run: Callable[[Path], None]) -> Passed:
    """What the second run of two passes, each in a new folder."""
    with tempfile.TemporaryDirectory() as first:
        run(Path(first))
    with tempfile.TemporaryDirectory() as folder, profiled() as passed:
        run(Path(folder))
    return passed


def write(folder: Path, steps: list[Any], prompts: int = PROMPTS, **head: Any) -> str:
    """A recipe over made-up sums, of which half of the responses are right; its path."""
    rows = [
        {"question": f"What is {n} + {n}?", "answer": f"{2 * n}", "responses": [f"{2 * n}", f"{n}"]}
        for n in range(1, prompts + 1)
    ]
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    document = {
        "dataset_path": str(folder / "data.jsonl"),
        "export_path": str(folder / "curated.parquet"),
        "process": [{"prompt_template_mapper": {}}, *steps],
        **head,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return str(path)


RECORDED = [
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    {"math_verify_mapper": {}},
    {"group_stats_mapper": {}},
    {"pass_rate_filter": {"max": 0.9}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
    {"grpo_advantage_mapper": {}},
]


def row(folder: Path) -> None:
    """Run a recipe of seven operators over 20 prompts."""
    rejuice("run", write(folder, RECORDED))


def own_operator(folder: Path) -> int:
    """Run a recipe with a filter of a user; the frames of rejuice above its `decide`."""
    own, written = folder / "own.py", folder / "frames.txt"
    own.write_text(OWN.format(product=PRODUCT, written=str(written)))
    steps = [*RECORDED[:2], "frames_filter"]
    rejuice("run", write(folder, steps, custom_operator_paths=[str(own)]))
    return int(written.read_text())


def agent_prompt(folder: Path) -> None:
    """Run an agent with a calculator on one prompt, whose policy is a server."""
    with FakeChat(says={1: ("calculator: 1 + 1", "stop"), 2: ("answer: 2", "stop")}) as server:
        agent = {
            "engine": "openai",
            "model": "fake",
            "openai": {"base_url": server.url, "api": "chat"},
            "n": 2,
            "max_tokens": 16,
            "on_policy": False,
            "flow": {"react": {"format": "lines", "max_turns": 3}},
            "tools": [{"calculator": None}],
        }
        rejuice("run", write(folder, [{"agent_rollout_mapper": agent}], prompts=1))


def group() -> Passed:
    """Let a second group of responses pass the replay buffer of a training run."""
    queue = FakeQueue()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        queue.install(patch)
        stage = Stage(Path(folder) / "run", queue, PLAIN)
        stage.answer({0: ["1", "0", "1", "0"]})
        stage.sample(step=1, groups=1)
        stage.answer({1: ["1", "0", "1", "0"]})
        with profiled() as passed:
            stage.sample(step=2, groups=1)
    return passed


def modules_with_one_user() -> dict[str, str]:
    """Modules that exactly one other one imports, and which that is."""
    files = [file for folder in PRODUCT for file in sorted(Path(folder).rglob("*.py"))]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    users: dict[str, set[str]] = {name: set() for name in names}
    for name, file in names.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = name.split(".")[: -node.level] + (node.module or "").split(".")
                module = ".".join(filter(None, base))
                for found in {module, *(f"{module}.{alias.name}" for alias in node.names)}:
                    users.get(found, set()).add(name)
    operators = re.compile(r"operators\.(mapper|filter|deduplicator|selector)\.")
    return {
        name: next(iter(found))
        for name, found in users.items()
        if len(found) == 1 and not operators.match(name) and not name.endswith("__init__")
    }


if __name__ == "__main__":
    print("| of | files | of them of training | functions | changes of file | frames above |")
    print("|---|---|---|---|---|---|")
    print(second(row).row(f"rows of {PROMPTS} prompts, `run`, 7 operators"))
    print(second(agent_prompt).row("one prompt of an agent, `run`"))
    print(group().row("one group, from its answers to the batch of a training step"))
    found = list[int]()
    passed = second(lambda folder: found.append(own_operator(folder)))
    print(passed.row("an own operator, `run`", f"{found[-1]}"))
    alone = modules_with_one_user()
    print(f"| modules with one user | {len(alone)} | | | | |")
    if "--one-user" in sys.argv[1:]:
        print("\n".join(f"{name}: {user}" for name, user in alone.items()))
