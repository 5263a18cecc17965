"""Runs of which files are damaged at random, and what the next run makes of them."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from damage import damage, displace
from forked_command import Ended, ForkedCommand
from paid_run import PaidRun

from rejuice.operators.disk import kind_of

SAME, FOUND, NAMED = "same result", "same result, damage named", "one line, same result after it"
RIGHT = (SAME, FOUND, NAMED)
"""What may become of a damaged run; everything else is a failure and begins with `WRONG`."""
_ELSEWHERE = b"a file that is not of the run"
_KINDS = {
    r"\.rejuice/source-\w+/\d+\.arrow": "source chunk",
    r"\.rejuice/source-\w+/schema\.arrow": "manifest of the source",
    r"\.rejuice/kept-[\w-]+/\w+\.arrow": "kept chunk",
    r"\.rejuice/kept-[\w-]+/[\w-]+\.(\w+)": r"kept: \1",
    r"\.rejuice/kept-[\w-]+/([a-z]+)[\w-]*": r"kept: \1",
    r"\.rejuice/sample_mapper-\w+/\d+\.arrow": "link to a kept chunk",
    r"\.rejuice/\w+-\w+/digest.*": "digest",
    r"\.rejuice/runs/.*": "list of exports",
    r"\.rejuice/\w+-\w+/\d+\.arrow": "commit",
    r"curated\.run/.*decisions.*": "decisions",
    r"curated\.run/(.*)": r"run folder: \1",
    r"curated\.parquet": "export",
    r"judge/.*\.lock": "judge's cache: lock",
    r"judge/.*": "judge's cache",
    r"(.*\.|\.rejuice/)lock": "lock",
}


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
    """A run as it was left, and what of it was not paid for."""

    folder: Path
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
        self._chunks = self._stems()
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

    def _state(self, name: str) -> _State:
        """Bring the run into a state and keep a copy of it."""
        shutil.rmtree(self._run.out)
        self._run.paid()
        _STATES[name](self)
        sampled, judged = (set(each) for each in self._run.paid())
        copy = self._folder / f"state-{name.replace(' ', '-')}"
        shutil.copytree(self._run.out, copy, symlinks=True)
        self._command.run(*self._run.arguments)
        if self._run.result() != self._right:
            raise AssertionError(f"{name}: another result even without a damage")
        samples, judgements = (frozenset(each) for each in self._run.paid())
        if samples & sampled != {p for p in samples & sampled if _is_refused(p)} or (
            judgements & judged
        ):
            raise AssertionError(f"{name}: paid for twice even without a damage")
        return _State(copy, samples, judgements)

    def finished(self) -> None:
        """A run that ended well."""
        self._must(0)

    def _must(self, status: int, *options: str, **environment: str) -> None:
        ended = self._command.run(*self._run.arguments, *options, environment=environment)
        if ended.status != status:
            raise AssertionError(f"status {ended.status}, not {status}: {ended.output}")

    def sampling(self) -> None:
        """A run that was killed while it sampled its second chunk."""
        self._must(-9, DIE_AFTER="13")

    def undecided(self) -> None:
        """A run that was killed between the digests and their decision."""
        self._must(-9, DIE_DECIDING="")

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

    def _stems(self) -> dict[str, frozenset[str]]:
        """The prompts of each kept chunk, by the stem of its files."""
        links = sorted((self._run.out / ".rejuice").glob("sample_mapper-*/*.arrow"))
        found = {}
        for link in links:
            at = 8 * int(link.stem)
            found[_kept_chunk(link)] = frozenset(f"p{n:04d}" for n in range(at, at + 8))
        return found

    def _attempt(self, name: str, number: int, rng: random.Random) -> Attempt:
        state, out = self._states[name], self._run.out
        shutil.rmtree(out)
        shutil.copytree(state.folder, out, symlinks=True)
        by_kind: dict[str, list[Path]] = {}
        every = sorted(p for p in out.rglob("*") if p.is_file())
        for path in every:
            by_kind.setdefault(_kind(path.relative_to(out)), []).append(path)
        damages = {}
        for kind in rng.sample(list(by_kind), min(number, len(by_kind))):
            path = rng.choice(by_kind[kind])
            if damages.keys() & {path} or kind_of(path) != "a file":
                continue  # One before has moved it.
            if rng.random() < 0.5:
                damages[path] = (kind, damage(path, rng))
                continue
            others = [p for p in every if p != path and kind_of(p) == "a file"]
            what, affected = displace(path, others, self._elsewhere, rng)
            for each in affected:
                damages[each] = (_kind(each.relative_to(out)), what)
        names = {path: {str(path)} for path in damages}
        for path in damages:
            if path.parent == self._run.export.with_suffix(".run"):
                # With all of them gone nothing says which recipe made the export.
                names[path].add(f"export_path {self._run.export} exists; give another")
        outcome, output, paid, named = self._rerun(names)
        sampled, judged = paid
        again = sampled - Counter(state.samples)
        due = frozenset().union(*(self._rows_in(path) for path in damages))
        judged_again = judged - Counter(state.judgements)
        lost = any(kind == "judge's cache" for kind, _ in damages.values())
        if outcome not in RIGHT:
            pass  # What else is wrong follows from it.
        elif max([*sampled.values(), *judged.values()], default=0) > 1:
            outcome = "WRONG: paid for twice in one run"
        elif not again.keys() <= due:
            outcome = "WRONG: sampled again what was not damaged"
        elif judged_again and not lost:
            outcome = "WRONG: judged again what was not damaged"
        files = ", ".join(str(path.relative_to(out)) for path in damages)
        damaged = tuple(
            Damaged(*each, outcome if outcome not in RIGHT else named.get(path, SAME))
            for path, each in damages.items()
        )
        return Attempt(
            name, damaged, outcome, again.total(), judged_again.total(),
            f"{files}\n{output}",
        )  # fmt: skip

    def _rerun(
        self, names: dict[Path, set[str]]
    ) -> tuple[str, str, tuple[Counter, Counter], dict[Path, str]]:
        """Run again, and do what its line says where it ends with one.

        Returns:
            The outcome, the last output, what was paid for, and how each file was named.
        """
        paid, found = (Counter(), Counter()), {}
        while True:
            again = ["--overwrite"] if NAMED in found.values() else []  # What its line advises.
            ended = self._command.run(*self._run.arguments, *again)
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

    def _rows_in(self, path: Path) -> frozenset[str]:
        """The prompts whose samples a damaged file may have held."""
        if not path.parent.name.startswith("kept-"):
            return frozenset()
        return self._chunks.get(path.name[:32], frozenset())


_STATES = {
    "finished": DamagedRuns.finished,
    "killed while sampling": DamagedRuns.sampling,
    "killed before a decision": DamagedRuns.undecided,
    "retried": DamagedRuns.retried,
    "only samples are left": DamagedRuns.samples_only,
}


def _kept_chunk(link: Path) -> str:
    """The stem of the kept chunk that the commit of a resumable step names."""
    return link.read_bytes()[-len(f"{'0' * 32}.arrow") :].decode().removesuffix(".arrow")


def _is_refused(prompt_id: str) -> bool:
    return prompt_id.endswith("3")


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
