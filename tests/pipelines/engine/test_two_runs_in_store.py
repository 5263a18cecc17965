"""Two runs on one cache in an object store, where no lock keeps them apart: the first chunk stays."""

import threading

import pyarrow as pa
import pytest

from rejuice.operators import Change, EngineError, ResumableOperator
from rejuice.pipelines.dataset import remote
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.engine import paid_rows_format as kept_chunk
from rejuice.pipelines.engine import resumable_step
from rejuice.pipelines.engine.commit import target_of
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.paid_rows import Journal, entries, journals
from rejuice.pipelines.engine.progress import StepProgress
from rejuice.pipelines.engine.resumable_step import ChunkToRun, run_resumable

TEXTS = ["a", "b", "c"]


class Sample(ResumableOperator):
    """A sample of each text that names the run; something may happen before the last row."""

    run: str
    drops: str = ""

    def reads(self):
        return ("text",)

    def writes(self):
        return ("sample",)

    def apply(self, table):
        texts = table["text"].to_pylist()
        reasons = pa.array(["gone" if text == self.drops else None for text in texts], pa.string())
        return Change({"sample": pa.array([f"{text} of {self.run}" for text in texts])}, reasons)

    def process_rows(self, table, rows):
        for row in rows:
            if row == rows[-1]:
                MEANWHILE.pop(self.run, lambda: None)()
            COMPUTED.append((self.run, row))
            yield row, self.apply(table.slice(row, 1))


MEANWHILE = {}
COMPUTED = []


@pytest.fixture
def cache(s3, tmp_path):
    MEANWHILE.clear()
    COMPUTED.clear()
    return to_path(f"s3://rollouts/{tmp_path.name}")


def run(cache, name, **options):
    """The samples that a run has after its step; each has its own place for the commit."""
    todo = ChunkToRun(lambda: Frame.of(pa.table({"text": TEXTS})), cache / name / "0.arrow")
    task = StepProgress(len(TEXTS), lambda _: None)
    run_resumable(Sample(run=name, **options), [todo], cache / "kept-sample-1", task)
    return samples(cache, name)


def samples(cache, name):
    whole = target_of(cache / name / "0.arrow")
    return kept_chunk.load(whole).change.columns["sample"].to_pylist()


@pytest.mark.slow
def test_what_another_run_has_committed_meanwhile_stays(cache):
    found = {}
    MEANWHILE["first"] = lambda: found.update(second=run(cache, "second"))
    assert run(cache, "first") == found["second"] == samples(cache, "second")
    assert COMPUTED.count(("first", 0)) == 1, "what the other has removed is not computed again"
    assert len(COMPUTED) <= 2 * len(TEXTS)
    assert not list((cache / "kept-sample-1").glob("*.journal"))


@pytest.mark.slow
def test_of_two_runs_that_finish_a_chunk_at_once_one_writes_it(cache, monkeypatch):
    found, save, at_work = {}, kept_chunk.save, remote._at_work
    opened, goes_on, asked = (threading.Event() for _ in range(3))
    second = threading.Thread(target=lambda: found.update(second=run(cache, "second")))
    MEANWHILE["second"] = lambda: (opened.set(), goes_on.wait(60))

    def save_once_the_other_is_finished_or_waits(*arguments):
        monkeypatch.setattr(kept_chunk, "save", save)
        goes_on.set()
        while second.is_alive() and not asked.wait(0.05):
            pass
        save(*arguments)

    monkeypatch.setattr(kept_chunk, "save", save_once_the_other_is_finished_or_waits)
    monkeypatch.setattr(remote, "_BEAT_S", 0.2)
    monkeypatch.setattr(remote, "_at_work", lambda *each: (asked.set(), at_work(*each))[1])
    second.start()
    assert opened.wait(60)
    found["first"] = run(cache, "first")
    second.join()
    assert found["first"] == found["second"] == samples(cache, "first")
    assert found["first"][-1] == "c of first"
    assert not list((cache / "kept-sample-1").glob("*.lock*"))


def test_what_another_run_has_journalled_meanwhile_is_used(cache):
    def stop():
        raise EngineError("the server is gone")

    def other():
        MEANWHILE["second"] = stop
        with pytest.raises(EngineError):
            run(cache, "second")

    MEANWHILE["first"] = other
    found = run(cache, "first", drops="a")
    assert found == ["a of second", *found[1:]]


def test_a_chunk_that_another_run_finishes_while_it_is_opened_is_not_computed_again(
    cache, monkeypatch
):
    read = resumable_step.journalled

    def read_too_late(whole):
        monkeypatch.setattr(resumable_step, "journalled", read)
        run(cache, "second")
        return read(whole)

    monkeypatch.setattr(resumable_step, "journalled", read_too_late)
    assert run(cache, "first") == samples(cache, "second")
    assert {name for name, _ in COMPUTED} == {"second"}


def test_a_journal_that_another_run_removes_while_it_is_read(cache, monkeypatch):
    whole = cache / "kept-sample-1" / "x.arrow"
    with Journal(whole):
        pass
    gone = whole.with_name("x-1.journal")
    monkeypatch.setattr(
        "rejuice.pipelines.engine.paid_rows.journals", lambda path: [gone, *journals(path)]
    )
    assert list(entries(whole)) == []
