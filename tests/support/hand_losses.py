"""The losses of policies and their gradients, written out by hand in float64, token by token."""

from typing import NamedTuple

import numpy as np


class Row(NamedTuple):
    """A response."""

    new: np.ndarray  # float64[T], log-probabilities of the policy that is trained
    old: np.ndarray  # float64[T], of the one that sampled
    advantage: np.ndarray  # float64[T]


def loss_of(policy, clip, rows, size, **settings):
    """Return the loss of an update, and its gradient by the log-probability of each token.

    Args:
        policy: verl's name.
        clip: how far below and above 1.
        rows: responses with at least one token.
        size: rows of the update, those of padding included, by which means over responses divide.
        settings: of verl, by their names.
    """
    tokens = sum(len(row.new) for row in rows)
    per_response = policy in ("gspo", "sapo", "geo_mean")
    found = 0.0, []
    picked = _picked(policy, clip, rows, **settings)
    for row, special in zip(rows, picked, strict=True):
        each, slope = _TOKENS[policy](row, *clip, special, **settings)
        weight = 1 / size / len(row.new) if per_response else 1 / tokens
        found = found[0] + weight * each.sum(), [*found[1], weight * slope]
    return found


def _clips(ratio, advantage, low, high):
    """Where raising the gain further pays nothing: the clip of PPO."""
    return ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))


def _vanilla(row, low, high, _, clip_ratio_c=3.0):
    """PPO's, arXiv:1707.06347, with the dual clip of arXiv:1912.09729."""
    ratio, advantage = np.exp(row.new - row.old), row.advantage
    flat = _clips(ratio, advantage, low, high)
    paid = np.where(flat, np.clip(ratio, 1 - low, 1 + high), ratio)
    dual = (advantage < 0) & (ratio > clip_ratio_c)
    paid = np.where(dual, clip_ratio_c, paid)
    return -paid * advantage, np.where(flat | dual, 0.0, -ratio * advantage)


def _gspo(row, low, high, _):
    """GSPO-token, arXiv:2507.18071: the value is that of the response's ratio."""
    ratio = np.full(len(row.new), np.exp((row.new - row.old).mean()))
    flat = _clips(ratio, row.advantage, low, high)
    paid = np.where(flat, np.clip(ratio, 1 - low, 1 + high), ratio)
    return -paid * row.advantage, np.where(flat, 0.0, -ratio * row.advantage)


def _cispo(row, low, high, _):
    """arXiv:2506.13585: the clipped ratio is a constant, and each token has a gradient."""
    weight = np.clip(np.exp(row.new - row.old), 1 - low, 1 + high) * row.advantage
    return -weight * row.new, -weight


def _sapo(row, low, high, _, tau_pos=1.0, tau_neg=1.05):
    """arXiv:2511.20347: sigmoid(tau (ratio - 1)) 4 / tau; its slope at a ratio of 1 is 1."""
    ratio = np.exp(row.new - row.old)
    tau = np.where(row.advantage > 0, tau_pos, tau_neg)
    gate = 1 / (1 + np.exp(-tau * (ratio - 1)))
    return -4 / tau * gate * row.advantage, -4 * gate * (1 - gate) * ratio * row.advantage


def _geo_mean(row, low, high, _):
    """GMPO, arXiv:2507.20673: the geometric mean of ratios, each clipped by its logarithm."""
    far, sign = row.new - row.old, np.sign(row.advantage)
    flat = ((sign > 0) & (far > high)) | ((sign < 0) & (far < -low))
    ratio = np.exp(np.where(flat, np.clip(far, -low, high), far).mean())
    gain = ratio * row.advantage.mean()
    return np.full(len(far), -gain), np.where(flat, 0.0, -gain)


def _clip_cov(row, low, high, left_out, **_):
    ratio = np.exp(row.new - row.old)
    flat = _clips(ratio, row.advantage, low, high)
    paid = np.where(flat, np.clip(ratio, 1 - low, 1 + high), ratio)
    each = np.where(left_out, 0.0, -paid * row.advantage)
    return each, np.where(flat | left_out, 0.0, -ratio * row.advantage)


def _kl_cov(row, low, high, penalised, ppo_kl_coef=0.1, **_):
    ratio, far = np.exp(row.new - row.old), row.new - row.old
    gain, penalty = ratio * row.advantage, ppo_kl_coef * penalised
    return penalty * np.abs(far) - gain, penalty * np.sign(far) - gain


_TOKENS = {
    "vanilla": _vanilla, "gspo": _gspo, "cispo": _cispo, "sapo": _sapo, "geo_mean": _geo_mean,
    "clip_cov": _clip_cov, "kl_cov": _kl_cov,
}  # fmt: skip


def _picked(policy, clip, rows, **settings):
    """Which tokens are left out or penalised, arXiv:2505.22617: by (A - mean A)(log p - mean)."""
    advantage, new = (
        np.concatenate([getattr(row, x) for row in rows]) for x in ("advantage", "new")
    )
    covariance = (advantage - advantage.mean()) * (new - new.mean())
    chosen = np.zeros(len(new), bool)
    if policy == "kl_cov":
        count = max(1, int(settings["kl_cov_ratio"] * len(new)))
        chosen[np.argsort(-covariance)[:count]] = True
    if policy == "clip_cov":
        # All of them: verl draws `clip_cov_ratio` of the tokens, at random, from those within.
        ratio = np.exp(new - np.concatenate([row.old for row in rows]))
        chosen = (covariance > settings["clip_cov_lb"]) & (covariance < settings["clip_cov_ub"])
        chosen &= ~_clips(ratio, advantage, *clip)
    return np.split(chosen, np.cumsum([len(row.new) for row in rows])[:-1])
