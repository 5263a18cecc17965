"""Small programming problems with tests of both styles, and simulated programs with typical faults.

A problem asks for a function of one argument and for a script around it. So the same program can be
tested by assertions about the function, and by what it prints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from .problems import Split, distinct, hashed, pick, read_texts, seeded, split_of

Argument: TypeAlias = int | str | list[int]
"""What a function of a problem is given; a script reads it from one line."""
Programmer = Literal[
    "right", "off_by_one", "wrong_type", "other_operation", "half_done", "exits_early",
    "syntax_error", "no_code", "endless_loop",
]  # fmt: skip
CASES = 4
"""Tests of a problem, in each style."""
_MOST_REPEATS = 100
_READ = {
    "number": "int(input())",
    "numbers": "list(map(int, input().split()))",
    "text": "input()",
}
_QUESTION = (
    "Write a Python function `{name}({parameter})` that {task}. "
    "Run as a script, the program reads the argument from one line and prints the result."
)
_WORDS = ("apple", "river", "stone", "cloud", "paper", "green", "table", "seven", "moon", "window")


class CodeTemplate(NamedTuple):
    name: str  # of the function
    parameter: str  # of the function, a key of the ways to read it
    task: str  # what the function does, with slots for three numbers and a letter
    result: str  # the right result, as an expression with the same slots
    other: str  # the result of a program that has misread the task


CODE_TEMPLATES = tuple(CodeTemplate(**each) for each in read_texts("code.yaml"))
"""Templates of all splits."""


class CodeProblem(NamedTuple):
    question: str  # the text
    template: CodeTemplate  # what it was made of
    result: str  # the right result, as an expression
    other: str  # that of a program that has misread the task
    cases: tuple[tuple[Argument, int], ...]  # arguments, each with its right result

    @property
    def code(self) -> str:
        return _program(self, f"    return {self.result}\n")

    @property
    def assertions(self) -> list[str]:
        return [
            f"assert {self.template.name}({given!r}) == {result}" for given, result in self.cases
        ]

    @property
    def inputs(self) -> list[dict[str, str]]:
        """The tests as `input` and `output` of the script."""
        return [
            {"input": f"{_line(given)}\n", "output": f"{result}\n"} for given, result in self.cases
        ]


def code_problems(seed: int, split: Split, n: int) -> Iterator[CodeProblem]:
    """The first `n` problems of a split with different questions; no two splits share one."""
    made = partial(_problem, seed, split)
    return distinct(made, n, "problems", lambda each: each.question)


def programs(problem: CodeProblem, seed: int, n: int) -> Iterator[tuple[str, Programmer]]:
    """Yield the responses of `n` programmers to a problem, each with who has written it.

    Some problems are easier than others, so some groups are all right, and most are mixed.
    """
    ease = 0.15 + 0.8 * hashed(f"{seed}/{problem.question}") / 2**64
    for k in range(n):
        rng = seeded(seed, k, problem.question)
        programmer = "right" if rng.random() < ease else pick(rng, _FAULTY)
        yield PROGRAMMERS[programmer](problem, rng), programmer


def _problem(seed: int, split: Split, i: int) -> CodeProblem | None:
    rng = seeded("code", seed, split, i)
    template = CODE_TEMPLATES[i % len(CODE_TEMPLATES)]
    for _ in range(_MOST_REPEATS):
        a, b = 2 + int(rng.random() * 30), 3 + int(rng.random() * 30)
        slots = {"a": a, "b": b, "d": 3 + a % 4, "c": repr(pick(rng, "aeorstn"))}
        question = _QUESTION.format(
            name=template.name, parameter=template.parameter, task=template.task.format(**slots)
        )
        if split_of(question, ()) == split:
            break
    else:
        return None  # The split has no problem of this template.
    result, other = template.result.format(**slots), template.other.format(**slots)
    arguments = [_ARGUMENTS[template.parameter](rng) for _ in range(CASES)]
    cases = tuple((each, _value(result, template.parameter, each)) for each in arguments)
    return CodeProblem(question, template, result, other, cases)


def _value(expression: str, parameter: str, argument: Argument) -> int:
    found: int = eval(expression, {parameter: argument})
    return found


def _numbers(rng: random.Random) -> list[int]:
    return [int(rng.random() * 40) for _ in range(3 + int(rng.random() * 5))]


_ARGUMENTS: Mapping[str, Callable[[random.Random], Argument]] = {
    "number": lambda rng: 1 + int(rng.random() * 99),
    "numbers": _numbers,
    "text": lambda rng: " ".join(pick(rng, _WORDS) for _ in range(2 + int(rng.random() * 4))),
}


def _line(argument: Argument) -> str:
    return " ".join(map(str, argument)) if isinstance(argument, list) else str(argument)


def _program(problem: CodeProblem, body: str) -> str:
    name, parameter = problem.template.name, problem.template.parameter
    script = f'if __name__ == "__main__":\n    print({name}({_READ[parameter]}))\n'
    return f"def {name}({parameter}):\n{body}\n\n{script}"


def _fenced(problem: CodeProblem, rng: random.Random, body: str) -> str:
    opening = pick(rng, ("Here is the program.", "The function takes the value of one line."))
    return f"{opening}\n\n```python\n{_program(problem, body)}```"


def _returns(problem: CodeProblem, rng: random.Random, result: str) -> str:
    forms = ("    return {}\n", "    result = {}\n    return result\n")
    return _fenced(problem, rng, pick(rng, forms).format(result))


PROGRAMMERS: Mapping[Programmer, Callable[[CodeProblem, random.Random], str]] = {
    "right": lambda p, rng: _returns(p, rng, p.result),
    "off_by_one": lambda p, rng: _returns(p, rng, f"{p.result} + 1"),
    "wrong_type": lambda p, rng: _returns(p, rng, f"[{p.result}]"),
    "other_operation": lambda p, rng: _returns(p, rng, p.other),
    "half_done": lambda p, rng: _fenced(p, rng, f"    result = {p.result}\n"),
    "exits_early": lambda p, rng: _fenced(p, rng, "    raise SystemExit(0)\n"),
    "syntax_error": lambda p, rng: _returns(p, rng, f"({p.result}"),
    "no_code": lambda p, rng: "<think>I have to write a function. Where do I begin?",
    "endless_loop": lambda p, rng: _fenced(p, rng, "    while True:\n        pass\n"),
}
"""How each programmer answers."""

_FAULTY: Sequence[Programmer] = (
    *("off_by_one",) * 4, *("other_operation",) * 4, "wrong_type", "half_done", "exits_early",
    "syntax_error", "no_code", "endless_loop",
)  # fmt: skip
"""Who makes mistakes, each as often as its share."""
