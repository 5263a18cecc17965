"""verl's losses, as `train.loss` chooses them, against formulas in float64 that are written by hand.

rows        ragged responses with ragged weights of tokens, one row of padding
ours        verl's `ppo_loss` with the actor's configuration of a recipe, on micro-batches and ranks
reference   `hand_losses`: the loss and its gradient by the log-probability of each token
"""

from typing import NamedTuple

import numpy as np
import pytest
from hand_losses import Row, loss_of

pytestmark = pytest.mark.slow  # Imports verl.

LENGTHS = (5, 1, 9, 3, 7, 2)
ACTOR = "actor_rollout_ref.actor"


@pytest.fixture
def actor(verl, tmp_path):
    """verl's configuration of the actor, of a recipe with this `train:` section."""
    from training_stage import PLAIN, _recipe
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.import_utils import import_external_libs
    from verl_configs import config_of

    from rejuice.trainer.launch.training import prepare

    def make(**train):
        run = prepare(_recipe(tmp_path, PLAIN, 4, 4, {}, train), tmp_path / "run")
        config = config_of(run).actor_rollout_ref
        import_external_libs(config.model.external_lib)
        return run.config, omega_conf_to_dataclass(config.actor)

    return make


class Found(NamedTuple):
    """An update."""

    loss: float
    slopes: list  # float64[T] of each response
    figures: list  # of each micro-batch


def made_up(seed=0, spread=0.4):
    """Responses of which some tokens are clipped; advantages have weights of tokens in them."""
    draw, rows = np.random.default_rng(seed), []
    for length in LENGTHS:
        new = -draw.exponential(1.0, length) - 0.01
        weight = draw.uniform(0.2, 2.0, length)
        rows.append(Row(new, new + spread * draw.normal(size=length), draw.normal() * weight))
    return rows


def update(config, rows, *, pieces=1, ranks=1, dtype="float64"):
    """verl's loss of an update with a row of padding, and its gradient by log-probabilities."""
    from functools import partial

    import torch
    from verl.workers.utils.losses import ppo_loss

    loss = partial(ppo_loss, config)
    kind = getattr(torch, dtype)
    leaves = [torch.tensor(row.new, dtype=kind, requires_grad=True) for row in rows]
    padding = torch.zeros(1, dtype=kind)
    whole, figures = 0.0, []
    every = [*range(len(rows)), -1]
    for rank in range(ranks):
        own = every[rank::ranks]
        for piece in range(pieces):
            chosen = own[piece::pieces]
            data = batch([rows[k] if k >= 0 else None for k in chosen], kind, ranks, len(every))
            new = [leaves[k] if k >= 0 else padding for k in chosen]
            value, found = loss(model_output=output(new), data=data, dp_group=None)
            (value / ranks).backward()
            whole += value.item() / ranks
            figures.append(found)
    return Found(whole, [leaf.grad.double().numpy() for leaf in leaves], figures)


def output(log_probs):
    """What a model gives: of each row a token of a prompt and a response, predicted one before."""
    import torch

    zero = torch.zeros(1, dtype=log_probs[0].dtype)
    rows = [torch.cat((each, zero)) for each in log_probs]
    return {"log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}


def batch(rows, kind, ranks, size):
    """Rows as verl's engine hands them to a loss; None: of padding."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    def jagged(values):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    def field(name):
        return jagged(
            [torch.tensor([0.0] if r is None else getattr(r, name), dtype=kind) for r in rows]
        )

    lengths = [1 if row is None else len(row.new) for row in rows]
    fields = {
        "prompts": jagged([torch.zeros(1, dtype=torch.long) for _ in rows]),
        "responses": jagged([torch.zeros(length, dtype=torch.long) for length in lengths]),
        "response_mask": jagged(
            [
                torch.full((length,), row is not None).long()
                for row, length in zip(rows, lengths, strict=True)
            ]
        ),
        "old_log_probs": field("old"),
        "advantages": field("advantage"),
    }
    data = TensorDict(fields, batch_size=len(rows))
    tokens = sum(LENGTHS)
    for name, value in {
        "dp_size": ranks, "batch_num_tokens": tokens, "global_batch_size": size
    }.items():  # fmt: skip
        tu.assign_non_tensor_data(data, name, value)
    return data


def far(found, wanted):
    """The largest error of the loss and of the parts of its gradient."""
    slopes = zip(found.slopes, wanted[1], strict=True)
    return max(abs(found.loss - wanted[0]), *(np.abs(a - b).max() for a, b in slopes))


LOSSES = {
    "vanilla": [0.2, 0.28],
    "gspo": [0.03, 0.04],
    "cispo": [0.2, 0.3],
    "sapo": None,
    "geo_mean": [0.3, 0.4],
}


@pytest.mark.parametrize("policy", LOSSES)
def test_loss_and_gradient(actor, policy):
    """In one and two micro-batches, on one and two ranks, beside padding; and in float32."""
    clip = LOSSES[policy]
    train, config = actor(loss={"policy": policy, **({"clip": clip} if clip else {})})
    rows = made_up()
    wanted = loss_of(policy, train.clip, rows, len(rows) + 1)
    flat = sum(int((slope == 0).sum()) for slope in wanted[1])
    if policy in ("vanilla", "gspo", "geo_mean"):
        assert 0 < flat < sum(LENGTHS), "some tokens are clipped"
    for pieces, ranks in ((1, 1), (2, 1), (1, 2), (2, 2)):
        assert far(update(config, rows, pieces=pieces, ranks=ranks), wanted) < 1e-6
    assert far(update(config, rows, dtype="float32"), wanted) < 1e-6


@pytest.mark.parametrize("policy", ["clip_cov", "kl_cov"])
def test_loss_and_gradient_where_tokens_are_picked(actor, policy):
    """In one micro-batch: verl picks tokens within each."""
    keys = {
        "clip_cov": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 3.0},
        "kl_cov": {"kl_cov_ratio": 0.2, "ppo_kl_coef": 0.7},
    }[policy]
    verl = {f"{ACTOR}.policy_loss.{name}": value for name, value in keys.items()}
    train, config = actor(loss={"policy": policy}, verl=verl)
    rows = made_up(1)
    wanted = loss_of(policy, train.clip, rows, len(rows) + 1, **keys)
    plain = loss_of("vanilla", (1e9, 1e9), rows, len(rows) + 1, clip_ratio_c=1e9)
    differ = sum(int((one != other).sum()) for one, other in zip(wanted[1], plain[1], strict=True))
    assert 0 < differ < sum(LENGTHS), "some tokens are picked"
    assert far(update(config, rows), wanted) < 1e-6
    assert far(update(config, rows, ranks=1, pieces=2), wanted) > 1e-3, "they are picked anew"


@pytest.mark.parametrize("policy", ["vanilla", "gspo", "cispo", "sapo", "clip_cov", "kl_cov"])
def test_which_losses_a_weight_of_all_tokens_scales(actor, policy):
    """Those that do not compare advantages: half of every advantage is half of the gradient."""
    verl = {
        # All within the bounds: of a share, verl draws the tokens at random.
        "clip_cov": {
            f"{ACTOR}.policy_loss.{name}": value
            for name, value in (("clip_cov_ratio", 1.0), ("clip_cov_lb", 0.2), ("clip_cov_ub", 3.0))
        },
        "kl_cov": {f"{ACTOR}.policy_loss.kl_cov_ratio": 0.2},
    }.get(policy, {})
    _, config = actor(loss={"policy": policy}, verl=verl)
    rows = made_up(1)
    half = [row._replace(advantage=row.advantage / 2) for row in rows]
    slopes = np.concatenate(update(config, rows).slopes)
    error = np.abs(np.concatenate(update(config, half).slopes) - slopes / 2).max()
    if policy in ("clip_cov", "kl_cov"):
        assert error > 1e-3
    else:
        assert error < 1e-12


def test_verls_own_geo_mean_depends_on_micro_batches(actor):
    """Once this fails, verl has fixed it, and ours can go."""
    from dataclasses import replace

    _, ours = actor(loss={"policy": "geo_mean"})
    theirs = replace(ours, policy_loss=replace(ours.policy_loss, loss_mode="geo_mean"))
    rows = made_up()
    whole, pieces = (update(theirs, rows, pieces=n) for n in (1, 2))
    assert far(whole, (update(ours, rows).loss, update(ours, rows).slopes)) < 1e-12
    larger, slopes = np.concatenate(pieces.slopes), np.concatenate(whole.slopes)
    trained = slopes != 0
    assert (larger[trained] / slopes[trained]).min() > 1.5, "each micro-batch is a mean by itself"


def test_defaults_are_those_of_the_loss(actor):
    """As verl has them in the end."""
    wanted = {
        "vanilla": (0.2, 0.2, "token-mean"),
        "gspo": (0.0003, 0.0004, "seq-mean-token-mean"),
        "cispo": (1.0, 0.2, "token-mean"),
        "sapo": (0.2, 0.2, "seq-mean-token-mean"),
        "geo_mean": (0.4, 0.4, "seq-mean-token-mean"),
        "clip_cov": (1.0, 1.0, "token-mean"),
        "kl_cov": (0.2, 0.2, "token-mean"),
    }
    for policy, values in wanted.items():
        _, config = actor(loss={"policy": policy})
        found = (config.clip_ratio_low, config.clip_ratio_high, config.loss_agg_mode)
        assert found == values, policy
        name = "rejuice_geo_mean" if policy == "geo_mean" else policy
        assert config.policy_loss.loss_mode == name
