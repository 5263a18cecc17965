"""Queued answers: which they are, how old, and that a resumed run has the same."""

import collections
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fake_run import save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.pipelines.recipe.train import Train, Verification
from rejuice.trainer.verl.judging import SAMPLED_AT, AnswerQueue


@pytest.fixture
def answers(tmp_path):
    def make(saved=(), schedule="verify_alter", **verification):
        config = Train(schedule=schedule, verification=Verification(**verification))
        run = SimpleNamespace(
            config=config,
            step_folder=lambda step: tmp_path / f"{step:06d}",
            folder=tmp_path,
        )
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        for step in saved:
            save(tmp_path, step)
        return AnswerQueue(run)

    return make


def graded(*rows):
    """Rows of (prompt, response)."""
    return pa.table(
        {
            "prompt_id": pa.array([prompt for prompt, _ in rows], pa.string()),
            "response_id": pa.array([f"{p}/{response}" for p, response in rows], pa.string()),
            "response_token_ids": pa.array([[1, 2]] * len(rows), pa.list_(pa.int32())),
        }
    )


def reported(waiting):
    ids, steps = (waiting.table[name].to_pylist() for name in ("response_id", SAMPLED_AT))
    return [f"{name}@{step}" for name, step in zip(ids, steps, strict=True)]


def test_all_of_a_window_newest_first_and_prompts_together(answers):
    kept = answers()
    kept.keep(1, graded(("p", "a"), ("p", "b"), ("q", "c")))
    kept.keep(2, graded(("r", "d"), ("p", "e")))
    assert reported(kept.take(1, 2)) == ["r/d@2", "p/e@2", "p/a@1", "p/b@1", "q/c@1"]
    assert reported(kept.take(2, 2)) == ["r/d@2", "p/e@2"]
    assert "response_token_ids" not in kept.take(1, 2).table.column_names


def test_a_step_alone_is_as_it_was(answers):
    kept = answers()
    kept.keep(4, graded(("z", "a"), ("z", "b"), ("a", "c")))
    assert reported(kept.take(4, 4)) == ["z/a@4", "z/b@4", "a/c@4"]


def test_what_is_too_old_is_flushed_and_counted(answers):
    kept = answers(max_age=1)
    for step in (1, 2, 3):
        kept.keep(step, graded(("p", str(step)), ("q", str(step))))
    waiting = kept.take(1, 3)
    assert sorted(reported(waiting)) == ["p/2@2", "p/3@3", "q/2@2", "q/3@3"]
    assert (waiting.stale, waiting.over) == (2, 0)


def test_the_oldest_go_where_there_are_too_many(answers):
    kept = answers(capacity=3)
    kept.keep(1, graded(("z", "x")))
    kept.keep(2, graded(("p", "a"), ("p", "b")))
    kept.keep(3, graded(("q", "c"), ("q", "d")))
    waiting = kept.take(1, 3)
    # Not half of p, and nothing older than p instead.
    assert reported(waiting) == ["q/c@3", "q/d@3"]
    assert (waiting.stale, waiting.over) == (0, 3)


def groups_of(step, prompts, size=2):
    return graded(*((f"{step}-{at:02d}", str(k)) for at in range(prompts) for k in range(size)))


def prompts_of(waiting):
    """How many answers of each prompt."""
    return collections.Counter(waiting.table["prompt_id"].to_pylist())


@pytest.mark.parametrize("newer", [0, 3])
def test_of_the_step_that_does_not_fit_whole_prompts_are_dropped_at_random(answers, newer):
    """Were the last rows cut off, late prompts would always go."""
    lots = []
    for step in range(1, 41):
        kept = answers(capacity=21 + 2 * newer)  # Ten whole prompts of 20, beside the newer ones.
        kept.keep(step, groups_of(step, 20))
        kept.keep(step + 1, groups_of(step + 1, newer))
        waiting = kept.take(step, step + 1)
        count = prompts_of(waiting)
        assert set(count.values()) == {2}
        assert sorted(name for name in count if name.startswith(f"{step + 1}-")) == [
            f"{step + 1}-{at:02d}" for at in range(newer)
        ]
        lots.append([int(name[-2:]) for name in count if name.startswith(f"{step}-")])
        assert len(lots[-1]) == 10
        assert waiting.over == 20
    drawn = collections.Counter(at for lot in lots for at in lot)
    # Binomial: each prompt 20 times of 40, with a standard deviation of 3.2.
    assert set(drawn) == set(range(20))
    assert 7 <= min(drawn.values()) <= max(drawn.values()) <= 33
    late = sum(drawn[at] for at in range(10, 20))
    assert 160 < late < 240


def test_the_lot_is_the_same_at_a_later_step_and_in_another_process(answers):
    kept = answers(capacity=20)
    kept.keep(1, groups_of(1, 20))
    first = kept.take(1, 1)
    assert len(reported(first)) == 20
    kept.keep(2, graded())
    assert answers(capacity=20).take(1, 2).table.equals(first.table)
    kept.keep(3, groups_of(3, 2))
    later = prompts_of(answers(capacity=20).take(1, 3))
    assert {name for name in later if name.startswith("1-")} < set(prompts_of(first))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(1, 4)))), st.integers(1, 12)
)
def test_whatever_is_queued_newer_steps_are_whole_and_no_group_is_split(answers, steps, capacity):
    steps = [dict(groups) for groups in steps[:4]] or [{}]
    kept = answers(capacity=capacity)
    for step, groups in enumerate(steps, 1):
        kept.keep(
            step, graded(*((p, f"{step}.{k}") for p, size in groups.items() for k in range(size)))
        )
    waiting = kept.take(1, len(steps))
    rows = waiting.table.select(["prompt_id", SAMPLED_AT]).to_pylist()
    found = collections.Counter((row[SAMPLED_AT], row["prompt_id"]) for row in rows)
    assert len(rows) <= capacity
    assert len(rows) + waiting.over == sum(sum(groups.values()) for groups in steps)
    assert all(steps[step - 1][prompt] == size for (step, prompt), size in found.items())
    # Of one step at most there is a part, and nothing of those before it.
    whole = [
        sum(groups.values()) == sum(found[step, prompt] for prompt in groups)
        for step, groups in enumerate(steps, 1)
    ]
    thinned = max((step for step, is_whole in enumerate(whole, 1) if not is_whole), default=0)
    assert not [step for step, _ in found if step < thinned]
    if thinned:
        room = capacity - sum(size for (step, _), size in found.items() if step > thinned)
        assert sum(steps[thinned - 1].values()) > room


def test_the_same_answer_at_two_steps_is_there_once_of_the_later(answers):
    kept = answers()
    kept.keep(1, graded(("p", "a"), ("p", "b")))
    kept.keep(2, graded(("p", "a")))
    waiting = kept.take(1, 2)
    assert reported(waiting) == ["p/a@2", "p/b@1"]
    assert waiting.repeated == 1


def test_another_process_finds_the_same(answers):
    first = answers()
    for step in (1, 2):
        first.keep(step, graded(("p", str(step))))
    again = answers()
    again.keep(2, graded(("p", "2")))  # The step that is done again.
    assert again.take(1, 2).table.equals(first.take(1, 2).table)


def test_a_step_that_kept_none_is_counted(answers):
    """As where the run was of another schedule before it was resumed."""
    kept = answers()
    kept.keep(3, graded(("p", "a")))
    waiting = kept.take(1, 3)
    assert reported(waiting) == ["p/a@3"]
    assert waiting.lacking == 2


def waiting_steps(folder):
    """The steps with a file of queued answers."""
    return sorted(int(path.parent.name) for path in folder.glob("*/answers.arrow"))


@pytest.mark.parametrize(
    ("saved", "left"),
    [
        ([], []),  # A run without a checkpoint starts again from the first step.
        ([5], []),  # Between two windows.
        ([5, 8], [6, 7, 8]),  # In the middle of the window: a resume judges these again.
        ([3, 8], [1, 2, 3, 6, 7, 8]),
        ([10], []),
    ],
)
def test_judged_answers_are_removed_unless_a_checkpoint_needs_them(answers, tmp_path, saved, left):
    kept = answers(saved, every=5)
    for step in range(1, 11):
        kept.keep(step, graded(("p", str(step))))
    assert len(reported(kept.take(6, 10))) == 5
    kept.forget(10)
    assert waiting_steps(tmp_path) == left


def test_what_is_judged_later_stays(answers, tmp_path):
    """As after a resume from an earlier step: what later ones had queued is written again."""
    kept = answers(every=5)
    for step in (4, 5, 6):
        kept.keep(step, graded(("p", str(step))))
    kept.forget(5)
    assert waiting_steps(tmp_path) == [6]


@pytest.mark.parametrize("schedule", ["self_verify", "mixed"])
def test_a_step_that_judges_its_own_answers_keeps_none(answers, tmp_path, schedule):
    kept = answers([1, 2], schedule)
    for step in (1, 2, 3):
        kept.keep(step, graded(("p", str(step))))
        kept.forget(step)
        assert waiting_steps(tmp_path) == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.integers(1, 3))
def test_a_resume_from_any_checkpoint_judges_what_the_run_did(
    answers, tmp_path, every, killed, save_every, keep
):
    """The oldest checkpoint that is kept needs the most."""
    for path in tmp_path.glob("*/answers.arrow"):
        path.unlink()

    def goes_on(first, last, saved):
        seen = {}
        for step in range(first, last + 1):
            kept = answers(saved[-keep:], every=every)
            kept.keep(step, graded(("p", str(step))))
            if step % every == 0:
                seen[step] = reported(kept.take(step - every + 1, step))
                kept.forget(step)
            if step % save_every == 0:
                saved.append(step)
        return seen

    saved = []
    goes_on(1, killed, saved)
    checkpoint = (saved[-keep:] or [0])[0]
    seen = goes_on(checkpoint + 1, 12, [each for each in saved if each <= checkpoint])
    assert seen == {
        step: [f"p/{at}@{at}" for at in range(step, step - every, -1)]
        for step in range(checkpoint + 1, 13)
        if step % every == 0
    }


def test_a_step_without_answers(answers):
    kept = answers()
    kept.keep(1, graded())
    kept.keep(2, graded(("p", "a")))
    assert reported(kept.take(1, 2)) == ["p/a@2"]
    assert kept.take(1, 1).table.num_rows == 0
