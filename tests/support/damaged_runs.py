"""Runs of which files are damaged at random, and what the next run makes of them."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from damage import damage, displace, flip
from forked_command import Ended, ForkedCommand
from paid_run import PaidRun, is_refused

from rejuice.operators.disk import kind_of
from rejuice.operators.kept_rows import SHARED_FOLDERS

SAME, FOUND, NAMED = "same result", "same result, damage named", "one line, same result after it"
RIGHT = (SAME, FOUND, NAMED)
"""What may become of a damaged run; everything else is a failure and begins with `WRONG`."""
_ELSEWHERE = b"a file that is not of the run"
_KINDS = {
    r"\.rejuice/source-\w+/\d+\.arrow": "source chunk",
    r"\.rejuice/source-\w+/schema\.arrow": "manifest of the source",
    r"\.rejuice/kept-.*/rows\.sqlite(.*)": r"kept rows: SQLite\1",
    r"\.rejuice/kept-.*\.parquet": "kept rows: Parquet",
    r"\.rejuice/[\w-]+/retry-.*": "retry counter",
    r"\.rejuice/[\w-]+/digest-.*": "digest",
    r"\.rejuice/[\w-]+/decided-.*": "decision",
    r"\.rejuice/[\w-]+/\d+\.arrow": "commit",
    r"\.rejuice/runs/.*": "name of an export",
    r"\.rejuice/rejuice-cache": "tag of the cache",
    r"\.rejuice/content-hashes\.json": "hashes of the dataset",
    r"curated\.run/.*decisions.*": "decisions",
    r"curated\.run/(.*)": r"run folder: \1",
    r"curated\.parquet": "export",
    r"judge/.*/rows\.sqlite(.*)": r"judge's cache: SQLite\1",
    r"judge/.*\.parquet": "judge's cache: Parquet",
    r".*lock": "lock",
}
_PAID = ("kept rows", "judge's cache")
"""How the kinds of files begin whose content was paid for."""
_SMALL_SHARDS = {"SHARD_BYTES": "500"}


class Damaged(NamedTuple):
    """A damaged file.

    Attributes:
        file: what it was to the run.
        damage: how it was damaged.
        outcome: that of the run, but `SAME` where it is right and no message named this file.
    """

    file: str
    damage: str
    outcome: str


class Attempt(NamedTuple):
    """What was damaged, and what the next run made of it.

    Attributes:
        state: of the run before.
        damaged: what was damaged.
        outcome: one of `RIGHT`, or what went wrong.
        sampled: rows that were sampled though an earlier run had sampled them.
        judged: responses that were judged though an earlier run had judged them.
        details: for a human who looks into a failure.
    """

    state: str
    damaged: tuple[Damaged, ...]
    outcome: str
    sampled: int
    judged: int
    details: str


class _State(NamedTuple):
    """A run as it was left, what it was run with, and what of it was not paid for."""

    folder: Path
    environment: dict[str, str]
    samples: frozenset[str]
    judgements: frozenset[str]


class DamagedRuns:
    """A small run in some states, of which each attempt damages files.

    Args:
        folder: a new folder, which is best in memory: each run waits for the disk often.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._run = folder, PaidRun(folder)
        self._command = ForkedCommand(self._run.arguments, folder / "output.log")
        self._run.paid()
        self._right = self._run.result()
        self._outside = folder / "outside"
        self._outside.mkdir()
        self._elsewhere = self._outside / "elsewhere.arrow"
        self._elsewhere.write_bytes(_ELSEWHERE)
        self._environment = _SMALL_SHARDS
        self._states = {name: self._state(name) for name in _STATES}
        self._run.paid()

    def attempts(self, count: int, seed: int, *, at_once: int = 1) -> Iterator[Attempt]:
        """Attempts that damage `count` files, evenly over states and kinds of files.

        Args:
            count: damages, at least.
            seed: of all that is random.
            at_once: how many files one attempt may damage.
        """
        rng = random.Random(seed)
        left = count
        while left > 0:  # What was swapped with another file is two damages.
            state = rng.choice(list(self._states))
            number = min(left, rng.randint(1, at_once))
            attempt = self._attempt(state, number, rng)
            left -= len(attempt.damaged)
            yield attempt

    def flips(self, each: int, seed: int) -> Iterator[Attempt]:
        """Attempts that flip a single bit, `each` of every kind of file that is not empty.

        What is in the file is needed by the next run, which reads all bytes.
        """
        rng = random.Random(seed)
        files: dict[str, list[tuple[str, Path]]] = {}
        for name, state in self._states.items():
            for path in sorted(state.folder.rglob("*")):
                kind = _kind(path.relative_to(state.folder))
                is_needed = name in (_READ_PAID if kind.startswith(_PAID) else _READ_COMMITS)
                if is_needed and kind_of(path) == "a file" and path.stat().st_size:
                    files.setdefault(kind, []).append((name, path.relative_to(state.folder)))
        for kind, found in sorted(files.items()):
            for _ in range(each):
                name, relative = rng.choice(found)
                self._restore(name)
                path = self._run.out / relative
                flip(path, rng)
                if path.is_relative_to(self._run.out / ".rejuice"):
                    self._run.export.unlink(missing_ok=True)  # Else there is nothing to do.
                yield self._checked(name, {path: (kind, "flipped bit")})

    def _state(self, name: str) -> _State:
        """Bring the run into a state and keep a copy of it."""
        self._environment = dict(_SMALL_SHARDS)
        if name.endswith(_SHARED):
            self._environment[SHARED_FOLDERS] = str(self._run.out)
        shutil.rmtree(self._run.out)
        self._run.paid()
        _STATES[name](self)
        sampled, judged = (set(each) for each in self._run.paid())
        copy = self._folder / f"state-{name.replace(' ', '-')}"
        shutil.copytree(self._run.out, copy, symlinks=True)
        self._command.run(*self._run.arguments, environment=self._environment)
        if self._run.result() != self._right:
            raise AssertionError(f"{name}: another result even without a damage")
        samples, judgements = (frozenset(each) for each in self._run.paid())
        if samples & sampled != {p for p in samples & sampled if is_refused(p)} or (
            judgements & judged
        ):
            raise AssertionError(f"{name}: paid for twice even without a damage")
        return _State(copy, self._environment, samples, judgements)

    def finished(self) -> None:
        """A run that ended well."""
        self._must(0)

    def _must(self, status: int, *options: str, **environment: str) -> None:
        environment |= self._environment
        ended = self._command.run(*self._run.arguments, *options, environment=environment)
        if ended.status != status:
            raise AssertionError(f"status {ended.status}, not {status}: {ended.output}")

    def sampling(self) -> None:
        """A run that was killed while it sampled its second chunk."""
        self._must(-9, DIE_AFTER="13")

    def undecided(self) -> None:
        """A run that was killed when it had decided the first of its shards."""
        self._must(-9, DIE_DECIDING="1")

    def retried(self) -> None:
        """A finished run of which dropped rows were sampled again."""
        self._must(0)
        self._must(0, "--retry_dropped")

    def samples_only(self) -> None:
        """A run of another version: samples and the judge's cache are all that can be used."""
        self._must(0)
        shutil.rmtree(self._run.export.with_suffix(".run"))
        self._run.export.unlink()
        for folder in (self._run.out / ".rejuice").iterdir():
            if not folder.name.startswith("kept-"):
                shutil.rmtree(folder) if folder.is_dir() else folder.unlink()

    def _restore(self, name: str) -> None:
        state = self._states[name]
        self._environment = state.environment
        shutil.rmtree(self._run.out)
        shutil.copytree(state.folder, self._run.out, symlinks=True)

    def _attempt(self, name: str, number: int, rng: random.Random) -> Attempt:
        self._restore(name)
        out = self._run.out
        by_kind: dict[str, list[Path]] = {}
        every = sorted(p for p in out.rglob("*") if p.is_file())
        for path in every:
            by_kind.setdefault(_kind(path.relative_to(out)), []).append(path)
        damages = {}
        for kind in rng.sample(list(by_kind), min(number, len(by_kind))):
            path = rng.choice(by_kind[kind])
            if damages.keys() & {path} or kind_of(path) != "a file":
                continue  # One before has moved it.
            others = [p for p in every if p != path and kind_of(p) == "a file"]
            if not others or rng.random() < 0.5:
                damages[path] = (kind, damage(path, rng))
                continue
            what, affected = displace(path, others, self._elsewhere, rng)
            for each in affected:
                damages[each] = (_kind(each.relative_to(out)), what)
        return self._checked(name, damages)

    def _checked(self, name: str, damages: dict[Path, tuple[str, str]]) -> Attempt:
        """Run again after damages, and see what became of them."""
        state, names = self._states[name], {path: {str(path)} for path in damages}
        for path in damages:
            if path.parent == self._run.export.with_suffix(".run"):
                # With all of them gone nothing says which recipe made the export.
                names[path].add(f"export_path {self._run.export} exists; give another")
        outcome, output, paid, named = self._rerun(names)
        sampled, judged = paid
        again = sampled - Counter(state.samples)
        judged_again = judged - Counter(state.judgements)
        kinds = " ".join(kind for kind, _ in damages.values())
        if outcome not in RIGHT:
            pass  # What else is wrong follows from it.
        elif max([*sampled.values(), *judged.values()], default=0) > 1:
            outcome = "WRONG: paid for twice in one run"
        elif not all(map(is_refused, again)) and "kept rows" not in kinds:
            outcome = "WRONG: sampled again what was not damaged"
        elif judged_again and "judge's cache" not in kinds:
            outcome = "WRONG: judged again what was not damaged"
        files = ", ".join(str(path.relative_to(self._run.out)) for path in damages)
        damaged = tuple(
            Damaged(*each, outcome if outcome not in RIGHT else named.get(path, SAME))
            for path, each in damages.items()
        )
        details = f"{files}\n{output}"
        return Attempt(name, damaged, outcome, again.total(), judged_again.total(), details)

    def _rerun(
        self, names: dict[Path, set[str]]
    ) -> tuple[str, str, tuple[Counter, Counter], dict[Path, str]]:
        """Run again with `--verify`, and do what its line says where it ends with one.

        Returns:
            The outcome, the last output, what was paid for, and how each file was named.
        """
        paid, found = (Counter(), Counter()), {}
        while True:
            again = ["--overwrite"] if NAMED in found.values() else []  # What its line advises.
            arguments = (*self._run.arguments, "--verify", *again)
            ended = self._command.run(*arguments, environment=self._environment)
            for total, more in zip(paid, self._run.paid(), strict=True):
                total.update(more)
            outcome = _outcome(ended)
            new = [p for p in names.keys() - found if _mentions(ended.output, names[p])]
            found |= dict.fromkeys(new, FOUND)
            if outcome == SAME:
                break
            # Other files that are named have been written again, or will be.
            refused = [p for p, of in names.items() if _mentions(_last_line(ended), of)]
            refused = [p for p in refused if found.get(p) != NAMED]
            if outcome != NAMED or not refused:
                if outcome == NAMED:
                    outcome = "WRONG: a line that does not name the file"
                return outcome, ended.output, paid, found
            found |= dict.fromkeys(refused, NAMED)
            for path in refused:
                shutil.rmtree(path) if kind_of(path) == "a folder" else path.unlink(missing_ok=True)
        if self._elsewhere.read_bytes() != _ELSEWHERE or len(list(self._outside.iterdir())) != 1:
            return "WRONG: a file elsewhere was touched", ended.output, paid, found
        if not self._is_right():
            return "WRONG: another result, in silence", ended.output, paid, found
        return max(found.values(), key=RIGHT.index, default=SAME), ended.output, paid, found

    def _is_right(self) -> bool:
        try:
            own = kind_of(self._run.export) == "a file"
            return own and self._run.result() == self._right
        except (OSError, ValueError, LookupError):
            return False


_SHARED = "on a shared folder"
_ONLY_PAID = ("only samples are left", f"only samples are left, {_SHARED}")
_STATES = {
    "finished": DamagedRuns.finished,
    "killed while sampling": DamagedRuns.sampling,
    "killed before a decision": DamagedRuns.undecided,
    "retried": DamagedRuns.retried,
    **dict.fromkeys(_ONLY_PAID, DamagedRuns.samples_only),
}
_READ_PAID = (*_ONLY_PAID, "killed while sampling")
_READ_COMMITS = ("finished", "killed while sampling", "killed before a decision", "retried")
"""States after which the next run reads what was paid for, and those after which it reads the other
files."""


def _kind(path: Path) -> str:
    """What a file of a run is, for a table."""
    for pattern, kind in _KINDS.items():
        found = re.fullmatch(pattern, path.as_posix())
        if found:
            return found.expand(kind)
    return path.as_posix()


def _outcome(ended: Ended) -> str:
    """What a command's end looks like from outside."""
    if ended.status < 0:
        return f"WRONG: killed by signal {-ended.status}"
    if "Traceback" in ended.output:
        return "WRONG: a traceback"
    if ended.status == 0:
        return SAME
    return NAMED if _last_line(ended).startswith("rejuice: ") else "WRONG: no line of ours"


def _last_line(ended: Ended) -> str:
    return ended.output.rstrip().rpartition("\n")[2]


def _mentions(output: str, names: Collection[str]) -> bool:
    """Whether a message names a file; the last lines of a run name the export, whatever it is."""
    lines = [line for line in output.splitlines() if " rows in " not in line]
    messages = [line for line in lines if not line.startswith(("audit log", "to trace"))]
    return any(name in line for name in names for line in messages)
