"""The loss and the advantage of Flow-GRPO, through verl's own steps, against plain loops in float64.

step        ragged turns of trajectories, put into TransferQueue, padded by verl, their advantages
            computed by verl's trainer with our estimator
ours        `trajectory_loss` on verl's micro-batches, with all that is in the queue in float32
reference   loops over prompts, trajectories, turns and tokens, in float64; autograd through the
            logits of a policy that is a table: one row of logits for each preceding token
"""

import pickle
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.trainer.verl.advantage import (
    WEIGHT,
    LossSettings,
    TrajectoryKey,
    trajectory_loss,
    turn_weights,
)

LOW, HIGH, KL, ENTROPY = 0.2, 0.28, 0.05, 0.01
VOCABULARY = 7
RAGGED = [[[3, 1], [4]], [[2, 5, 1, 3], [1], [2, 2]], [[1, 1], [6, 1, 2]]]
"""Tokens of each action, by prompt, trajectory and turn."""

# --------------------------------------------------------------------------- weights


def keys_of(shape):
    return [
        TrajectoryKey(f"uid_{p}", session, turn)
        for p, prompt in enumerate(shape)
        for session, turns in enumerate(prompt)
        for turn in range(len(turns))
    ]


def lengths_of(shape):
    return np.array([length for prompt in shape for turns in prompt for length in turns])


SHAPES = st.lists(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@given(shape=SHAPES, updates=st.integers(1, 4), seed=st.integers(0, 999))
def test_prompts_trajectories_turns_and_tokens_weigh_the_same_among_themselves(
    shape, updates, seed
):
    keys, lengths_R = keys_of(shape), lengths_of(shape)
    order_R = np.random.default_rng(seed).permutation(len(keys))
    found_R = np.empty(len(keys))
    found_R[order_R] = turn_weights([keys[row] for row in order_R], lengths_R[order_R], updates)
    expected_R = [
        updates / (len(shape) * len(prompt) * len(turns) * length)
        for prompt in shape
        for turns in prompt
        for length in turns
    ]
    np.testing.assert_allclose(found_R, expected_R, rtol=1e-15)
    assert (found_R * lengths_R).sum() == pytest.approx(updates, rel=1e-12)


def test_weights_of_the_docstring():
    """Two trajectories of one prompt: one turn of 2 tokens, and turns of 1 and 4."""
    found_R = turn_weights(keys_of([[[2], [1, 4]]]), np.array([2, 1, 4]))
    assert found_R.tolist() == [1 / 4, 1 / 4, 1 / 16]


@pytest.mark.parametrize(
    ("keys", "lengths"), [([("a", 0, 0)] * 2, [1, 1]), ([("a", 0, 0), ("a", 0, 1)], [1, 0])]
)
def test_a_row_that_is_there_twice_or_empty_is_refused(keys, lengths):
    with pytest.raises(ValueError, match="each turn must be one row"):
        turn_weights([TrajectoryKey(*key) for key in keys], np.array(lengths))


def test_the_loss_reaches_workers_by_its_name():
    loss = LossSettings(LOW, HIGH, KL, "low_var_kl", 0.0).loss()
    text = pickle.dumps(loss)
    again = pickle.loads(text)
    assert (again.func, again.args) == (trajectory_loss, loss.args)
    assert b"rejuice.trainer.verl.advantage" in text


# --------------------------------------------------------------------------- a step


class Sampled(NamedTuple):
    """A turn, in float64."""

    key: TrajectoryKey
    prompt: list[int]
    action: list[int]
    old: list[float]
    reference: list[float]


class StepRig:
    """Turns of a step in TransferQueue, as they stand before the update.

    Args:
        shape: tokens of each action, by prompt, trajectory and turn.
        seed: of tokens and log-probabilities.
        multiple: verl pads the rows to a multiple of this.
        updates: of the step.
        of_turns: whether advantages are those of trajectories, as they should be.
    """

    def __init__(self, shape, seed=0, multiple=1, updates=1, of_turns=True):
        from fake_queue import FakeQueue

        self.shape, self.rng = shape, np.random.default_rng(seed)
        self.queue, self.updates = FakeQueue(), updates
        self.logits = self.rng.normal(size=(VOCABULARY, VOCABULARY))
        self.turns = [
            self._turn(key, n) for key, n in zip(keys_of(shape), lengths_of(shape), strict=True)
        ]
        self.rewards = {
            key.first: float(self.rng.choice([0.0, 0.5, 1.0])) for key in keys_of(shape)
        }
        with pytest.MonkeyPatch.context() as patch:
            self.queue.install(patch)
            self._put()
            self.keys = self._padded(multiple)
            self._put_advantages(of_turns)

    def _turn(self, key, length):
        tokens = self.rng.integers(VOCABULARY, size=self.rng.integers(1, 5) + length).tolist()
        prompt, action = tokens[:-length], tokens[-length:]
        log_probs = self.logits - np.log(np.exp(self.logits).sum(1, keepdims=True))
        true = log_probs[tokens[-length - 1 : -1], action]
        old, reference = (true + self.rng.normal(0, s, length) for s in (0.3, 0.6))
        return Sampled(key, prompt, action, old.tolist(), reference.tolist())

    def _put(self):
        import torch
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        lengths_R = lengths_of(self.shape)
        weights_R = turn_weights([turn.key for turn in self.turns], lengths_R, self.updates)
        rows = []
        for turn, weight in zip(self.turns, weights_R, strict=True):
            ones = torch.ones(len(turn.action), dtype=torch.int64)
            scores = torch.zeros(len(turn.action))
            scores[-1] = self.rewards[turn.key.first]
            both = torch.tensor(turn.prompt + turn.action)
            row = {
                "uid": str(turn.key),
                "prompts": torch.tensor(turn.prompt),
                "responses": torch.tensor(turn.action),
                "input_ids": both,
                "position_ids": torch.arange(len(both)),
                "response_mask": ones,
                "loss_mask": ones,
                "rollout_log_probs": torch.tensor(turn.old, dtype=torch.float32),
                "rm_scores": scores,
                WEIGHT: torch.full((len(turn.action),), weight, dtype=torch.float32),
            }
            rows.append(row)
        names = [str(turn.key) for turn in self.turns]
        fields = list_of_dict_to_tensordict(rows)
        self.queue.kv_batch_put(names, "train", fields, tags=[{"seq_len": 1} for _ in names])

    def _padded(self, multiple):
        from transfer_queue import KVBatchMeta
        from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

        names = [str(turn.key) for turn in self.turns]
        batch = KVBatchMeta(names, [{"seq_len": 1} for _ in names], "train")
        return upsample_batch_to_divisible_size(batch, multiple, 0).keys

    def _put_advantages(self, of_turns):
        from omegaconf import OmegaConf
        from tensordict import TensorDict
        from transfer_queue import KVBatchMeta
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer

        from rejuice.trainer.verl.credit import CreditEstimator

        owners = [turn.key.first if of_turns else turn.key for turn in self.turns]
        reward_of = {owner: self.rewards[owner.first] for owner in owners}
        uids = [owner.uid for owner in reward_of]
        table = pa.table({"prompt_id": uids, "reward": list(reward_of.values())})
        advantages = GrpoAdvantageMapper().apply(table).columns["advantage"].fill_null(0.0)
        found = dict(zip(reward_of, advantages.to_pylist(), strict=True))
        estimator = CreditEstimator()
        estimator.register()
        estimator.set(
            [str(turn.key) for turn in self.turns],
            [
                np.full(len(turn.action), found[owner])
                for turn, owner in zip(self.turns, owners, strict=True)
            ],
        )
        algorithm = {"adv_estimator": "rejuice", "use_kl_in_reward": False, "gamma": 1, "lam": 1}
        config = {"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 4}}}
        trainer = SimpleNamespace(config=OmegaConf.create(config))
        PPOTrainer._compute_advantage(
            trainer, KVBatchMeta(self.keys, [{} for _ in self.keys], "train"), {}
        )
        # What verl computes for all rows, those of padding included.
        data = self.queue.kv_batch_get(self.keys, "train", ["rollout_log_probs"])
        reference = [turn.reference for turn in self.turns]
        reference += [[0.4]] * (len(self.keys) - len(self.turns))
        fields = {
            "old_log_probs": data["rollout_log_probs"],
            "ref_log_prob": jagged(reference),
        }
        self.queue.kv_batch_put(self.keys, "train", TensorDict(fields, batch_size=len(self.keys)))

    def batch(self, keys=None, dp_size=1):
        """Rows as verl's engine hands them to a loss."""
        from verl.utils import tensordict_utils as tu

        data = self.queue.kv_batch_get(keys or self.keys, "train")
        data = data.exclude("uid")
        tokens = sum(len(turn.action) for turn in self.turns)
        for name, value in {
            "dp_size": dp_size, "batch_num_tokens": tokens, "global_batch_size": len(self.keys)
        }.items():  # fmt: skip
            tu.assign_non_tensor_data(data, name, value)
        return data


def jagged(rows):
    import torch

    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def through(loss, table, data):
    """A loss of verl's signature, by the table that is the policy."""
    import torch

    ids = data["input_ids"]
    every = torch.log_softmax(table, 1)
    following = torch.cat((ids.values()[1:], ids.values()[:1]))  # As verl: the last is of no use.
    entropy = -(every.exp() * every).sum(1)
    output = {
        name: torch.nested.nested_tensor_from_jagged(values, ids.offsets())
        for name, values in {
            "log_probs": every[ids.values(), following], "entropy": entropy[ids.values()]
        }.items()
    }  # fmt: skip
    return loss(model_output=output, data=data, dp_group=None)


def ours(rig, kl=KL, entropy=ENTROPY, pieces=1, dp_size=1, loss=None, dtype="float64"):
    """Loss, gradient and metrics of one update; all that is in the queue is float32.

    Args:
        pieces: micro-batches; their gradients add up.
        dp_size: ranks; their gradients are averaged.
    """
    import torch

    loss = loss or LossSettings(LOW, HIGH, kl, "low_var_kl", entropy).loss()
    table = torch.tensor(rig.logits, dtype=getattr(torch, dtype), requires_grad=True)
    whole, found = 0.0, []
    for rank in range(dp_size):
        rows = rig.keys[rank::dp_size]
        for piece in range(pieces):
            part = rows[piece::pieces]
            if part:
                value, metrics = through(loss, table, rig.batch(part, dp_size))
                (value / dp_size).backward()
                whole += value.item() / dp_size
                found.append(metrics)
    return whole, table.grad.double(), found


def reference(rig, kl=KL, entropy=ENTROPY, only=None):
    """The formula, written by hand, in float64; `only`: rows that count, by number."""
    import torch

    table = torch.tensor(rig.logits, requires_grad=True)
    turns, loss = iter(enumerate(rig.turns)), 0.0 * table.sum()
    for p, prompt in enumerate(rig.shape):
        rewards = [rig.rewards[TrajectoryKey(f"uid_{p}", i)] for i in range(len(prompt))]
        mean = sum(rewards) / len(rewards)
        for i, lengths in enumerate(prompt):
            advantage = 0.0
            if len(set(rewards)) > 1:
                variance = sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)
                advantage = (rewards[i] - mean) / (variance**0.5 + 1e-6)
            for _ in lengths:
                row, turn = next(turns)
                if only is not None and row not in only:
                    continue
                before = turn.prompt[-1]
                for j, token in enumerate(turn.action):
                    weight = rig.updates / len(rig.shape) / len(prompt) / len(lengths)
                    weight = weight / len(turn.action)
                    log_probs = torch.log_softmax(table[before], 0)
                    # The queue and the loss know float32; the log-probabilities are inputs.
                    old, ref = (float(np.float32(x[j])) for x in (turn.old, turn.reference))
                    rho = torch.exp(log_probs[token] - old)
                    clipped = torch.clamp(rho, 1 - LOW, 1 + HIGH)
                    gain = torch.minimum(rho * advantage, clipped * advantage)
                    far = ref - log_probs[token]
                    k3 = torch.clamp(torch.exp(far) - far - 1, -10, 10)
                    bonus = -(log_probs.exp() * log_probs).sum()
                    loss = loss - weight * (gain - kl * k3 + entropy * bonus)
                    before = token
    loss.backward()
    return loss.item(), table.grad


def error(found, wanted):
    """The largest error of the loss and of the parts of its gradient."""
    return max(abs(found[0] - wanted[0]), (found[1] - wanted[1]).abs().max().item())


@pytest.mark.slow  # Imports verl.
class TestAgainstTheFormula:
    @given(
        shape=SHAPES,
        seed=st.integers(0, 2**32 - 1),
        kl=st.sampled_from([0.0, KL]),
        multiple=st.sampled_from([1, 4, 7]),
        pieces=st.sampled_from([1, 2]),
        dp_size=st.sampled_from([1, 2]),
    )
    @settings(deadline=None, max_examples=60)
    def test_loss_and_gradient(self, verl, shape, seed, kl, multiple, pieces, dp_size):
        """Ragged turns and lengths, rows of padding, micro-batches, ranks."""
        rig = StepRig(shape, seed, multiple)
        found = ours(rig, kl, pieces=pieces, dp_size=dp_size)
        assert error(found, reference(rig, kl)) < 1e-6

    @pytest.mark.parametrize("pieces", [1, 2])
    def test_in_float32(self, verl, pieces):
        rig = StepRig(RAGGED, 3, multiple=16)
        assert error(ours(rig, pieces=pieces, dtype="float32"), reference(rig)) < 1e-6

    @given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
    @settings(deadline=None, max_examples=30)
    def test_two_updates_share_the_rows(self, verl, shape, seed):
        """Each is the formula, doubled, over its rows; their mean is the formula itself."""
        rig = StepRig(shape, seed, multiple=2, updates=2)
        real, half = len(rig.turns), len(rig.keys) // 2
        whole = 0.0
        for part in (range(half), range(half, len(rig.keys))):
            piece = ours(_Part(rig, [rig.keys[row] for row in part]))
            wanted = reference(rig, only={row for row in part if row < real})
            assert error(piece, wanted) < 1e-6
            whole += piece[0] / 2
        once = reference(StepRig(shape, seed))
        assert whole == pytest.approx(once[0], abs=1e-6)

    @given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
    @settings(deadline=None, max_examples=30)
    def test_advantages(self, verl, shape, seed):
        """By hand, over trajectories; all turns of one have the same, and padding has none."""
        rig = StepRig(shape, seed, multiple=5)
        found = rig.queue.kv_batch_get(rig.keys, "train", ["advantages"])["advantages"].unbind()
        for turn, row in zip(rig.turns, found, strict=False):
            group = [r for key, r in rig.rewards.items() if key.uid == turn.key.uid]
            wanted = 0.0
            if len(set(group)) > 1:
                own = rig.rewards[turn.key.first]
                wanted = (own - np.mean(group)) / (np.std(group, ddof=1) + 1e-6)
            assert row.tolist() == pytest.approx([wanted] * len(turn.action), abs=1e-6)
        assert not any(row.any() for row in found[len(rig.turns) :])

    def test_rows_of_padding_add_exactly_nothing(self, verl):
        import torch

        padding = StepRig(RAGGED, multiple=32)
        plain = StepRig(RAGGED)
        assert len(padding.keys) == 32
        more = [key for key in padding.keys if key.startswith("pad")]
        # They have the weights of the first row, of three tokens, and one token each.
        data = padding.batch(more)
        assert (data[WEIGHT].offsets().diff() == 3).all()
        assert (data["responses"].offsets().diff() == 1).all()
        loss = LossSettings(LOW, HIGH, KL, "low_var_kl", ENTROPY).loss()
        table = torch.tensor(padding.logits, dtype=torch.float32, requires_grad=True)
        value, metrics = through(loss, table, data)
        value.backward()
        assert value.item() == 0
        assert not table.grad.any()
        assert metrics["actor/pg_loss"].aggregate() == 0
        assert ours(padding)[0] == pytest.approx(ours(plain)[0], abs=1e-7)

    def test_corrections_of_the_rollouts_weigh_the_policy_only(self, verl):
        """verl puts them there where the servers' log-probabilities are not the trainer's."""
        from tensordict import TensorDict

        def parts(rig):
            (metrics,) = ours(rig)[2]
            return [metrics[name].aggregate() for name in ("actor/pg_loss", "kl_loss")]

        rig = StepRig(RAGGED, seed=3)
        before = parts(rig)
        doubled = jagged([[2.0] * len(turn.action) for turn in rig.turns])
        fields = TensorDict({"rollout_is_weights": doubled}, batch_size=len(rig.keys))
        rig.queue.kv_batch_put(rig.keys, "train", fields)
        assert parts(rig) == pytest.approx([2 * before[0], before[1]], rel=1e-12)


class _Part:
    """Some rows of a rig."""

    def __init__(self, rig, keys):
        self.keys, self.logits, self.turns = keys, rig.logits, rig.turns
        self.batch = rig.batch


# --------------------------------------------------------------------------- what differs


@pytest.mark.slow  # Imports verl.
class TestOtherLosses:
    """How far they are off, of a loss and of parts of a gradient that are about 0.1."""

    @pytest.fixture
    def config(self, verl):
        from verl.workers.config import ActorConfig

        def make(mode):
            return ActorConfig(
                strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=LOW,
                clip_ratio_high=HIGH, loss_agg_mode=mode, use_kl_loss=True, kl_loss_coef=KL,
                kl_loss_type="low_var_kl", entropy_coeff=ENTROPY,
            )  # fmt: skip

        return make

    @pytest.mark.parametrize(
        ("mode", "off"),
        [
            ("token-mean", 0.080),
            ("seq-mean-token-mean", 0.092),
            ("seq-mean-token-sum", 0.202),
            ("seq-mean-token-sum-norm", 0.060),
        ],
    )
    def test_verls_modes(self, config, mode, off):
        from functools import partial

        from verl.workers.utils.losses import ppo_loss

        rig = StepRig(RAGGED, seed=3)
        wanted = reference(rig)
        assert error(ours(rig), wanted) < 1e-6
        found = ours(rig, loss=partial(ppo_loss, config(mode)))
        assert error(found, wanted) == pytest.approx(off, abs=0.001)

    def test_statistics_of_turn_rows(self, verl):
        rig = StepRig(RAGGED, seed=3, of_turns=False)
        assert error(ours(rig), reference(rig)) == pytest.approx(0.038, abs=0.001)

    def test_verls_loss_is_ours_where_each_trajectory_is_one_turn_of_one_length(self, config):
        """The same ratios, clip, divergence and bonus; only the weights differ elsewhere."""
        from functools import partial

        from verl.workers.utils.losses import ppo_loss

        rig = StepRig([[[4], [4]], [[4], [4]]], seed=1)
        theirs = ours(rig, loss=partial(ppo_loss, config("token-mean")))
        mine = ours(rig)
        assert error(mine, theirs) < 1e-6
        for name, metric in mine[2][0].items():
            value = getattr(metric, "aggregate", lambda m=metric: m)()
            other = theirs[2][0][name]
            assert value == pytest.approx(
                getattr(other, "aggregate", lambda o=other: o)(), abs=1e-6
            )
        assert theirs[2][0].keys() - mine[2][0].keys() == {"actor/pg_clipfrac_lower"}


@pytest.mark.slow  # Imports verl.
@pytest.mark.parametrize(("mode", "times"), [(None, 1), ("token-mean", 0)])
def test_the_loss_is_set_once_and_only_where_it_is_chosen(stage, mode, times):
    from training_stage import AGENTS, PLAIN
    from trajectories import trajectory

    here = stage(PLAIN, rollout=AGENTS, loss={"aggregate": mode} if mode else {})
    for step in (1, 2):
        here.play({step: [trajectory("1"), trajectory("0")]}, step=step)
        here.sample(step, groups=1)
    assert len(here.trainer.losses) == times
