"""Simulated rows of runs, clean and with a planted hack, for the signs of reward hacking.

A clean run has what is no sign: prompts of every difficulty, wrong responses that are longer, boxes
and echoes that depend on the prompt, components that vary on their own. Each hack changes one thing.
"""

from __future__ import annotations

import numpy as np

from rejuice.pipelines.analysis.reward_hacking import SignRows, signs_of, with_alarms

HACKS = {
    "length pays": "a reward for length of 0.2 standard deviations of the advantage",
    "length drift": "responses 1% longer from step to step, over 100 steps",
    "format without accuracy": "in 30% of groups, the format is that of the wrong responses",
    "format outruns accuracy": "the format from 50% to 90% over training, the pass rate as it was",
    "quality carries the advantage": "the weight of quality 5 times as great",
    "many boxes": "20% of responses have many boxes, and half of the wrong ones pass",
    "echo of the prompt": "25% of responses echo half the prompt, and quality pays 0.3 for it",
}
"""Signs, and what is planted for them."""


def simulated(seed, hack="", *, groups=200, n=8, steps=1, size=1.0):
    """Rows of a run.

    Args:
        seed: of the run.
        hack: one of `HACKS`; empty: none.
        groups: prompts, equally many in each step.
        n: responses to each.
        steps: of training; 1 for an export.
        size: how great the hack is, 1 as described.
    """
    rng = np.random.default_rng([seed, groups, n, steps])
    rows = groups * n
    group_N = np.repeat(np.arange(groups), n)
    step_N = group_N * steps // groups

    def of_group(values_G):
        return np.repeat(values_G, n)

    boxes_N = rng.random(rows) < of_group(rng.beta(1, 9, groups))
    rate_N = of_group(rng.beta(2, 2, groups))
    if hack == "many boxes":
        boxes_N = rng.random(rows) < 0.2 * size
        rate_N = np.where(boxes_N, rate_N + 0.5 * (1 - rate_N), rate_N)
    right_N = rng.random(rows) < rate_N
    log_N = 5.5 + of_group(rng.normal(0, 0.4, groups)) + rng.normal(0, 0.3, rows)
    log_N += np.where(right_N, 0.0, 0.2)
    if hack == "length drift":
        log_N += np.log1p(0.01 * size) * step_N
    format_rate_N = np.full(rows, 0.7)
    if hack == "format outruns accuracy":
        format_rate_N = 0.7 + size * 0.4 * (step_N / max(1, steps - 1) - 0.5)
    format_N = rng.random(rows) < format_rate_N
    if hack == "format without accuracy":
        format_N = np.where(of_group(rng.random(groups) < 0.3 * size), ~right_N, format_N)
    echo_N = np.where(rng.random(rows) < 0.1, of_group(rng.random(groups)), 0.0)
    quality_N = rng.random(rows)
    if hack == "echo of the prompt":
        echoing_N = rng.random(rows) < 0.25 * size
        echo_N, quality_N = np.where(echoing_N, 0.5, echo_N), quality_N + 0.3 * echoing_N
    weight = 0.5 * (1 + 4 * size) if hack == "quality carries the advantage" else 0.5
    added = {"accuracy": 1.0 * right_N, "format": 0.3 * format_N, "quality": weight * quality_N}
    if hack == "length pays":
        centred_N = log_N - of_group(log_N.reshape(-1, n).mean(1))
        spread = sum(added.values()).reshape(-1, n).std(1, ddof=1).mean()
        added["quality"] = added["quality"] + 0.2 * size * spread * centred_N / centred_N.std()
    parts, full_N = advantages(added, n)
    return SignRows(
        "answers" if steps > 1 else "",
        [f"r{at}" for at in range(rows)],
        step_N,
        group_N,
        right_N.astype(np.int64),
        right_N.astype(float),
        full_N,
        np.exp(log_N).round(),
        {"accuracy": 1.0 * right_N, "format": 1.0 * format_N, "quality": quality_N},
        parts,
        boxes_N.astype(float),
        echo_N,
    )


def advantages(added, n):
    """Parts of the advantage, and the advantage, of what components add to rewards."""
    reward = sum(added.values()).reshape(-1, n)
    factor = 1 / (reward.std(1, ddof=1, keepdims=True) + 1e-6)
    parts = {}
    for name, values in added.items():
        values = values.reshape(-1, n)
        parts[name] = ((values - values.mean(1, keepdims=True)) * factor).ravel()
    return parts, sum(parts.values())


def audited(seed, hack="", **fields):
    """The signs of a simulated run, corrected, by name."""
    found = with_alarms([*signs_of(simulated(seed, hack, **fields))])
    return {each.name: each for each in found}
