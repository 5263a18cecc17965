"""Simulated solvers: what policies of differing care would answer, right and wrong.

A response has the form `<think>...</think><answer>N</answer>`, or falls short of it in a way that
sampled responses do: cut at a length, without a tag, repeated almost word for word.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from .numbers import Operation, calculate, hashed, pick, seeded
from .problems import Problem, Step

Student = Literal["careful", "brief", "hasty", "sloppy", "untidy", "rambling", "guessing"]

MAX_WORDS = 100
"""A response is cut after so many words, like one that runs into the token limit."""

_REVERSED: Mapping[Operation, Operation] = {"+": "-", "-": "+", "*": "/", "/": "*"}
_CONFUSED: Mapping[Operation, Operation] = {"+": "*", "-": "+", "*": "+", "/": "-"}
_OPENINGS = ("", "Let me work step by step. ", "I take one step at a time. ")
_CLOSINGS = ("", " So the answer is {}.", " That makes {}.")
_DOUBTS = ("Wait, let me check that again.", "Hmm, is that right?", "I will do it once more.")


class Response(NamedTuple):
    """What a student wrote.

    Attributes:
        text: the response.
        finish_reason: `stop`, or `length` where it was cut.
        student: who wrote it.
    """

    text: str
    finish_reason: Literal["stop", "length"]
    student: Student


def respond(problem: Problem, student: Student, seed: int, k: int) -> Response:
    """The `k`-th response of a student, which depends on the arguments and on nothing else."""
    rng = seeded(seed, k, student, problem.question)
    text = STUDENTS[student](problem, rng)
    words = text.split(" ")
    if len(words) <= MAX_WORDS:
        return Response(text, "stop", student)
    return Response(" ".join(words[:MAX_WORDS]), "length", student)


def student_of(problem: Problem, seed: int, k: int) -> Student:
    """Who gives response `k` to a problem: the easier it is for this class, the better students.

    How easy a problem is follows from its level and a number of its own, so that some groups of
    responses are all right, some all wrong, and most are mixed.
    """
    ease = 6 * _unit(seed, problem.question) - 2.8 - 0.5 * problem.level
    place = _unit(seed, k, problem.question) ** (2**ease)
    return _ORDER[min(int(place * len(_ORDER)), len(_ORDER) - 1)]


def _careful(problem: Problem, rng: random.Random) -> str:
    """Every step in words, and right."""
    steps = list(problem.steps)
    return _tagged(_told(steps, rng), steps[-1].result)


def _brief(problem: Problem, rng: random.Random) -> str:
    """Bare equations, now and then with a slip."""
    steps = worked(problem, rng, slips=0.12)
    return _tagged(", ".join(step.equation for step in steps) + ".", steps[-1].result)


def _hasty(problem: Problem, rng: random.Random) -> str:
    """Skips what seems clear, and often stops a step too early."""
    steps = worked(problem, rng, slips=0.12)
    if len(steps) > 1 and rng.random() < 0.5:
        steps = steps[:-1]
    last = steps[-1]
    return _tagged(f"That is easy: {last.says.format(step=last.result)}", last.result)


def _sloppy(problem: Problem, rng: random.Random) -> str:
    """Every step in words, many of them with a slip that goes on into the next."""
    steps = worked(problem, rng, slips=0.45)
    return _tagged(_told(steps, rng), steps[-1].result)


def _untidy(problem: Problem, rng: random.Random) -> str:
    """Mostly right, but seldom in the form that was asked for."""
    steps = worked(problem, rng, slips=0.1)
    think, answer = _told(steps, rng), steps[-1].result
    forms = (
        f"{think} The answer is {answer}.",
        f"<think>{think}</think> The answer is {answer}.",
        f"<think>{think}<answer>{answer}</answer>",
        f"<answer>{answer}</answer><think>{think}</think>",
        f"<think>{think}</think><answer>{answer}</answer> I hope this helps.",
    )
    return pick(rng, forms)


def _rambling(problem: Problem, rng: random.Random) -> str:
    """Doubts every step and says it all again, at times beyond the length limit."""
    steps = worked(problem, rng, slips=0.15)
    once = [step.says.format(step=step.equation) for step in steps]
    think = list(once)
    for _ in range(int(rng.random() * 5)):
        think += [pick(rng, _DOUBTS), *once]
    return _tagged(" ".join(think), steps[-1].result)


def _guessing(problem: Problem, rng: random.Random) -> str:
    """Names a number that looks likely."""
    near = problem.reference + pick(rng, (-10, -2, -1, 0, 1, 2, 10))
    guesses = (sum(problem.numbers), max(problem.numbers), max(near, 0))
    guess = pick(rng, guesses)
    return _tagged(pick(rng, ("I guess it is {}.", "It may be {}.")).format(guess), guess)


def worked(problem: Problem, rng: random.Random, *, slips: float) -> list[Step]:
    """The steps as a student does them; a wrong result goes on into the steps that use it.

    Args:
        slips: the chance that a step goes wrong.
    """
    done = list[Step]()
    for step in problem.steps:
        left, right = (
            given if place is None else done[place].result
            for given, place in zip((step.left, step.right), step.uses, strict=True)
        )
        right_way = step._replace(
            left=left, right=right, result=calculate(left, step.operation, right)
        )
        done.append(_slip(right_way, rng) if rng.random() < slips else right_way)
    return done


def _slip(step: Step, rng: random.Random) -> Step:
    """The step gone wrong: a comparison reversed, another operation, a digit or a carry off."""
    kind = rng.random()
    if kind < 0.5:
        operations = _REVERSED if step.compares else _CONFUSED
        operation = operations[step.operation]
        result = calculate(step.left, operation, step.right)
        if result != step.result:
            return step._replace(operation=operation, result=result)
    off = (10 if kind < 0.8 else 1) * pick(rng, (-1, 1))
    return step._replace(result=step.result + (off if step.result + off >= 0 else -off))


def _told(steps: list[Step], rng: random.Random) -> str:
    # Few openings and closings: a policy that is sure of itself says the same thing again.
    told = " ".join(step.says.format(step=step.equation) for step in steps)
    return pick(rng, _OPENINGS) + told + pick(rng, _CLOSINGS).format(steps[-1].result)


def _tagged(think: str, answer: int) -> str:
    return f"<think>{think}</think><answer>{answer}</answer>"


def _unit(*key: object) -> float:
    return hashed("/".join(map(str, key))) / 2**64


STUDENTS: Mapping[Student, Callable[[Problem, random.Random], str]] = {
    "careful": _careful,
    "brief": _brief,
    "hasty": _hasty,
    "sloppy": _sloppy,
    "untidy": _untidy,
    "rambling": _rambling,
    "guessing": _guessing,
}
"""The students, each a way to write a response."""

_ORDER: tuple[Student, ...] = (
    *("careful",) * 4, "brief", "brief", "untidy", "hasty",
    "rambling", "hasty", "sloppy", "sloppy", "guessing",
)  # fmt: skip
"""From the most to the least reliable, each as often as its share."""
