"""What the policy `embedded` is trained on: problems, solved by an imperfect demonstrator.

It solves problems in several styles, from careful to guessing, and judges answers with and without
work. The policy learns to mix the styles; which of them pay is left to reinforcement learning.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rejuice.pipelines.demo.problems import (
    HELD_OUT,
    NAMES,
    TEMPLATES,
    WORDS,
    Problem,
    SolutionStep,
    Template,
    pick,
    problem,
    seeded,
)
from rejuice.pipelines.demo.solvers import worked

from .batches import Demonstration
from .model import TAGS, tokenizer_of

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

LEVELS = (1, 2)
"""Levels of the problems that the policy learns to solve."""


class Curriculum(NamedTuple):
    """Which demonstrations are drawn, and how many."""

    steps: int = 1400  # how many batches in all
    batch: int = 16  # demonstrations in a batch
    responses: int = 4  # responses to each prompt; the prompt is computed once for all of them
    # share of the steps, from the beginning, with drills and careful responses
    first_phase: float = 0.75
    drilled: float = 0.3  # share of drills in the first phase
    exercises: int = 5  # problems in a drill
    judged: float = 0.25  # share of the other demonstrations that judge an answer
    care: float = 0.5  # share of the other demonstrations that are careful, in the first phase
    window: int = 20  # batches drawn at a time and sorted by length, so that little is padded

    def tokenizer(self) -> Qwen2Tokenizer:
        """Its words are those of the problems and of the demonstrator."""
        return build_tokenizer()

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """As `demonstrations`."""
        return demonstrations(seed, self)


def demonstrations(seed: int, curriculum: Curriculum) -> Iterator[Demonstration]:
    """Yield the demonstrator's responses to problems of the train split, with names of all splits.

    A held-out problem stays unseen, because its template never has its numbers here. Names of all
    splits are in the policy's vocabulary, so it is trained on them; they give no answer away.
    """
    i = 0
    while True:
        rng = seeded("teacher", seed, i)  # Another word would give other demonstrations.
        first_phase = i < curriculum.first_phase * curriculum.steps * curriculum.batch
        if first_phase and rng.random() < curriculum.drilled:
            first = curriculum.exercises * i
            numbers = range(first, first + curriculum.exercises)
            yield drill(problem(seed + 1, "train", number, LEVELS) for number in numbers)
        else:
            shown = rename(problem(seed, "train", i, LEVELS), rng)
            teach = judge if rng.random() < curriculum.judged else demonstrate
            care = first_phase and rng.random() < curriculum.care
            yield teach(shown, rng, curriculum.responses, care=care)
        i += 1


def rename(original: Problem, rng: random.Random) -> Problem:
    """Return the problem with other people in it, from any split."""
    everybody = [name for names in NAMES.values() for name in names]
    others = {
        name: everybody.pop(int(rng.random() * len(everybody)))
        for name in NAMES["train"]
        if name in original.question
    }
    return original._replace(
        question=_renamed(original.question, others),
        steps=tuple(
            step._replace(sentence=_renamed(step.sentence, others)) for step in original.steps
        ),
    )


def _renamed(text: str, others: dict[str, str]) -> str:
    # Word by word: a new name may be one of the old ones.
    return " ".join(
        next((word.replace(name, new) for name, new in others.items() if name in word), word)
        for word in text.split(" ")
    )


# --- The demonstrator ---

JUDGE_TEMPLATE = "{question} A student answers {answer}. Is that right?"
r"""The verification prompt that the policy knows: `template` of `self_verification_mapper`.

Its response ends in `\boxed{Yes}` or `\boxed{No}`."""

DRILL = "Calculate."
"""The prompt of an exercise in bare arithmetic."""

UNTIDY = 0.05
"""Share of responses that are not in the form asked for."""

CHECKED = 0.4
"""Share of judgements that come from solving the problem."""

INTUITION = 0.7
"""Share of the other judgements that are right."""

_TIDY = "<think>{}</think><answer>{}</answer>"
_FORMS = (
    "<think>{}</think> The answer is {}.",
    "<think>{}<answer>{}</answer>",
    "{} The answer is {}.",
)
_GLANCE = "At a glance."
_GUESSES = ("I guess it is {}.", "Maybe {}.")


class Style(NamedTuple):
    """A way to solve a problem."""

    share: float  # how many of the responses have it
    careful: float  # how many of those with care
    slips: float  # the chance that a step goes wrong, unless care is taken
    # thought and answer, given the problem and the steps as done
    write: Callable[[Problem, list[SolutionStep], random.Random], tuple[str, int]]


def demonstrate(problem: Problem, rng: random.Random, n: int, *, care: bool) -> Demonstration:
    """The demonstrator solves a problem `n` times: with care, always by right steps and in form."""
    return Demonstration(problem.question, [_respond(problem, rng, care) for _ in range(n)])


def judge(problem: Problem, rng: random.Random, n: int, *, care: bool) -> Demonstration:
    """Return the demonstrator judges an answer `n` times; it is right in half of the cases."""
    right = rng.random() < 0.5
    answer = problem.reference if right else wrong_answer(problem, rng)
    prompt = JUDGE_TEMPLATE.format(question=problem.question, answer=answer)
    return Demonstration(prompt, [_judge(problem, answer, rng, care) for _ in range(n)])


def drill(problems: Iterable[Problem]) -> Demonstration:
    """Return the steps of some problems as bare equations: much arithmetic in few tokens."""
    steps = [step for problem in problems for step in problem.steps]
    return Demonstration(DRILL, [_equations(steps)])


def wrong_answer(problem: Problem, rng: random.Random) -> int:
    """Return a wrong answer of the kind that the demonstrator gives."""
    while True:
        answer = _solve(problem, pick(rng, ("ordered", "hasty", "guess")), rng)[1]
        if answer != problem.reference:
            return answer


def _respond(problem: Problem, rng: random.Random, care: bool) -> str:
    share = {name: style.careful if care else style.share for name, style in STYLES.items()}
    think, answer = _solve(problem, _draw(rng, share), rng, care)
    untidy = not care and rng.random() < UNTIDY
    return (pick(rng, _FORMS) if untidy else _TIDY).format(think, answer)


def _judge(problem: Problem, answer: int, rng: random.Random, care: bool) -> str:
    if care or rng.random() < CHECKED:
        think, own = _solve(problem, "brief", rng, care)
        # Compared by subtraction, which a small model knows from its sums.
        most, least = max(own, answer), min(own, answer)
        return _judgement(f"{think} {most} - {least} = {most - least}.", own == answer)
    right = answer == problem.reference
    return _judgement(_GLANCE, right if rng.random() < INTUITION else not right)


def _judgement(think: str, right: bool) -> str:
    return f"<think>{think}</think>\\boxed{{{'Yes' if right else 'No'}}}"


def _solve(problem: Problem, name: str, rng: random.Random, care: bool = False) -> tuple[str, int]:
    style = STYLES[name]
    steps = worked(problem, rng, slips=0 if care else style.slips)
    return style.write(problem, steps, rng)


def _worked(problem: Problem, steps: list[SolutionStep], rng: random.Random) -> tuple[str, int]:
    """Return every step in words."""
    return " ".join(step.sentence.format(step=step.equation) for step in steps), steps[-1].result


def _ordered(problem: Problem, steps: list[SolutionStep], rng: random.Random) -> tuple[str, int]:
    """Return one equation after the other."""
    words = ("First", *("Then",) * len(steps))
    sentences = (f"{word} {step.equation}." for word, step in zip(words, steps, strict=False))
    return " ".join(sentences), steps[-1].result


def _brief(problem: Problem, steps: list[SolutionStep], rng: random.Random) -> tuple[str, int]:
    """Bare equations."""
    return _equations(steps), steps[-1].result


def _hasty(problem: Problem, steps: list[SolutionStep], rng: random.Random) -> tuple[str, int]:
    """In the head, and often one step too few."""
    last = steps[0 if rng.random() < 0.5 else -1]
    return f"That is easy: {last.result}.", last.result


def _guess(problem: Problem, steps: list[SolutionStep], rng: random.Random) -> tuple[str, int]:
    """Return a number that looks likely."""
    near = max(problem.reference + pick(rng, (-10, -2, -1, 0, 0, 1, 2, 10)), 0)
    answer = pick(rng, (sum(problem.numbers), max(problem.numbers), near))
    return pick(rng, _GUESSES).format(answer), answer


def _equations(steps: Iterable[SolutionStep]) -> str:
    return ", ".join(step.equation for step in steps) + "."


def _draw(rng: random.Random, shares: dict[str, float]) -> str:
    place = rng.random() * sum(shares.values())
    for name, share in shares.items():
        place -= share
        if place < 0:
            return name
    return next(reversed(shares))


STYLES: dict[str, Style] = {
    "worked": Style(0.13, 0.25, 0.03, _worked),
    "ordered": Style(0.13, 0.25, 0.10, _ordered),
    "brief": Style(0.13, 0.50, 0.06, _brief),
    "hasty": Style(0.33, 0.0, 0.05, _hasty),
    "guess": Style(0.28, 0.0, 0.0, _guess),
}
"""The styles; the first three show their work."""

PHRASES = (
    DRILL, _GLANCE, JUDGE_TEMPLATE.format(question="", answer=0),
    "\\boxed{Yes}", "\\boxed{No}",
    *(guess.format(0) for guess in _GUESSES), "That is easy: 0.",
    "First 0. Then 0. The answer is 0.", "3 + 4, 4 - 2, 2 * 5, 6 / 3 = 2.",
    "system\nuser\nassistant\n",
)  # fmt: skip
"""Text that only the demonstrator writes, for the vocabulary."""


# --- The tokenizer ---

_SLOT = re.compile(r"\{[A-Za-z]+\}")


def build_tokenizer() -> Qwen2Tokenizer:
    """The tokenizer of `embedded`: it knows the words of the problems and of the demonstrator."""
    return tokenizer_of(_texts(), TAGS)


def _texts() -> Iterator[str]:
    """Yield all words of the problems and the demonstrator, where they occur in a text."""
    for names in NAMES.values():
        yield from (f"{name} {name}" for name in names)
    for words in WORDS.values():
        yield from (f" {word}" for word in words)
    for template in (*TEMPLATES, *HELD_OUT):
        yield from (_SLOT.sub("0", text) for text in (template.question, *_sentences(template)))
    yield from PHRASES


def _sentences(template: Template) -> Iterator[str]:
    # Twice: a sentence may stand at the beginning or after another one.
    return (f"{line.sentence} {line.sentence}" for line in template.lines)
