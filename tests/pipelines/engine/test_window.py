"""Rows of several chunks are computed side by side, and each chunk is written when it is whole."""

import random
import signal
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
from filelock import FileLock

from rejuice.operators import Change, DataError, EngineError, OperatorError, ResumableOperator
from rejuice.pipelines.dataset import files
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import paid_rows_format as kept_chunk
from rejuice.pipelines.engine import resumable_step
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.commit import target_of
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.paid_rows import Journal, journals
from rejuice.pipelines.engine.progress import StepProgress
from rejuice.pipelines.engine.resumable_step import ChunkToRun, Computed, run_resumable
from rejuice.pipelines.recipe.recipe import load

WIDE = """
import os, pathlib, random, signal
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator

class WideMapper(ResumableOperator):
    log: str
    wide: int = 25
    reasons = {"gone": "it ends in 1"}
    def reads(self): return ("response_id",)
    def writes(self): return ("sample",)
    def cache_key_fields(self): return {}
    def apply(self, table): return self._change(table["response_id"].to_pylist())
    def process_rows(self, table, rows):
        for _, row, change in self.process_chunks(iter([(table, rows)])):
            yield row, change
    def process_chunks(self, chunks):
        rng, under_way, number, ended = random.Random(3), [], 0, False
        while True:
            while len(under_way) < self.wide and not ended:
                chunk = next(chunks, "end")
                ended = chunk == "end"
                if ended or chunk is None:
                    break
                ids = chunk[0]["response_id"].to_pylist()
                under_way += [(number, row, ids[row]) for row in chunk[1]]
                number += 1
            if not under_way:
                return
            at = rng.randrange(len(under_way))
            number_of, row, name = under_way.pop(at)
            fate = pathlib.Path(self.log + ".fate")
            if fate.exists() and int(fate.read_text()) <= len(self._done()):
                fate.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            with open(self.log, "a") as log:
                log.write(f"{name} {len({n for n, *_ in under_way})}\\n")
            yield number_of, row, self._change([name])
    def _done(self):
        path = pathlib.Path(self.log)
        return path.read_text().splitlines() if path.exists() else []
    def _change(self, ids):
        reasons = pa.array(["gone" if i.endswith("-1") else None for i in ids], pa.string())
        parents = [row for row, i in enumerate(ids) if not i.endswith("-1") for _ in range(2)]
        samples = [f"{ids[row]}!" * 9 for row in parents]
        return Change({"sample": pa.array(samples, pa.string())}, reasons,
                      pa.array(parents, pa.int64()).to_numpy())
"""
CODE = (
    "import sys; from pathlib import Path; from rejuice.pipelines.engine import run as engine\n"
    "from rejuice.pipelines.recipe.recipe import load\n"
    "engine.run(load(Path(sys.argv[1])), chunk_rows=4)"
)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def recipe_path(recipe_file, rollouts, tmp_path, log):
    (tmp_path / "wide.py").write_text(WIDE)
    return recipe_file(
        [{"wide_mapper": {"log": str(log)}}],
        rollouts(20).to_pylist(),
        custom_operator_paths=[str(tmp_path / "wide.py")],
    )


def processed(log):
    """The rows that were computed, each with the number of chunks under way; the log is cleared."""
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [(name, int(chunks)) for name, chunks in map(str.split, lines)]


def run(path, overrides=None, **options):
    recipe = load(path, overrides)
    engine.run(recipe, **{"chunk_rows": 4, **options})
    return recipe.head.export_path.read_bytes()


def kept_files(path):
    """The files of kept rows, without locks."""
    folder = path.parent / "out" / ".rejuice"
    return sorted(file for file in folder.glob("kept-*/*") if file.suffix != ".lock")


@pytest.fixture
def undisturbed(recipe_path, log):
    """What a run writes where one chunk is computed after the other; its cache is gone."""
    content = run(recipe_path, {"wide_mapper.wide": "1"})
    assert {chunks for _, chunks in processed(log)} <= {0, 1}
    forget(recipe_path)
    return content


def forget(path):
    """Remove what was exported and kept."""
    for file in sorted((path.parent / "out").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()


@pytest.mark.slow
def test_the_bytes_are_those_of_one_chunk_after_the_other(recipe_path, log, undisturbed):
    assert run(recipe_path) == undisturbed
    found = processed(log)
    assert max(chunks for _, chunks in found) > 5
    assert set(Counter(name for name, _ in found).values()) == {1}
    assert not [file for file in kept_files(recipe_path) if file.suffix == ".journal"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [("_OPEN_CHUNKS", 2), ("_OPEN_BYTES", 1)])
def test_the_window_is_bounded(recipe_path, log, undisturbed, monkeypatch, limit):
    monkeypatch.setattr(resumable_step, *limit)
    assert run(recipe_path) == undisturbed
    assert max(chunks for _, chunks in processed(log)) == limit[1]


@pytest.mark.parametrize("after", [17, 1, 30])
@pytest.mark.slow
def test_killed_in_the_window_nothing_is_lost_and_nothing_done_twice(
    recipe_path, log, undisturbed, after
):
    log.with_name("log.fate").write_text(str(after))
    child = subprocess.run([sys.executable, "-c", CODE, str(recipe_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    before = [name for name, _ in processed(log)]
    assert len(before) == after
    assert run(recipe_path) == undisturbed
    again = [name for name, _ in processed(log)]
    # The last one was given to the engine and kept, or the process ended before: either is right.
    kept = {name for name in before[:-1] if not name.endswith("-1")}
    assert kept.isdisjoint(again)
    assert set(Counter(again).values()) == {1}


@pytest.mark.parametrize("draw", range(30))
@pytest.mark.slow
def test_damage_to_anything_that_was_kept_costs_only_what_was_damaged(
    recipe_path, log, undisturbed, draw, monkeypatch
):
    """Flipped bits, zeroed pages and truncation of chunks, keys and journals."""
    rng = random.Random(draw)
    monkeypatch.setattr(kept_chunk, "_BATCH_BYTES", 200)
    if draw % 2:
        log.with_name("log.fate").write_text("25")
        subprocess.run([sys.executable, "-c", CODE, str(recipe_path)], check=False)
    else:
        run(recipe_path)
    before = Counter(name for name, _ in processed(log))
    file = rng.choice([file for file in kept_files(recipe_path) if file.stat().st_size])
    content = bytearray(file.read_bytes())
    at = rng.randrange(len(content))
    if draw % 3 == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif draw % 3 == 1:
        content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    else:
        content = content[:at]
    file.write_bytes(content)
    files._verified.clear()
    assert run(recipe_path) == undisturbed
    again = {name for name, _ in processed(log) if not name.endswith("-1")}
    # At most the rows of one chunk, or what had not been computed before.
    assert len(again & before.keys()) <= 6
    run(recipe_path)
    assert processed(log) == []


@pytest.fixture
def damage_journals(monkeypatch):
    """Damages the newest journal of a chunk, as often as wanted, just before it is read back."""
    commit, damaged = resumable_step._OpenChunk.commit, []

    def prepare(times):
        def commit_damaged(chunk, operator):
            files = journals(chunk.whole)
            if files and len(damaged) < times:
                damaged.append(files[-1])
                chunk._close_journal()
                content = bytearray(files[-1].read_bytes())
                content[-1] ^= 1
                files[-1].write_bytes(content)
            return commit(chunk, operator)

        monkeypatch.setattr(resumable_step._OpenChunk, "commit", commit_damaged)
        return damaged

    return prepare


@pytest.mark.slow
def test_a_journal_that_is_damaged_while_its_chunk_is_open(
    recipe_path, log, undisturbed, damage_journals
):
    damaged = damage_journals(1)
    assert run(recipe_path) == undisturbed
    assert len(damaged) == 1
    assert sorted(Counter(name for name, _ in processed(log)).values())[-2:] == [1, 2]


class Shout(ResumableOperator):
    """Text in capitals; it may leave a row out."""

    forgets: str = ""

    def reads(self):
        return ("text",)

    def writes(self):
        return ("loud",)

    def apply(self, table):
        return Change({"loud": pa.array([text.upper() for text in table["text"].to_pylist()])})

    def process_rows(self, table, rows):
        for row in rows:
            if table["text"][row].as_py() != self.forgets:
                yield row, self.apply(table.slice(row, 1))


def run_shout(folder, texts, operator=None, size=3, task=None):
    """Run it on chunks of three texts; gives what was computed, and the commits."""
    parts = [texts[at : at + size] for at in range(0, len(texts), size)]
    todo = [
        ChunkToRun(
            lambda part=part: Frame.of(pa.table({"text": part})), folder / "step" / f"{n}.arrow"
        )
        for n, part in enumerate(parts)
    ]
    task = task or StepProgress(len(texts), lambda _: None)
    done = run_resumable(operator or Shout(), todo, folder / "kept-shout-1", task)
    assert task.done >= len(texts)
    wholes = [target_of(each.path) for each in todo]
    return done, [kept_chunk.load(each).change.columns["loud"].to_pylist() for each in wholes]


def test_finished_rows_are_put_on_the_disk_while_whole_chunks_are_passed(tmp_path, monkeypatch):
    """The first chunk is new, the last one as well, and there are nine whole ones between them."""
    monkeypatch.setattr(resumable_step, "_WALKED_CHUNKS", 4)
    whole = [chr(ord("b") + k) for k in range(9)]
    run_shout(tmp_path, whole, size=1)
    (tmp_path / "step").rename(tmp_path / "earlier")
    asked = []

    class Waits(Shout):
        def process_chunks(self, chunks):
            table, _ = next(chunks)
            while (chunk := next(chunks)) is None:
                asked.append(len(list((tmp_path / "step").iterdir())))
            yield 0, 0, self.apply(table)
            yield 1, 0, self.apply(chunk[0])
            assert next(chunks, "end") == "end"

    done, loud = run_shout(tmp_path, ["a", *whole, "z"], Waits(), size=1)
    assert (done, loud) == (Computed(2, 0), [[text.upper()] for text in ["a", *whole, "z"]])
    assert asked == [4, 8]


def test_a_row_that_is_left_out_of_some_chunk(tmp_path):
    with pytest.raises(OperatorError, match="left out 1 of 3 rows"):
        run_shout(tmp_path, list("abcdef"), Shout(forgets="b"))
    done, loud = run_shout(tmp_path, list("abcdef"))
    assert (done, loud) == (Computed(1, 0), [list("ABC"), list("DEF")])


@pytest.mark.parametrize("texts", ["abc", "abcdefghi", "abcabc"])
def test_journals_that_are_damaged_are_computed_again_at_most_twice(
    tmp_path, damage_journals, texts
):
    """Also where later chunks, one of them with the same rows, wait for the chunk."""
    whole = [list(texts[at : at + 3].upper()) for at in range(0, len(texts), 3)]
    damage_journals(2)
    task = StepProgress(None, lambda _: None)
    assert run_shout(tmp_path, list(texts), task=task)[1] == whole
    assert task.computed == len(set(texts)) + 2


def test_journals_that_are_damaged_again_and_again_end_the_run_with_one_line(
    tmp_path, damage_journals
):
    damaged = damage_journals(99)
    with pytest.raises(DataError) as raised:
        run_shout(tmp_path, list("abc"))
    folder = tmp_path / "kept-shout-1"
    (name,) = {file.name.rpartition("-")[0] for file in damaged}
    assert str(raised.value) == (
        f"{folder}/{name}-2.journal is damaged: 1 of 3 rows could not be read back, "
        "3 times in a row; check the disk; what can be read is kept"
    )
    assert_unlocked(folder, raised)
    damaged.extend([""] * 99)  # The disk is sound again.
    done, loud = run_shout(tmp_path, list("abcdef"))
    assert (done.rows, loud) == (4, [list("ABC"), list("DEF")])


def assert_unlocked(folder, raised):
    """No lock of a chunk is held while the error exists, which keeps what had locks in memory."""
    assert raised.traceback
    files = sorted(folder.glob("*.lock"))
    assert files
    for file in files:
        with FileLock(file, timeout=0):
            pass


@pytest.mark.parametrize("fails", ["link", "commit", "open"])
def test_no_lock_is_kept_whatever_fails(tmp_path, monkeypatch, fails):
    def full(*_):
        raise OSError(28, "No space left on device")

    run_shout(tmp_path, list("abc"))
    (tmp_path / "step" / "0.arrow").unlink()
    if fails == "link":
        monkeypatch.setattr(resumable_step, "link", full)
    else:
        monkeypatch.setattr(resumable_step._OpenChunk, fails, full)
    with pytest.raises(OSError, match="No space left") as raised:
        run_shout(tmp_path, list("abcdef") if fails == "link" else list("defabc"))
    assert_unlocked(tmp_path / "kept-shout-1", raised)


def test_no_lock_is_kept_where_journals_cannot_be_closed(tmp_path, monkeypatch):
    """All chunks that are open are left, not only those before the first that cannot be."""

    class Stops(Shout):
        def process_chunks(self, chunks):
            for number, (table, rows) in enumerate(list(chunks)):
                yield number, rows[0], self.apply(table.slice(0, 1))
            raise EngineError("the engine is gone")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "close", full)
    with pytest.raises(OSError, match="No space left") as raised:
        run_shout(tmp_path, list("abcdefghi"), Stops())
    assert len(list((tmp_path / "kept-shout-1").glob("*.lock"))) == 3
    assert_unlocked(tmp_path / "kept-shout-1", raised)


@pytest.mark.slow
def test_kept_rows_in_an_object_store(s3, tmp_path):
    folder = to_path(f"s3://rollouts/{tmp_path.name}")
    done, loud = run_shout(folder, list("abcdefg"))
    assert (done, loud) == (Computed(7, 0), [list("ABC"), list("DEF"), ["G"]])
    assert target_of(folder / "step" / "0.arrow").parent == folder / "kept-shout-1"
    assert not list((folder / "kept-shout-1").glob("*.journal"))
    # Other chunks of the same rows: they are found; and a link of which the chunk is gone is none.
    done, loud = run_shout(folder, list("abcdefg"), size=4)
    assert (done, loud) == (Computed(0, 0), [list("ABCD"), list("EFG")])


def test_journals_in_an_object_store_are_found_by_the_next_run(s3, tmp_path):
    folder = to_path(f"s3://rollouts/{tmp_path.name}")
    with pytest.raises(OperatorError, match="left out 1 of 3 rows"):
        run_shout(folder, list("abc"), Shout(forgets="b"))
    assert len(list((folder / "kept-shout-1").glob("*.journal"))) == 1
    done, loud = run_shout(folder, list("abc"))
    assert (done, loud) == (Computed(1, 0), [list("ABC")])
