"""What the small model solves untrained, with examples in its prompt, and what rules without a model do.

    python benchmarks/bench_real_few_shot.py FOLDER [--draws 3] [--threads 2]

The questions are the 200 held-out ones of recipes/small_model/grpo.yaml, its prompt and verifier are
the same. The examples are questions of its training set, one of each kind, as turns of the chat,
answered by a short sentence or by the number alone; each draw has others. Intervals are Wilson's,
95%.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from itertools import islice, product

import torch

from rejuice.operators.columns import RIGHT
from rejuice.operators.confidence import wilson_interval
from rejuice.operators.sampling.protocol import Failure, Prompt, Settings
from rejuice.operators.sampling.transformers_engine import TransformersEngine
from rejuice.operators.verifier import verify_batch
from rejuice.pipelines.demo.problems import NumberQuestion, number_questions

_ASK = "{question} Answer with one short sentence."
_KINDS = ("larger", "smaller", "+", "-")
_LEVELS = (1, 2)
_MOST = 32  # tokens of a response, as in training
RULES: dict[str, Callable[[Sequence[int]], int]] = {
    "the first number": lambda numbers: numbers[0],
    "the last number": lambda numbers: numbers[-1],
    "the larger number": max,
    "the smaller number": min,
    "the sum": sum,
}


def sentence(question: NumberQuestion) -> str:
    """Such as `The larger number is 87.` or `3 + 4 = 7.`"""
    if word := re.search("larger|smaller", question.question):
        return f"The {word[0]} number is {question.answer}."
    return f"{question.question.removeprefix('What is ').rstrip('?')} = {question.answer}."


FORMS: dict[str, Callable[[NumberQuestion], str]] = {
    "sentence": sentence,
    "number": lambda question: question.answer,
}
"""By name, how the examples are answered."""


def examples(draw: int, form: str) -> list[tuple[str, str]]:
    """The turns of one training question of each kind."""
    training = list(number_questions(0, "train", 600, _LEVELS))
    chosen = [
        next(islice((each for each in training if f" {kind}" in each.question), draw, None))
        for kind in _KINDS
    ]
    return [turn for each in chosen for turn in (_asked(each), ("assistant", FORMS[form](each)))]


def _asked(question: NumberQuestion) -> tuple[str, str]:
    return "user", _ASK.format(question=question.question)


def report(name: str, texts: Sequence[str], questions: Sequence[NumberQuestion]) -> None:
    """Print the accuracy, and that of each kind of question."""
    found = verify_batch(texts, [each.answer for each in questions], worked_out=True, workers=1)
    right = [each.verdict == RIGHT for each in found]
    by_kind = [
        [ok for ok, each in zip(right, questions, strict=True) if f" {kind}" in each.question]
        for kind in _KINDS
    ]
    n, share = len(right), sum(right) / len(right)
    low, high = wilson_interval(share, n)
    kinds = " | ".join(f"{sum(of_kind) / len(of_kind):.2f}" for of_kind in by_kind)
    print(f"| {name} | {share:.3f} ({low:.3f} to {high:.3f}) | {kinds} |", flush=True)


def answers(
    engine: TransformersEngine,
    shown: Sequence[tuple[str, str]],
    questions: Sequence[NumberQuestion],
    temperature: float,
) -> list[str]:
    """One response to each question."""
    prompts = [Prompt((*shown, _asked(each)), seed) for seed, each in enumerate(questions)]
    settings = Settings(n=1, temperature=temperature, max_tokens=_MOST)
    texts = [""] * len(prompts)
    for at, group in engine.sample(prompts, settings):
        assert not isinstance(group, Failure), group
        texts[at] = group.samples[0].text
    return texts


def main() -> None:
    """Print a table: without and with examples, greedy and sampled, and the rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    questions = list(number_questions(0, "validation", 200, _LEVELS))
    print(
        "| | held-out accuracy | larger | smaller | sums | differences |\n|---|---|---|---|---|---|"
    )
    for name, rule in RULES.items():
        numbers = [[*map(int, re.findall(r"\d+", each.question))] for each in questions]
        report(name, [str(rule(each)) for each in numbers], questions)
    engine = TransformersEngine(given.folder)
    asked: dict[str, list[tuple[str, str]]] = {"no examples": []}
    for form, draw in product(FORMS, range(given.draws)):
        asked[f"four examples, each a {form}, draw {draw}"] = examples(draw, form)
    for name, shown in asked.items():
        for how, temperature in (("greedy", 0.0), ("temperature 1", 1.0)):
            report(f"{name}, {how}", answers(engine, shown, questions, temperature), questions)


if __name__ == "__main__":
    main()
