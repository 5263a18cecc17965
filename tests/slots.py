"""Slots of slow tests: what is in each, which of them a change touches, and how to run them.

    python tests/slots.py                 # lists them
    python tests/slots.py run engine ray  # runs some; `--all` runs all
    python tests/slots.py choose          # names those that CI runs for this commit
    python tests/slots.py passed          # notes that all tests pass at this commit

CI runs `make test` for each change, and of the rest what fits into `CI_MINUTES`: first the slot that
imports a changed file by the shortest way, then others that a change touches, in turn by the number
of commits. If the change touches no slot, it is the turn of one of them. What counts as changed is
what differs from the commit that tests/last_full_pass names: `make test-all` writes it when all pass.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from datetime import date
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
LAST_FULL_PASS = ROOT / "tests" / "last_full_pass"
CI_MINUTES = 16
SLOW = "slow and not smoke and not alone and not vllm and not browser and not rebuild and not real_model"
PRODUCT = ("operators", "pipelines", "trainer", "recipes", "tools")
SUPPORT = ROOT / "tests" / "support"
FOR_ALL = ("constraints.txt", "setup.cfg")
"""What is installed decides the tests of every slot."""
_IN_TEXT = re.compile(r"\brejuice((?:\.\w+)+)")


class Slot(NamedTuple):
    """Slow tests that run together; the fields are those of tests/slots.yaml."""

    name: str
    paths: tuple[str, ...]
    minutes: float
    mark: str = SLOW
    starts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    workers: int = 2
    environment: Mapping[str, str] = {}
    only_if_touched: bool = False

    def command(self, others: Iterable[Slot], words: Sequence[str] = ()) -> list[str]:
        """What runs it."""
        inner = [path for other in others if other.mark == self.mark for path in other.paths]
        nested = [path for path in inner if path not in self.paths and self._has(path)]
        command = [sys.executable, "-m", "pytest", "-m", self.mark, "--durations", "20"]
        command += ["-n", str(self.workers)] if self.workers else []
        command += [word for path in nested for word in ("--deselect", path)]
        return [*command, *words, *self.paths]

    def _has(self, path: str) -> bool:
        return any(path.startswith(f"{each.rstrip('/')}/") for each in self.paths)


@cache
def slots() -> tuple[Slot, ...]:
    """Those of tests/slots.yaml, in their order."""
    document = yaml.safe_load((ROOT / "tests" / "slots.yaml").read_text("utf-8"))
    lists = ("paths", "starts", "files")
    return tuple(
        Slot(name, **{k: tuple(v) if k in lists else v for k, v in fields.items()})
        for name, fields in document.items()
    )


def _is_in(slot: Slot, file: Path) -> bool:
    """Whether a test file of the paths of a slot has tests that run in it."""
    if slot.mark != SLOW:
        return f"mark.{slot.mark}" in file.read_text("utf-8")
    return slot_of(str(file.relative_to(ROOT))) == slot


def slot_of(file: str) -> Slot | None:
    """The slot that a slow test file is in, unless its tests have a mark of their own."""
    found = [
        (len(path), slot)
        for slot in slots()
        for path in slot.paths
        if slot.mark == SLOW and (file == path or file.startswith(f"{path.rstrip('/')}/"))
    ]
    return max(found, key=itemgetter(0))[1] if found else None


# What a slot imports


def reached(slot: Slot) -> dict[Path, int]:
    """Files that decide what its tests do, each with the number of imports on the shortest way."""
    found = {ROOT / name: 0 for name in FOR_ALL}
    found |= {file: 0 for pattern in slot.files for file in ROOT.glob(pattern)}
    todo = [*_test_files(slot), *filter(None, map(_module_file, slot.starts))]
    distance = 0
    while todo := [file for file in dict.fromkeys(todo) if file not in found]:
        found.update(dict.fromkeys(todo, distance))
        todo = [other for file in todo for other in _imports_of(file)]
        distance += 1
    return found


def _test_files(slot: Slot) -> Iterator[Path]:
    for path in map(ROOT.joinpath, slot.paths):
        files = path.rglob("test_*.py") if path.is_dir() else [path]
        yield from (file for file in files if _is_in(slot, file))
        folder = path if path.is_dir() else path.parent
        while folder.is_relative_to(ROOT / "tests"):
            if (folder / "conftest.py").exists():
                yield folder / "conftest.py"
            folder = folder.parent


@cache
def _imports_of(file: Path) -> tuple[Path, ...]:
    """The files of this project that a file imports or names."""
    if file.suffix != ".py":
        text = file.read_text("utf-8", "replace") if file.suffix == ".yaml" else ""
        return tuple(_named_in(text))
    text = file.read_text("utf-8")
    found = list(_named_in(text)) if file.is_relative_to(ROOT / "tests") else []
    for node in _statements(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _resolve(alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(file, node)
            for alias in node.names:
                found += _resolve(module, alias.name)
    return tuple(dict.fromkeys(found))


def _statements(text: str) -> Iterator[ast.AST]:
    """The statements of a program, wherever they stand; the many nodes of expressions are left out."""
    todo: list[ast.AST] = [ast.parse(text)]
    while todo:
        node = todo.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, name, ()) if not isinstance(node, ast.expr) else ()


def _named_in(text: str) -> Iterator[Path]:
    """What a test or a recipe names in a text: modules, operators, recipes."""
    for name in set(_IN_TEXT.findall(text)):
        parts = f"rejuice{name}".split(".")
        files = (_module_file(".".join(parts[:end])) for end in range(len(parts), 1, -1))
        if file := next(filter(None, files), None):
            yield file
    for name, file in _operator_files().items():
        if name in text:
            yield file
    yield from (recipe for name, recipe in _recipes() if name.search(text))


@cache
def _recipes() -> tuple[tuple[re.Pattern[str], Path], ...]:
    """The recipes that are shipped, each with the pattern of its name."""
    files = sorted((ROOT / "recipes").glob("*.yaml"))
    return tuple((re.compile(rf"\b{file.stem}\b"), file) for file in files)


@cache
def _operator_files() -> Mapping[str, Path]:
    """The file of each operator, tool and flow by its name in recipes."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser["options.entry_points"]["rejuice.operators"].split("\n")
    pairs = (line.split(" = ") for line in lines if line)
    found = {name: _module_file(target.partition(":")[0]) for name, target in pairs}
    return {name: file for name, file in found.items() if file}


def _absolute(file: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = file.relative_to(ROOT).parts[: -node.level]
    return ".".join(["rejuice", *parts, *filter(None, [node.module])])


def _resolve(module: str, name: str | None) -> list[Path]:
    """Where `from module import name` finds it; what a package re-exports is where it is defined."""
    file = _module_file(module)
    if file is None:
        return []
    if name is None or file.name != "__init__.py":
        return [file]
    if submodule := _module_file(f"{module}.{name}"):
        return [submodule]
    source = _exported(file).get(name)
    return _resolve(*source) if source else [file]


@cache
def _exported(package: Path) -> Mapping[str, tuple[str, str]]:
    """What the `__init__` of a package imports: from which module, and by which name."""
    return {
        alias.asname or alias.name: (_absolute(package, node), alias.name)
        for node in _statements(package.read_text("utf-8"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def _module_file(name: str) -> Path | None:
    """The file of a module of the product or of tests/support."""
    top, *parts = f"rejuice.{name}".split(".") if name.startswith("tools.") else name.split(".")
    base = ROOT.joinpath(*parts) if top == "rejuice" else SUPPORT / name
    if top == "rejuice" and (not parts or parts[0] not in PRODUCT):
        return None
    files = (base.with_name(f"{base.name}.py"), base / "__init__.py")
    return next((file for file in files if file.exists()), None)


# Which of them CI runs


def changed_files() -> list[Path] | None:
    """What differs from the last full pass; None where there is no history to know it from."""
    words = LAST_FULL_PASS.read_text().split() if LAST_FULL_PASS.exists() else []
    found = _git("diff", "--name-only", words[0], "HEAD") if words else None
    return None if found is None else [ROOT / line for line in found.splitlines()]


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def choose(
    candidates: Sequence[Slot],
    distances: Mapping[str, int],
    turn: int,
    minutes: float = CI_MINUTES,
) -> list[Slot]:
    """The slots that CI runs.

    Args:
        candidates: all slots.
        distances: of those that the change touches, the number of imports to the nearest change.
        turn: the number of commits: where equals stand in line.
        minutes: how long they may take together; the first may take longer.

    Returns:
        At least one. Those that the change touches come first.
    """
    in_turn = [candidates[(turn + k) % len(candidates)] for k in range(len(candidates))]
    touched = [slot for slot in in_turn if slot.name in distances]
    if not touched:
        return [slot for slot in in_turn if not slot.only_if_touched][:1]
    first = min(touched, key=lambda slot: distances[slot.name])
    chosen, left = [first], minutes - first.minutes
    for slot in touched:
        if slot is not first and slot.minutes <= left:
            chosen.append(slot)
            left -= slot.minutes
    return chosen


def chosen_by_ci() -> list[Slot]:
    """The slots that CI runs for the commit that is checked out; it says why on stderr."""
    changed, all_slots = changed_files(), slots()
    distances: dict[str, int] = {}
    for slot in all_slots if changed else ():
        files = reached(slot)
        near = [files[file] for file in changed or () if file in files]
        if near:
            distances[slot.name] = min(near)
    # A shallow clone has one commit, whatever it is.
    commits = int(_git("rev-list", "--count", "HEAD") or 0)
    turn = commits if commits > 1 else date.today().toordinal()
    chosen = choose(all_slots, distances, turn)
    names = {slot.name for slot in chosen}
    waiting = [name for name in distances if name not in names]
    why = (
        "no full pass to compare with"
        if changed is None
        else f"{len(changed)} files changed since the last full pass"
    )
    print(
        f"slots: {' '.join(names)} ({why}; touched and not run: {' '.join(waiting) or 'none'})",
        file=sys.stderr,
    )
    return chosen


# Running them


def run(wanted: Sequence[Slot], words: Sequence[str] = ()) -> int:
    """Run slots one after the other.

    Returns:
        0 if all tests of all of them pass.
    """
    failed = []
    for slot in wanted:
        print(f"\nslot {slot.name}, about {slot.minutes:g} minutes", flush=True)
        environment = {**os.environ, **slot.environment}
        command = slot.command(slots(), words)
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(slot.name)
            print(f"\nfailed in a slot: `make slot SLOT={slot.name}` runs it again", flush=True)
    if failed:
        print(f"failed: {' '.join(f'make slot SLOT={name}' for name in failed)}", file=sys.stderr)
    return int(bool(failed))


def write_full_pass() -> None:
    """Note the commit of a full pass, unless something differs from it."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    if changes:
        print("what is tested is not committed, so no full pass is noted")
    elif commit:
        LAST_FULL_PASS.write_text(commit)
        print(f"all tests pass at {commit.strip()}: commit {LAST_FULL_PASS.relative_to(ROOT)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    actions = ["list", "choose", "run", "passed"]
    parser.add_argument("action", nargs="?", choices=actions, default="list")
    parser.add_argument("names", nargs="*", help="slots; what follows -- goes to pytest")
    parser.add_argument("--all", action="store_true", help="every slot")
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    chosen, words = parser.parse_args(given[:at]), given[at + 1 :]
    by_name = {slot.name: slot for slot in slots()}
    if unknown := [name for name in chosen.names if name not in by_name]:
        parser.error(f"there is no slot {unknown[0]}; there are {', '.join(by_name)}")
    if chosen.action == "choose":
        print("\n".join(slot.name for slot in chosen_by_ci()))
        return 0
    if chosen.action == "passed":
        write_full_pass()
        return 0
    if chosen.action == "run":
        wanted = list(by_name.values()) if chosen.all else [by_name[name] for name in chosen.names]
        if not wanted:
            parser.error("name slots, or give --all")
        return run(wanted, words)
    for slot in by_name.values():
        print(f"{slot.name:12} {slot.minutes:>3g} min  {' '.join(slot.paths)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
