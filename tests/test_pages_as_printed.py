"""Every command of the README, of "First ten minutes" and of "Three questions", as a stranger types it.

In the order of the pages, in a fresh folder with the Makefile and the recipes: so `make demo` and
`make train` are what they are in a clone, but for two things. What they install is linked from the
environment of the tests, extra by extra (tests/support/extras_environment.py): what comes before
`make train` runs without Ray and verl. And training has fewer steps.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/start.md", "docs/questions.md")
ENVIRONMENT = ROOT / "tests" / "support" / "extras_environment.py"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_TEXT = re.compile(r"`((?:rejuice|dj-process) [^`]+)`")
STEPS = 6
"""Training steps, instead of 20: the pages look at the last two of them."""
LINES_OF_DEMO = 40
NOT_RUN = ("make test",)
"""It has all tests, this one included."""


class Stranger:
    """Somebody in a clone, who types commands; `shown` is what they have printed."""

    def __init__(self, folder):
        self.folder, self.shown = folder, []
        own = str(Path(sys.prefix) / "bin")
        path = [each for each in os.environ["PATH"].split(os.pathsep) if each != own]
        hidden = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "COLUMNS")
        self.variables = {k: v for k, v in os.environ.items() if k not in hidden}
        self.variables["PATH"] = os.pathsep.join(path)

    def types(self, command):
        """Run a command, which must succeed; its output."""
        if re.fullmatch(r"source \S+", command):
            activated = self.folder / command.removeprefix("source ")
            assert activated.is_file()
            self.variables["PATH"] = f"{activated.parent}{os.pathsep}{self.variables['PATH']}"
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder, env=self.variables, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        assert done.returncode == 0, (
            f"`{command}` ended with {done.returncode}: {done.stdout[-3000:]}"
        )
        self.shown += done.stdout.splitlines()
        return done.stdout


@pytest.fixture
def stranger(tmp_path):
    """In a folder that has of a clone what commands of the pages need."""
    clone = tmp_path / "clone"
    (clone / "tools").mkdir(parents=True)
    shutil.copytree(ROOT / "recipes", clone / "recipes", ignore=lambda *_: ["__pycache__"])
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    (clone / "Makefile").write_text(with_fewer_steps((ROOT / "Makefile").read_text("utf-8")))
    install = clone / "tools" / "install.sh"
    command = shlex.join([sys.executable, str(ENVIRONMENT)])
    install.write_text(f'#!/bin/sh\nexec {command} .venv "rejuice[$1]"\n')
    install.chmod(0o755)
    return Stranger(clone)


def test_the_pages_in_their_order(stranger):
    for name in PAGES:
        text = (ROOT / name).read_text("utf-8")
        stranger.shown.clear()
        for language, block in BLOCK.findall(text):
            if language == "bash":
                for line in block.splitlines():
                    type_line(stranger, line)
            elif language == "python":
                run_python(stranger, block)
            elif language == "yaml":
                write_recipe(stranger, block)
        for command in IN_TEXT.findall(text):
            if len(command.split()) > 2 or command == "rejuice ops":
                stranger.types(with_fewer_steps(command))
        trained = False
        for language, block in BLOCK.findall(text):
            trained = "grpo_arithmetic" in block if language == "bash" else trained
            if not language:
                check_shown(stranger.shown, block, trained)


def type_line(stranger, line):
    """A line of a block, with what must be true after it."""
    command = with_fewer_steps(line)
    if not command or command.startswith(NOT_RUN):
        return
    shown = stranger.types(command)
    if command.startswith("make demo"):
        check_demo(stranger, shown)
    if command.startswith("make train"):
        check_training(stranger, shown)


def check_demo(stranger, shown):
    """It is short, installs no trainer, and ends with commands that work; again, there is nothing to do."""
    assert len(shown.splitlines()) <= LINES_OF_DEMO
    again = stranger.types("make demo")
    assert "nothing to do: outputs/quickstart/curated.parquet is up to date\n" in again
    _, advice = again.split("What to try next, after `source .venv/bin/activate`:\n")
    commands = [line.strip() for line in advice.splitlines()]
    assert commands.pop().startswith("make train ")
    for command in commands:
        stranger.types(f"source .venv/bin/activate && {command}")
    if not (stranger.folder / "outputs" / "grpo_arithmetic").exists():
        stranger.types("! .venv/bin/python -c 'import verl'")
        stranger.types(".venv/bin/dj-process --config recipes/quickstart.yaml")
        assert "nothing to do" not in stranger.types("make demo"), "the export was another's"


def check_training(stranger, shown):
    """It ends with its curves; again, it shows them again."""
    curves = re.search(r"^curves +(\S+)$", shown, re.MULTILINE)
    assert (stranger.folder / curves[1]).is_file()
    again = stranger.types("make train")
    assert f"nothing to do: outputs/grpo_arithmetic has trained {STEPS} steps; " in again
    assert curves[0] in again


def with_fewer_steps(text):
    return text.replace("--steps 20", f"--steps {STEPS}")


def write_recipe(stranger, block):
    """As the page says: the block is a recipe, or what is added to the one before it."""
    path = stranger.folder / "recipe.yaml"
    added = yaml.safe_load(block)
    if "custom_operator_paths" in added:
        recipe = yaml.safe_load(path.read_text("utf-8"))
        added["process"] = [*recipe["process"], *added["process"]]
        block = yaml.safe_dump({**recipe, **added}, sort_keys=False)
    path.write_text(block, "utf-8")
    if "custom_operator_paths" in added:
        assert "\nquestion_mark_filter " in stranger.types("rejuice run recipe.yaml")


def run_python(stranger, block):
    """A file where the page names one, else a script."""
    path = stranger.folder / ("mine.py" if "class " in block else "script.py")
    path.write_text(block, "utf-8")
    if path.name == "script.py":
        stranger.types("python script.py")


def check_shown(shown, block, trained):
    """What a page shows was printed, whatever the numbers; of figures of training, their names."""
    there = {shape(line, trained) for line in shown}
    for line in block.splitlines():
        assert line == "..." or shape(line, trained) in there, line


def shape(line, trained):
    """A line without its numbers, ids and the width of its columns; or only how it begins."""
    line = re.sub(r"\b[0-9a-f]{8}(?:[0-9a-f]{24})?\b|[+-]?[\d,.]*\d|\bcached\b", "#", line)
    return " ".join((line.partition("#")[0] if trained else line).split())


def test_a_name_is_no_number():
    assert shape("06_a_filter: dropped 1,200, cached", False) == "#_a_filter: dropped #, #"
    assert shape("mean reward   -0.024  +0.1", True) == "mean reward"
