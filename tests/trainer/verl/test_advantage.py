"""`grpo_advantage_mapper`, verl's functions, and the numbers that the docs claim of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rejuice.operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.trainer.run import ESTIMATOR
from rejuice.trainer.verl.credit import CreditEstimator

pytestmark = pytest.mark.slow  # Imports verl.


@pytest.fixture(scope="module")
def core(verl):
    from verl.trainer.ppo import core_algos

    return core_algos


# Sums of components as recipes give them; far enough apart that float32, in which verl computes,
# does not make their distance.
REWARDS = st.sampled_from([-0.1, 0.0, 0.1, 0.3, 0.45, 0.9, 1.0, 1.1, 1.35])
GROUPS = st.lists(st.lists(REWARDS, min_size=2, max_size=9), min_size=1, max_size=8)


def by_verl(core, name, groups, tokens=None, **options):
    """float32[N]: the advantage of each response, of `tokens` each; None: of 1 to 3."""
    import torch

    reward_N = torch.tensor([reward for group in groups for reward in group], dtype=torch.float32)
    lengths = [tokens or 1 + row % 3 for row in range(len(reward_N))]
    rewards, mask = torch.zeros(len(reward_N), 3), torch.zeros(len(reward_N), 3)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
        rewards[row, length - 1] = reward_N[row]
    uid_N = np.array([f"uid-{g}" for g, group in enumerate(groups) for _ in group], object)
    found, _ = core.get_adv_estimator_fn(name)(
        token_level_rewards=rewards, response_mask=mask, index=uid_N, config=None, **options
    )
    assert torch.equal(found, found[:, :1] * mask)
    return found[:, 0].numpy()


def by_recipe(operator, groups):
    """float64[N]: the column `advantage`."""
    table = pa.table(
        {
            "prompt_id": [f"p{g}" for g, group in enumerate(groups) for _ in group],
            "reward": [reward for group in groups for reward in group],
        }
    )
    return operator.apply(table).columns["advantage"].to_numpy(zero_copy_only=False)


def equal_N(groups):
    """bool[N]: whether all rewards of the group are one."""
    return np.array([len(set(group)) == 1 for group in groups for _ in group])


def rounding_N(groups, divided):
    """float64[N]: how far an advantage in float32 may be from one in float64.

    A reward rounds by half a unit in its last place, the sum for the mean by as much for each row,
    hence r - m by `off`. The standard deviation s is off by at most 2 `off`, and an advantage is at
    most sqrt(n), so that a quotient is off by `off` / s (1 + 2 sqrt(n)).
    """
    bounds = []
    for group in groups:
        n = len(group)
        off = np.finfo(np.float32).eps * max(map(abs, group)) * (n + 3) / 2
        s = max(np.std(group, ddof=1), 1e-6)
        bounds += [off / s * (1 + 2 * n**0.5) if divided else off] * n
    return np.array(bounds)


@given(groups=GROUPS)
@settings(deadline=None)
@pytest.mark.parametrize("normalise", ["std", "none"])
def test_grpo_is_verls(core, normalise, groups):
    ours_N = by_recipe(GrpoAdvantageMapper(normalise=normalise), groups)
    theirs_N = by_verl(core, "grpo", groups, norm_adv_by_std_in_grpo=normalise == "std")
    same_N = equal_N(groups)
    off_N = np.abs(ours_N - theirs_N) - rounding_N(groups, divided=normalise == "std")
    assert (off_N[~same_N] <= 0).all(), off_N
    assert not ours_N[same_N].any()


@given(groups=GROUPS)
@settings(deadline=None)
def test_leave_one_out_is_verls_rloo(core, groups):
    ours_N = by_recipe(GrpoAdvantageMapper(normalise="leave_one_out"), groups)
    np.testing.assert_allclose(ours_N, by_verl(core, "rloo", groups), rtol=1e-6, atol=1e-6)


def batch(groups):
    """A batch whose rewards differ within groups by so much that what verl adds is little."""
    distances = [reward - np.mean(group) for group in groups for reward in group]
    assume(np.std(distances) > 0.05)
    return len(distances)


@given(groups=GROUPS)
@settings(deadline=None)
def test_batch_std_is_verls_where_each_response_has_one_token(core, groups):
    batch(groups)
    ours_N = by_recipe(GrpoAdvantageMapper(normalise="batch_std"), groups)
    theirs_N = by_verl(core, "reinforce_plus_plus_baseline", groups, tokens=1)
    np.testing.assert_allclose(ours_N, theirs_N, rtol=1e-4, atol=1e-5)


@given(groups=GROUPS)
@settings(deadline=None)
def test_batch_std_is_verls_but_for_its_count_where_all_are_equally_long(core, groups):
    rows = batch(groups)
    ours_N = by_recipe(GrpoAdvantageMapper(normalise="batch_std"), groups)
    theirs_N = by_verl(core, "reinforce_plus_plus_baseline", groups, tokens=3)
    # Its variance is that of 3 N tokens, divided by 3 N - 1 where ours is divided by N - 1.
    factor = np.sqrt(3 * (rows - 1) / (3 * rows - 1))
    np.testing.assert_allclose(ours_N, theirs_N * factor, rtol=1e-4, atol=1e-5)


def test_verl_whitens_over_tokens_so_that_long_responses_count_more(core):
    groups = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    ours_N = by_recipe(GrpoAdvantageMapper(normalise="batch_std"), groups)
    theirs_N = by_verl(core, "reinforce_plus_plus_baseline", groups)
    assert np.abs(ours_N - theirs_N).max() > 0.1


PAIRS = st.lists(
    st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])] * 2), min_size=2, max_size=6),
    min_size=1,
    max_size=5,
)


@given(groups=PAIRS)
@settings(deadline=None)
def test_gdpo_is_verls_where_each_response_has_one_token(core, groups):
    import torch

    weights = {"accuracy": 1.0, "format": 0.5}
    names = [f"p{g}" for g, group in enumerate(groups) for _ in group]
    values = np.array([pair for group in groups for pair in group])
    columns = dict(zip(("reward_accuracy", "reward_format"), values.T, strict=True))
    rows = pa.table({"prompt_id": names, **columns})
    operator = GdpoAdvantageMapper(weights=weights)
    ours = operator.apply(operator.digest(rows)).columns["advantage"]
    ours_N = ours.to_numpy(zero_copy_only=False)
    assume(np.std(ours_N) > 0.5)
    # In float32, equal values of a group have a distance of rounding, which verl divides by 1e-4.
    assume(all(np.ptp(np.array(group), axis=0).min() > 0 for group in groups))
    n = len(names)
    theirs, _ = core.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros(n, 1),
        response_mask=torch.ones(n, 1),
        index=np.array(names, object),
        config={
            "gdpo_reward_keys": list(weights),
            "gdpo_reward_weights": list(weights.values()),
        },
        non_tensor_batch={name: columns[f"reward_{name}"] for name in weights},
        batch={"prompts": torch.zeros(n, 1), "attention_mask": torch.ones(n, 2, dtype=torch.long)},
    )
    np.testing.assert_allclose(ours_N, theirs[:, 0].numpy(), rtol=1e-4, atol=1e-4)


def test_verls_own_gives_equal_rewards_an_advantage(core):
    """Why training does not use it: all of it is rounding. If this fails, verl has fixed it."""
    noise_N = by_verl(core, "grpo", [[0.9] * 8])
    assert abs(noise_N).min() == pytest.approx(0.056, abs=0.001)
    assert not by_recipe(GrpoAdvantageMapper(), [[0.9] * 8]).any()


OPERATORS = [
    GrpoAdvantageMapper(),
    GrpoAdvantageMapper(normalise="none"),
    GrpoAdvantageMapper(normalise="leave_one_out"),
    GrpoAdvantageMapper(std_floor=0.3),
    GrpoAdvantageMapper(epsilon=0.1),
    GrpoAdvantageMapper(normalise="batch_std"),
    GrpoAdvantageMapper(clip=0.7),
]


@given(groups=GROUPS, seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_training_takes_the_recipes_advantage(core, operator, groups, seed):
    """To float32, in whatever order verl has the rows; those of padding have none."""
    import torch

    ours_N = by_recipe(operator, groups)
    lengths = [1 + row % 3 for row in range(len(ours_N))]
    keys = [f"uid_{row}_0" for row in range(len(ours_N))]
    estimator = CreditEstimator()
    estimator.register()
    pairs = zip(ours_N, lengths, strict=True)
    estimator.set(keys, [np.full(length, each) for each, length in pairs])
    mask = torch.zeros(len(keys) + 2, 3)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    order_N = np.random.default_rng(seed).permutation(len(mask))
    index_N = np.array([*keys, "pad_0_0", keys[0]], object)[order_N]
    found, returns = core.get_adv_estimator_fn(ESTIMATOR)(
        token_level_rewards=torch.zeros_like(mask), response_mask=mask[order_N], index=index_N
    )
    wanted = np.append(ours_N, [0.0, 0.0])[:, None] * mask.numpy()
    assert np.array_equal(found.numpy(), wanted[order_N].astype(np.float32))
    assert torch.equal(found, returns)
    assert not ours_N[equal_N(groups)].any()


def test_a_row_that_nobody_gave_credit_is_an_error(core):
    import torch

    CreditEstimator().register()
    with pytest.raises(KeyError, match="uid_0_0"):
        core.get_adv_estimator_fn(ESTIMATOR)(
            response_mask=torch.ones(1, 2), index=np.array(["uid_0_0"], object)
        )


# --------------------------------------------------------------------------- numbers of the docs


def test_numbers_of_the_advantage(core):
    root, groups = 0.8660239, [[1, 0, 0, 1], [1, 1]]
    for found_N in (
        by_verl(core, "grpo", groups, norm_adv_by_std_in_grpo=True),
        by_recipe(GrpoAdvantageMapper(), groups),
    ):
        assert found_N.tolist() == pytest.approx([root, -root, -root, root, 0, 0], abs=1e-5)
    plain_N = by_verl(core, "grpo", [[1, 0, 0, 1]], norm_adv_by_std_in_grpo=False)
    assert plain_N.tolist() == [0.5, -0.5, -0.5, 0.5]
    # A group of one keeps its raw reward: such groups never reach verl.
    assert by_verl(core, "grpo", [[0.7]]).tolist() == pytest.approx([0.7])


@pytest.mark.parametrize(
    ("mode", "loss"),
    [
        ("token-mean", 40 / 6),
        ("seq-mean-token-sum", 20.0),
        ("seq-mean-token-mean", 8.75),
        ("seq-mean-token-sum-norm", 5.0),
    ],
)
def test_numbers_of_the_loss(core, mode, loss):
    import torch

    losses = torch.tensor([[1.0, 2, 3, 4], [10, 20, 9, 9], [9, 9, 9, 9]])
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    assert float(core.agg_loss(losses, mask, mode)) == pytest.approx(loss, rel=1e-6)


def test_sequence_means_divide_by_the_batch_that_was_requested(core):
    """Not by what the recipe has left of it; token-mean, the default, knows no such number."""
    import torch

    losses, mask = torch.ones(2, 3), torch.ones(2, 3)
    found = core.agg_loss(losses, mask, "seq-mean-token-mean", global_batch_size=4)
    assert float(found) == pytest.approx(0.5)
    found = core.agg_loss(losses, mask, "token-mean", batch_num_tokens=6, global_batch_size=4)
    assert float(found) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "at_half", "at_minus_one"),
    [
        ("k1", 0.5, -1.0),
        ("k2", 0.125, 0.5),
        ("k3", 0.106531, 0.718282),
        ("low_var_kl", 0.106531, 0.718282),
    ],
)
def test_numbers_of_the_divergence(core, kind, at_half, at_minus_one):
    import torch

    found = core.kl_penalty(torch.tensor([0.5, -1.0]), torch.zeros(2), kind)
    assert found.tolist() == pytest.approx([at_half, at_minus_one], abs=1e-6)
    if kind == "low_var_kl":
        assert core.kl_penalty(torch.tensor([-15.0]), torch.zeros(1), kind).item() == 10.0


@pytest.mark.parametrize(
    ("ratio", "better", "worse"), [(0.5, -0.5, 0.8), (1.5, -1.28, 1.5), (4.0, -1.28, 3.0)]
)
def test_numbers_of_the_clip(core, ratio, better, worse):
    import torch
    from verl.workers.config import ActorConfig

    config = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_c=3.0,
    )  # fmt: skip
    for sign, loss in ((1.0, better), (-1.0, worse)):
        found, _ = core.compute_policy_loss_vanilla(
            old_log_prob=torch.zeros(1, 1),
            log_prob=torch.tensor([[ratio]]).log(),
            advantages=torch.tensor([[sign]]),
            response_mask=torch.ones(1, 1),
            config=config,
        )
        assert float(found) == pytest.approx(loss, rel=1e-6)
