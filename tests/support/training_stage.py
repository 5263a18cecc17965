"""A training run up to the update: our replay buffer, with prompts and responses that are made up.

    stage = Stage(folder, queue, after=[{"scripted_mapper": None}, {"reward_sum_mapper": ...}])
    stage.answer({0: ["1", "0"], 1: ["timeout", "1"]})       # responses to prompts 0 and 1
    batch, figures = stage.sample(step=1, groups=2)

A response names its own reward (see `SCRIPTED`): a number, or why there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow.parquet as pq
import yaml
from fake_queue import FakeQueue

from rejuice.operators.agents.trajectory import Trajectory, TrajectoryGroup
from rejuice.operators.sampling.protocol import Group, Sample
from rejuice.pipelines.recipe.recipe import Recipe, load
from rejuice.trainer.launch.training import prepare

SCRIPTED = '''
"""Operators of tests: a response determines what becomes of it."""

import json

import numpy as np
import pyarrow as pa

from rejuice.operators import Mapper
from rejuice.operators.columns import ROW_CONTRACT, component


class ScriptedMapper(Mapper):
    """Accuracy: the number that the response is, or the reason it is missing for."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("reward_accuracy", "reward_accuracy_missing", "verdict")

    def map(self, table):
        first_words = [first_word(text) for text in table["response"].to_pylist()]
        numbers = [number(each) for each in first_words]
        values = np.array([n if n is not None else 0.0 for n in numbers])
        why = [None if n is not None else each for n, each in zip(numbers, first_words)]
        slugs = [w or ("correct" if n else "wrong_answer") for n, w in zip(numbers, why)]
        found = component("accuracy", values, pa.array(why, pa.string()))
        return {**found, "verdict": pa.array(slugs, pa.string())}


class BareRewardMapper(Mapper):
    """The reward itself, null where the response is no number."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("reward",)

    def map(self, table):
        rewards = [number(first_word(text)) for text in table["response"].to_pylist()]
        return {"reward": pa.array(rewards, pa.float64())}


class CreditMapper(Mapper):
    """What words of a response say, such as `advantage=2`; null where it does not say it.

    Values of lists have no spaces; those of `token_weight` are repeated for all tokens.
    """

    columns: tuple[str, ...] = ("advantage",)

    def reads(self):
        return ("response", "response_token_ids")

    def writes(self):
        return self.columns

    def map(self, table):
        found_words = [words(text) for text in table["response"].to_pylist()]
        tokens = [len(ids) for ids in table["response_token_ids"].to_pylist()]
        found = {name: [each.get(name) for each in found_words] for name in self.columns}
        for row, weights in enumerate(found.get("token_weight", ())):
            if weights:
                found["token_weight"][row] = (weights * tokens[row])[: tokens[row]]
        return {name: pa.array(each, ROW_CONTRACT.get(name)) for name, each in found.items()}


class ShortWeightMapper(CreditMapper):
    """`token_weight` as the response says it, not repeated for all tokens."""

    columns: tuple[str, ...] = ("token_weight",)

    def map(self, table):
        given = [words(text).get("token_weight") for text in table["response"].to_pylist()]
        return {"token_weight": pa.array(given, ROW_CONTRACT["token_weight"])}


def words(text):
    pairs = (word.split("=") for word in (text or "").split(" ") if "=" in word)
    return {name: json.loads(value) for name, value in pairs}


def first_word(text):
    """That of no text, which a failed trajectory has, is why there is no number."""
    return "no_response" if text is None else text.split(" ")[0] or "0"


def number(text):
    try:
        return float(text)
    except ValueError:
        return None
'''

SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
PLAIN = [{"scripted_mapper": None}, SUM, {"grpo_advantage_mapper": None}]
"""Steps after sampling: reward and advantage."""


def summed(on_missing: str) -> dict[str, Any]:
    """The reward, with what is done about one that is missing."""
    return {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": on_missing}}


AGENTS = {"agent_rollout_mapper": {"n": 4, "max_tokens": 16, "flow": "react"}}
"""The step that samples, of agents."""


class Stage:
    """A run's folder, its replay buffer, and an empty TransferQueue.

    Args:
        folder: of the run.
        queue: the fake TransferQueue.
        after: steps after sampling.
        prompts: how many there are.
        n: responses to each.
        head: keys of the recipe's top.
        more: called with the number of further prompts that the buffer asks for.
        trainer: whose buffer it is.
        rollout: the step that samples; by default it samples responses.
        choosing: steps that choose the prompts of a step.
        rows: of the dataset, instead of made-up ones, with `question` and `answer`.
        train: keys of the `train:` section.
    """

    def __init__(
        self,
        folder: Path,
        queue: FakeQueue,
        after: Sequence[Mapping[str, Any]] = PLAIN,
        *,
        prompts: int = 8,
        n: int = 4,
        head: Mapping[str, Any] | None = None,
        more: Callable[[int], int] | None = None,
        trainer: Trainer | None = None,
        rollout: Mapping[str, Any] | None = None,
        rows: Sequence[Mapping[str, str]] = (),
        choosing: Sequence[Mapping[str, Any]] = (),
        **train: Any,
    ) -> None:
        self.queue = queue
        recipe = _recipe(
            folder.parent, after, prompts, n, head or {}, train, rollout, rows, choosing
        )
        self.run = prepare(recipe, folder)
        self.prompts = self.run.prompts("train").to_pylist()
        self.uids: dict[int, list[str]] = {}
        self._policy, _ = self.run.sampler()
        self.trainer = trainer or Trainer(more, n)
        self.trainer.file = folder / "metrics.jsonl"
        self.buffer = buffer_of(self.run, self.trainer)

    def ask(
        self,
        prompts: Sequence[int],
        partition: str = "train",
        step: int = 1,
        split: str | None = None,
    ) -> list[Any]:
        """Put prompts as verl does when it hands them to its agent loops.

        Args:
            prompts: their numbers.
            partition: `train` or `val`.
            step: of training.
            split: the validation set that they are of; by default that of `validation_path`.
        """
        split = split or {"train": "train", "val": "validation"}[partition]
        from rejuice.trainer.verl.trajectories import Slot

        slots = []
        for index in prompts:
            made = self.uids.setdefault(index, [])
            uid = self.uid_of(index, len(made))
            made.append(uid)
            name = self.prompts[index]["prompt_id"]
            fields = {
                "data_source": "test",
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"index": index, "prompt_id": name, "split": split},
            }
            slots.append(Slot(uid, fields))
        tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in slots]
        fields = None
        if self.run.config.samples_ahead:  # verl keeps what it needs to request them again.
            from verl.utils.tensordict_utils import list_of_dict_to_tensordict

            fields = list_of_dict_to_tensordict([slot.fields for slot in slots])
        self.queue.kv_batch_put([slot.uid for slot in slots], partition, fields, tags)
        return slots

    def prompt_batch(self, prompts: Sequence[int]) -> Any:
        """Prompts as verl hands them to its agent loops; they are put first."""
        from verl.utils import tensordict_utils as tu

        slots = self.ask(prompts)
        batch = tu.get_tensordict(
            {
                "uid": [slot.uid for slot in slots],
                "raw_prompt": [self.prompts[k]["prompt"] for k in prompts],
                "extra_info": [slot.fields["extra_info"] for slot in slots],
            }
        )
        tu.assign_non_tensor_data(batch, "global_steps", 1)
        return batch

    def uid_of(self, index: int, made: int) -> str:
        """The key of a prompt that is requested for the `made`-th time; verl's are random."""
        return f"{index:04d}-{made}-uid"

    def answer(
        self,
        responses: Mapping[int, Sequence[str]],
        partition: str = "train",
        step: int = 1,
        slots: Sequence[Any] | None = None,
    ) -> None:
        """Put groups of responses to prompts, given by their number; puts the prompts first if need be."""
        from rejuice.trainer.verl.trajectories import put

        slots = self.ask(list(responses), partition, step) if slots is None else slots
        groups = [self.group(texts, step - 1) for texts in responses.values()]
        put(zip(slots, groups, strict=True), partition, step)

    def play(
        self,
        trajectories: Mapping[int, Sequence[Trajectory]],
        partition: str = "train",
        step: int = 1,
    ) -> None:
        """Put groups of trajectories to prompts, given by their number, and the prompts first."""
        from rejuice.trainer.verl.trajectories import put

        slots = self.ask(list(trajectories), partition, step)
        groups = [
            TrajectoryGroup("embedded", step - 1, 0, tuple(each)) for each in trajectories.values()
        ]
        put(zip(slots, groups, strict=True), partition, step)

    def fail(self, prompts: Sequence[int], partition: str = "train", step: int = 1) -> None:
        """Prompts that could not be sampled."""
        from rejuice.trainer.verl.trajectories import fail

        fail(self.ask(prompts, partition, step), partition)

    def group(self, texts: Sequence[str], version: int) -> Group:
        """Responses as the sampler gives them."""
        tokenizer = self._policy.tokenizer
        samples = []
        for k, text in enumerate(texts):
            ids = (*tokenizer.encode(text), tokenizer.eos_token_id)
            logprobs = tuple(-0.25 * (at + k + 1) for at in range(len(ids)))
            samples.append(Sample(text, ids, logprobs, "stop"))
        return Group("embedded", version, 0, (5, 6, 7), tuple(samples))

    def sample(self, step: int, groups: int, partition: str = "train") -> tuple[Any, Any]:
        """What verl gets from its replay buffer."""
        return self.buffer.sample(step, partition, groups)

    def train(self, step: int, groups: int) -> tuple[Any, dict[str, Any]]:
        """A step of verl without its update: the batch, and the figures that are logged."""
        figures: dict[str, Any] = {}
        self.trainer.global_steps = step
        self.trainer.sampled = lambda: self.sample(step, groups)
        return self.trainer.step(figures, {}), figures

    def rewards(self, batch: Any) -> list[float]:
        """What verl trains on: the scores of each response's tokens, summed."""
        data = self.queue.kv_batch_get(batch.keys, batch.partition_id, ["rm_scores"])
        return [float(row.sum()) for row in data["rm_scores"].unbind()]

    def saved(self, name: str, step: int = 1) -> Any:
        """A table that was kept of a step."""
        self.buffer.files.wait()
        return pq.read_table(self.run.folder / "steps" / f"{step:06d}" / f"{name}.parquet")

    def tokens(self, part: str, step: int = 1) -> list[list[int]]:
        """The responses that were kept of a step, as token ids: of the answers or in `verify`."""
        rows = self.saved(f"{part}/rollouts".lstrip("/"), step)["response_token_ids"].to_pylist()
        return [list(ids) for ids in rows]

    def dropped(self, step: int = 1) -> dict[tuple[str, str], int]:
        """How many rows were dropped, by step and reason."""
        counts: dict[tuple[str, str], int] = {}
        for row in self.saved("decisions", step).to_pylist():
            counts[row["step"], row["reason"]] = counts.get((row["step"], row["reason"]), 0) + 1
        return counts


class Trainer:
    """verl's trainer, as far as the replay buffer uses it.

    Attributes:
        losses: those that the workers were given, in this order.
        logged: steps and figures that were logged beside verl's own.
        log_ratio: what the policy of today gives each token more than the one that sampled it.
        ended: how often the sampling of a step was ended.

    Args:
        more: called with the number of further prompts that the buffer asks for.
        n: responses to each.
    """

    def __init__(self, more: Callable[[int], int] | None = None, n: int = 4) -> None:
        self._more = more
        rollout = SimpleNamespace(n=n, temperature=1.0)
        actor = SimpleNamespace(
            ppo_mini_batch_size=2, clip_ratio_low=0.2, clip_ratio_high=0.28, entropy_coeff=0.0,
            use_kl_loss=True, kl_loss_coef=0.001, kl_loss_type="low_var_kl",
        )  # fmt: skip
        self.losses: list[Any] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.logger = SimpleNamespace(log=self._log, logger={})
        self.actor_rollout_wg = SimpleNamespace(
            set_loss_fn=self.losses.append, compute_log_prob=self._compute_log_prob
        )
        self.tokenizer = SimpleNamespace(eos_token_id=2)
        self.train_dataloader = SimpleNamespace(state_dict=dict)
        self.log_ratio, self.ended = 0.0, 0
        self.config = SimpleNamespace(
            actor_rollout_ref=SimpleNamespace(rollout=rollout, actor=actor),
            trainer=SimpleNamespace(n_gpus_per_node=1, nnodes=1, save_freq=50, test_freq=-1),
        )
        self.total_training_steps = 100
        self.global_steps = 1
        self.submitted: list[Any] = []
        self.file = Path("/dev/null")  # of the metrics

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        self.submitted.append(batch)
        return len(batch)

    def prepare_step(self) -> dict[str, Any]:
        """verl requests the prompts of a step; tests put them themselves."""
        return {}

    def _save_checkpoint(self) -> None:
        """verl saves one; tests count nothing."""

    def on_step_end(self) -> None:
        """verl gives the sampler its weights."""

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """A step of verl up to its update."""
        batch, figures = self.sampled()
        metrics.update(figures)
        return batch

    def on_sample_end(self) -> None:
        """verl's samplers give back their memory."""
        self.ended += 1

    def _compute_log_prob(self, batch: Any) -> Any:
        """Write `log_probs` of prompts and responses, each at the place of the token before it."""
        import torch
        import transfer_queue as tq
        from tensordict import TensorDict

        names = ["prompts", "rollout_log_probs"]
        data = tq.kv_batch_get(batch.keys, batch.partition_id, names)
        rows = [
            torch.cat((torch.zeros(len(prompt) - 1), sampled + self.log_ratio, torch.zeros(1)))
            for prompt, sampled in zip(*(data[name].unbind() for name in names), strict=True)
        ]
        nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        fields = TensorDict({"log_probs": nested}, batch_size=len(rows))
        tq.kv_batch_put(batch.keys, batch.partition_id, fields=fields)
        return batch

    def _compute_metrics(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def _log_rollout_data(self, *_: Any) -> None:
        raise NotImplementedError

    def _log(self, data: dict[str, float], step: int) -> None:
        self.logged.append((step, data))
        with self.file.open("ab") as file:
            file.write(orjson.dumps({"step": step, "data": data}) + b"\n")

    def refill(self, prompts: int) -> int:
        """Further prompts, of which so many come."""
        assert self._more is not None, "no refill was allowed"
        return self._more(prompts)


def estimated(batch: Any) -> None:
    """Have verl's own code estimate the advantages of a batch in the queue."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    algorithm = {"adv_estimator": "rejuice", "use_kl_in_reward": False, "gamma": 1, "lam": 1}
    config = {"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 4}}}
    PPOTrainer._compute_advantage(SimpleNamespace(config=OmegaConf.create(config)), batch, {})


def advantages(stage: Stage, batch: Any) -> dict[str, Any]:
    """By key, what verl puts there for the update: of each token."""
    estimated(batch)
    names = ["advantages", "response_mask", "loss_mask", "rm_scores"]
    data = stage.queue.kv_batch_get(batch.keys, "train", names)
    columns = [[row.tolist() for row in data[name].unbind()] for name in names]
    rows = zip(*columns, strict=True)
    return {
        key: SimpleNamespace(**dict(zip(names, row, strict=True)))
        for key, row in zip(batch.keys, rows, strict=True)
    }


def buffer_of(run: Any, trainer: Trainer) -> Any:
    """The replay buffer of a run, as verl makes it."""
    from rejuice.trainer.verl.training import RecipeBuffer

    return RecipeBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=1,
        max_off_policy_strategy="drop",
        sampler_kwargs={"run": str(run.folder)},
        refill_fn=trainer.refill,
    )


def _recipe(
    folder: Path,
    after: Sequence[Mapping[str, Any]],
    prompts: int,
    n: int,
    head: Mapping[str, Any],
    train: Mapping[str, Any],
    rollout: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, str]] = (),
    choosing: Sequence[Mapping[str, Any]] = (),
) -> Recipe:
    (folder / "scripted.py").write_text(SCRIPTED)
    made_up = [{"question": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(prompts)]
    rows = rows or made_up
    for name in ("train", "validation"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    before = [
        {"prompt_template_mapper": {"question": "question", "reference": "answer"}},
        *choosing,
        rollout or {"policy_rollout_mapper": {"n": n, "max_tokens": 16}},
    ]
    document = {
        "project_name": "test",
        "dataset_path": str(folder / "train.jsonl"),
        "export_path": str(folder / "curated.parquet"),
        "custom_operator_paths": [str(folder / "scripted.py")],
        **head,
        "process": [*before, *after],
        "train": {
            "validation_path": str(folder / "validation.jsonl"),
            "steps": 5,
            "prompts_per_step": 2,
            "max_prompt_tokens": 128,
            **train,
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load(path)
