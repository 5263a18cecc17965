"""How well a policy solves the problems of the arithmetic world, and judges answers to them."""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import mean
from typing import Any

import torch
from plain_sampling import sample

from rejuice.pipelines.demo.problems import Split, problems, seeded
from tools.embedded_policy.problems import LEVELS, STYLES, judge


def solving(model: Any, tokenizer: Any, n: int, split: Split = "validation") -> dict[str, Any]:
    """Format rate, pass@1, pass@8, tokens per response, accuracy by level and style."""
    chosen = list(problems(100, split, n, LEVELS))
    generator = torch.Generator().manual_seed(1)
    start = time.perf_counter()
    groups = sample(model, tokenizer, [each.question for each in chosen], 8, generator)
    seconds = time.perf_counter() - start
    right_G = [
        [one.answer == str(each.reference) for one in group]
        for each, group in zip(chosen, groups, strict=True)
    ]
    levels, styles = defaultdict[int, list[bool]](list), defaultdict[str, list[bool]](list)
    for each, group, right in zip(chosen, groups, right_G, strict=True):
        levels[each.level] += right
        for one, good in zip(group, right, strict=True):
            styles[one.style].append(good)
    everyone = [one for group in groups for one in group]
    tokens = sum(len(one.ids) for one in everyone)
    return {
        "well-formed": mean(one.tidy for one in everyone),
        "pass@1": mean(map(mean, right_G)),
        "pass@8": mean(map(any, right_G)),
        "tokens per response": tokens / len(everyone),
        "longest response": max(len(one.ids) for one in everyone),
        "tokens per second": tokens / seconds,
        **{f"level {level}": mean(right) for level, right in sorted(levels.items())},
        **{
            f"style {name}": f"{len(styles[name]) / len(everyone):.3f} of all, "
            f"{mean(styles[name] or [False]):.3f} right"
            for name in STYLES
        },
    }


def judging(model: Any, tokenizer: Any, n: int) -> dict[str, float]:
    """How often its verdicts are right, on right and on wrong answers."""
    rng = seeded("judging")
    chosen = [(each, judge(each, rng, 1, care=False).prompt)
             for each in problems(100, "validation", n, LEVELS)]  # fmt: skip
    generator = torch.Generator().manual_seed(2)
    groups = sample(model, tokenizer, [prompt for _, prompt in chosen], 4, generator)
    verdicts = defaultdict[str, list[str | None]](list)
    works = list[bool]()
    for (each, prompt), group in zip(chosen, groups, strict=True):
        label = "Yes" if prompt.endswith(f"answers {each.reference}. Is that right?") else "No"
        verdicts[label] += [one.answer for one in group]
        works += ["=" in one.text for one in group]
    yes, no = (mean(given == label for given in verdicts[label]) for label in ("Yes", "No"))
    given = [one for some in verdicts.values() for one in some]
    return {
        "right answers called right": yes,
        "wrong answers called wrong": no,
        "balanced accuracy": (yes + no) / 2,
        "a verdict at all": mean(one is not None for one in given),
        "with work": mean(works),
    }
