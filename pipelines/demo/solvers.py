"""Simulated solvers of problems: right and wrong responses of policies that differ in care.

A response has the form `<think>...</think><answer>N</answer>`, or misses it as sampled responses
do: it is cut at a length, lacks a tag or repeats itself almost word for word.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from .problems import (
    Operation,
    Problem,
    SolutionStep,
    calculate,
    hashed,
    pick,
    seeded,
)

Solver = Literal["careful", "brief", "hasty", "sloppy", "untidy", "rambling", "guessing"]

MAX_WORDS = 100
"""A response is cut after so many words, like one that runs into the token limit."""

_REVERSED: Mapping[Operation, Operation] = {"+": "-", "-": "+", "*": "/", "/": "*"}
_CONFUSED: Mapping[Operation, Operation] = {"+": "*", "-": "+", "*": "+", "/": "-"}
_OPENINGS = ("", "Let me work step by step. ", "I take one step at a time. ")
_CLOSINGS = ("", " So the answer is {}.", " That makes {}.")
_DOUBTS = ("Wait, let me check that again.", "Hmm, is that right?", "I will do it once more.")


class SolverResponse(NamedTuple):
    text: str  # the response
    finish_reason: Literal["stop", "length"]  # `stop`, or `length` where it was cut
    student: Solver  # the solver; the datasets have had a column of this name from the beginning


def respond(problem: Problem, solver: Solver, seed: int, k: int) -> SolverResponse:
    """The `k`-th response of a solver, which depends on the arguments and on nothing else."""
    rng = seeded(seed, k, solver, problem.question)
    text = SOLVERS[solver](problem, rng)
    words = text.split(" ")
    if len(words) <= MAX_WORDS:
        return SolverResponse(text, "stop", solver)
    return SolverResponse(" ".join(words[:MAX_WORDS]), "length", solver)


def solver_of(problem: Problem, seed: int, k: int) -> Solver:
    """Who gives response `k` to a problem: an easy problem gets the better solvers.

    How easy a problem is depends on its level and on a hash of its question. So some groups of
    responses are all right, some are all wrong, and most are mixed.
    """
    ease = 6 * _unit(seed, problem.question) - 2.8 - 0.5 * problem.level
    place = _unit(seed, k, problem.question) ** (2**ease)
    return _ORDER[min(int(place * len(_ORDER)), len(_ORDER) - 1)]


def _careful(problem: Problem, rng: random.Random) -> str:
    steps = list(problem.steps)
    return _tagged(_in_words(steps, rng), steps[-1].result)


def _brief(problem: Problem, rng: random.Random) -> str:
    steps = worked(problem, rng, slips=0.12)
    return _tagged(", ".join(step.equation for step in steps) + ".", steps[-1].result)


def _hasty(problem: Problem, rng: random.Random) -> str:
    steps = worked(problem, rng, slips=0.12)
    if len(steps) > 1 and rng.random() < 0.5:
        steps = steps[:-1]
    last = steps[-1]
    return _tagged(f"That is easy: {last.sentence.format(step=last.result)}", last.result)


def _sloppy(problem: Problem, rng: random.Random) -> str:
    steps = worked(problem, rng, slips=0.45)
    return _tagged(_in_words(steps, rng), steps[-1].result)


def _untidy(problem: Problem, rng: random.Random) -> str:
    steps = worked(problem, rng, slips=0.1)
    think, answer = _in_words(steps, rng), steps[-1].result
    forms = (
        f"{think} The answer is {answer}.",
        f"<think>{think}</think> The answer is {answer}.",
        f"<think>{think}<answer>{answer}</answer>",
        f"<answer>{answer}</answer><think>{think}</think>",
        f"<think>{think}</think><answer>{answer}</answer> I hope this helps.",
    )
    return pick(rng, forms)


def _rambling(problem: Problem, rng: random.Random) -> str:
    steps = worked(problem, rng, slips=0.15)
    once = [step.sentence.format(step=step.equation) for step in steps]
    think = list(once)
    for _ in range(int(rng.random() * 5)):
        think += [pick(rng, _DOUBTS), *once]
    return _tagged(" ".join(think), steps[-1].result)


def _guessing(problem: Problem, rng: random.Random) -> str:
    near = problem.reference + pick(rng, (-10, -2, -1, 0, 1, 2, 10))
    guesses = (sum(problem.numbers), max(problem.numbers), max(near, 0))
    guess = pick(rng, guesses)
    return _tagged(pick(rng, ("I guess it is {}.", "It may be {}.")).format(guess), guess)


def worked(problem: Problem, rng: random.Random, *, slips: float) -> list[SolutionStep]:
    """The steps as a solver writes them; later steps build on a wrong result."""
    done = list[SolutionStep]()
    for step in problem.steps:
        left, right = (
            given if place is None else done[place].result
            for given, place in zip((step.left, step.right), step.uses, strict=True)
        )
        correct = step._replace(
            left=left, right=right, result=calculate(left, step.operation, right)
        )
        done.append(_slip(correct, rng) if rng.random() < slips else correct)
    return done


def _slip(step: SolutionStep, rng: random.Random) -> SolutionStep:
    """The step with a mistake: a reversed comparison, another operation, a wrong digit or carry."""
    kind = rng.random()
    if kind < 0.5:
        operations = _REVERSED if step.compares else _CONFUSED
        operation = operations[step.operation]
        result = calculate(step.left, operation, step.right)
        if result != step.result:
            return step._replace(operation=operation, result=result)
    off = (10 if kind < 0.8 else 1) * pick(rng, (-1, 1))
    return step._replace(result=step.result + (off if step.result + off >= 0 else -off))


def _in_words(steps: list[SolutionStep], rng: random.Random) -> str:
    # There are few openings and closings: a confident policy repeats itself between samples.
    text = " ".join(step.sentence.format(step=step.equation) for step in steps)
    return pick(rng, _OPENINGS) + text + pick(rng, _CLOSINGS).format(steps[-1].result)


def _tagged(think: str, answer: int) -> str:
    return f"<think>{think}</think><answer>{answer}</answer>"


def _unit(*key: object) -> float:
    return hashed("/".join(map(str, key))) / 2**64


SOLVERS: Mapping[Solver, Callable[[Problem, random.Random], str]] = {
    "careful": _careful,
    "brief": _brief,
    "hasty": _hasty,
    "sloppy": _sloppy,
    "untidy": _untidy,
    "rambling": _rambling,
    "guessing": _guessing,
}
"""How each solver writes a response."""

_ORDER: tuple[Solver, ...] = (
    *("careful",) * 4, "brief", "brief", "untidy", "hasty",
    "rambling", "hasty", "sloppy", "sloppy", "guessing",
)  # fmt: skip
"""From the most to the least reliable, each as often as its share."""
