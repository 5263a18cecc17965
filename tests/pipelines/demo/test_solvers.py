"""Simulated solvers: reproducible, and as reliable as they are meant to be."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.mapper.format_reward_mapper import is_tagged
from rejuice.operators.verifier import verify_batch
from rejuice.pipelines.demo.problems import (
    Problem,
    SolutionStep,
    calculate,
    problem,
    problems,
    seeded,
)
from rejuice.pipelines.demo.solvers import (
    MAX_WORDS,
    SOLVERS,
    SolverResponse,
    _slip,
    respond,
    solver_of,
    worked,
)

MARKS = [("<think>", "</think>"), ("<answer>", "</answer>")]


class Graded:
    """The solvers' responses to the first problems, with their verdicts, in groups of 8."""

    def __init__(self, n: int) -> None:
        self.problems = list(problems(0, "train", n))
        self.responses = [
            [respond(p, solver_of(p, 0, k), 0, k) for k in range(8)] for p in self.problems
        ]
        flat = [response.text for group in self.responses for response in group]
        references = [str(p.reference) for p in self.problems for _ in range(8)]
        verdicts = verify_batch(flat, references, workers=1)
        correct = [verdict.verdict == "correct" for verdict in verdicts]
        self.correct = [correct[8 * i : 8 * i + 8] for i in range(n)]
        self.errors = Counter(verdict.verdict for verdict in verdicts)

    def accuracy(self) -> dict[str, float]:
        found = defaultdict[str, list[bool]](list)
        for group, correct in zip(self.responses, self.correct, strict=True):
            for response, right in zip(group, correct, strict=True):
                found[response.student].append(right)
        return {solver: sum(right) / len(right) for solver, right in found.items()}


@pytest.fixture(scope="module")
def graded() -> Graded:
    return Graded(600)


def test_overall_accuracy_and_mixed_groups(graded: Graded):
    right = [sum(group) for group in graded.correct]
    assert sum(right) / (8 * len(right)) == pytest.approx(0.53, abs=0.05)
    assert 0.05 < right.count(8) / len(right) < 0.15
    assert 0.02 < right.count(0) / len(right) < 0.12


def test_every_careful_response_is_right_and_each_solver_has_its_reliability(graded: Graded):
    accuracy = graded.accuracy()
    assert accuracy.keys() == SOLVERS.keys()
    assert accuracy["careful"] == 1.0
    order = ["careful", "brief", "hasty", "sloppy", "guessing"]
    assert sorted(order, key=accuracy.__getitem__, reverse=True) == order


def test_nothing_is_beyond_the_verifier(graded: Graded):
    assert graded.errors.keys() == {"correct", "wrong_answer", "no_answer"}


def test_the_form(graded: Graded):
    for group in graded.responses:
        for response in group:
            if response.finish_reason == "length":
                assert len(response.text.split(" ")) == MAX_WORDS
                assert "</think>" not in response.text
            elif response.student == "untidy":
                assert not is_tagged(response.text, MARKS)
            else:
                assert is_tagged(response.text, MARKS), response.text


def test_some_are_cut_some_repeat_word_for_word(graded: Graded):
    n = 8 * len(graded.responses)
    texts = [[response.text for response in group] for group in graded.responses]
    repeats = sum(len(group) - len(set(group)) for group in texts)
    cut = sum(r.finish_reason == "length" for group in graded.responses for r in group)
    assert 0.05 < repeats / n < 0.2
    assert 0.003 < cut / n < 0.03


def test_some_are_nearly_the_same():
    easy = problem(0, "train", 0, levels=(3,))
    texts = {respond(easy, "careful", 0, k).text for k in range(50)}
    assert len(texts) == 9
    solution = " ".join(easy.answer.split("\n")[:-1])
    assert all(solution in text for text in texts)


@given(st.sampled_from(list(SOLVERS)), st.integers(0, 2**64), st.integers(0, 1_000))
def test_a_response_depends_on_its_arguments_alone(solver, seed: int, k: int):
    one = problem(0, "train", 5)
    first = respond(one, solver, seed, k)
    respond(one, solver, seed, k + 1)
    assert respond(one, solver, seed, k) == first
    assert isinstance(first, SolverResponse)
    assert first.text.isascii()


@pytest.mark.parametrize("argument", ["problem", "solver", "seed", "k"])
def test_each_argument_matters(argument: str):
    one, other = problem(0, "train", 5), problem(0, "train", 6)
    base = [respond(one, "sloppy", 0, k).text for k in range(20)]
    changed = {
        "problem": [respond(other, "sloppy", 0, k).text for k in range(20)],
        "solver": [respond(one, "rambling", 0, k).text for k in range(20)],
        "seed": [respond(one, "sloppy", 1, k).text for k in range(20)],
        "k": [respond(one, "sloppy", 0, k).text for k in range(20, 40)],
    }
    assert changed[argument] != base


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_slip_makes_a_step_wrong(i: int, key: int):
    for step in problem(0, "train", i).steps:
        slipped = _slip(step, seeded(key))
        assert slipped.result != step.result
        assert slipped.result >= 0
        assert (slipped.left, slipped.right, slipped.sentence) == (
            step.left,
            step.right,
            step.sentence,
        )


def test_a_comparison_is_taken_the_wrong_way_round():
    more = SolutionStep(12, "+", 5, 17, (None, None), True, "B has {step} apples.")
    slips = {_slip(more, seeded(key)).equation for key in range(200)}
    assert slips == {"12 - 5 = 7", "12 + 5 = 27", "12 + 5 = 7", "12 + 5 = 18", "12 + 5 = 16"}


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_wrong_result_goes_on_into_the_next_step(i: int, key: int):
    one = problem(0, "train", i, levels=(3, 4))
    done = worked(one, seeded(key), slips=1.0)
    for step in done:
        for operand, place in zip((step.left, step.right), step.uses, strict=True):
            assert place is None or operand == done[place].result


def test_without_slips_a_solver_solves_the_problem():
    one: Problem = problem(0, "train", 9)
    assert worked(one, seeded(0), slips=0.0) == list(one.steps)


@pytest.mark.parametrize(
    ("left", "operation", "right", "result"),
    [(7, "+", 2, 9), (2, "-", 7, 0), (7, "*", 2, 14), (7, "/", 2, 3), (7, "/", 0, 7)],
)
def test_calculate(left: int, operation: str, right: int, result: int):
    assert calculate(left, operation, right) == result
