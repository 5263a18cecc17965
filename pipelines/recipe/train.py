"""The `train:` section of a recipe: the settings of GRPO training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from typing_extensions import Self

from ...operators.config import Config

Profile = Literal["cpu", "gpu"]
TrainingSchedule = Literal["generate", "self_verify", "verify_init", "verify_alter", "mixed"]
Logger = Literal["tensorboard", "wandb", "mlflow", "swanlab"]


class Gpu(Config):
    """Hardware settings of profile `gpu`."""

    gpus: PositiveInt = 8
    """GPUs on each node."""
    nodes: PositiveInt = 1
    """Nodes of the Ray cluster."""
    tensor_parallel: PositiveInt = 1
    """GPUs per vLLM engine."""
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.6
    """Fraction of a GPU's memory that vLLM may use while it samples."""
    tokens_per_gpu: PositiveInt = 16384
    """Tokens of prompts and responses in one forward or backward pass."""
    offload: bool = False
    """Keep weights and optimizer state in CPU memory while vLLM samples."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass instead of storing them."""


class Verification(Config):
    """Which of the policy's own judgements are trained on, and when."""

    init_share: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """`verify_init`: the share of steps, at the beginning, that train on judgements."""
    every: PositiveInt = 5
    """`verify_alter`: steps from one training on judgements to the next."""
    max_age: NonNegativeInt | None = None
    """Oldest answers that are judged, in steps since they were sampled; 0: those of the step
    itself. Null: all since the last judgements."""
    capacity: PositiveInt = 65536
    """Most answers in the queue of those to be judged; beyond it, the oldest are removed."""


class Train(Config):
    """How `rejuice train` trains; n, temperature and lengths are in `policy_rollout_mapper`."""

    policy: str | None = None
    """A folder or hub name; by default the model of `policy_rollout_mapper`."""
    validation_path: Path | None = None
    """Held-out prompts, with the columns of `dataset_path`. None: there is no validation."""
    steps: PositiveInt = 100
    """Training steps: each samples prompts, runs the recipe and updates the policy."""
    prompts_per_step: PositiveInt = 64
    """Prompts, and so groups, of a step."""
    updates_per_step: PositiveInt = 1
    """Optimizer updates per step. Each gets the same number of the remaining rows, a multiple of
    `n`; where few rows remain, there are fewer updates."""
    replay: Path | None = None
    """A curated dataset with token ids, log-probabilities and rewards, to train on as it is.
    Sampling happens only for validation; ratios are relative to the stored log-probabilities."""
    refill: NonNegativeInt = 0
    """Dynamic sampling: how often a step may sample more prompts to replace groups that the
    recipe has dropped. 0: train on the remaining groups. Not allowed where answers are only
    judged."""
    learning_rate: PositiveFloat = 1e-6
    """The learning rate of AdamW."""
    warmup_steps: NonNegativeInt = 0
    """Steps over which the learning rate rises to its value."""
    weight_decay: NonNegativeFloat = 0.0
    """The weight decay of AdamW."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    clip_ratio_low: PositiveFloat = 0.2
    """The probability ratio is clipped at 1 minus this."""
    clip_ratio_high: PositiveFloat = 0.2
    """The probability ratio is clipped at 1 plus this; DAPO uses 0.28."""
    loss_agg_mode: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = "token-mean"
    """How token losses are aggregated; the names are verl's."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the initial policy. 0: no reference is loaded."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus in the loss."""
    max_prompt_tokens: PositiveInt = 512
    """Longer prompts are dropped, with a decision."""
    validate_every: NonNegativeInt = 20
    """Steps between validations; 0: only before the first and after the last step."""
    validation_n: PositiveInt = 1
    """Responses to each held-out prompt."""
    save_every: NonNegativeInt = 50
    """Steps between checkpoints; the last step always saves one. 0: none at all."""
    keep_checkpoints: PositiveInt = 2
    """Older checkpoints are removed."""
    keep_rollouts: bool = True
    """Keep rollouts, decisions and rewards of each step as Parquet, for runs offline."""
    profile: Profile = "cpu"
    """`cpu`: the embedded sampler and gloo. `gpu`: vLLM and NCCL."""
    gpu: Gpu = Gpu()
    """The hardware; profile `gpu` only."""
    schedule: TrainingSchedule = "generate"
    """What is trained on. `generate`: responses to the prompts of the dataset. `self_verify`: only
    judgements of them. `verify_init`: judgements first, then responses. `verify_alter`: responses,
    and every few steps judgements too. `mixed`: both at each step."""
    verification: Verification = Verification()
    """Which judgements are trained on, and when."""
    loggers: tuple[Logger, ...] = ("tensorboard",)
    """verl's experiment trackers, in addition to the console and metrics.jsonl."""
    seed: NonNegativeInt = 0
    """Seed of the order of prompts and of sampling."""
    verl: dict[str, Any] = Field({})
    """Any key of verl's configuration, such as `actor_rollout_ref.actor.optim.betas`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.prompts_per_step % self.updates_per_step:
            raise ValueError("prompts_per_step must be a multiple of updates_per_step")
        if self.replay and self.refill:
            raise ValueError("refill samples, and replay does not: leave one of them out")
        if self.refill and self.schedule == "self_verify":
            raise ValueError(
                "refill replaces answers that cannot train, and with schedule self_verify none do: "
                "leave it out, or take more prompts_per_step"
            )
        if self.replay and self.schedule != "generate":
            raise ValueError(
                f"schedule {self.schedule} samples judgements, and replay samples nothing: "
                "leave one of them out"
            )
        if self.schedule == "verify_alter" and self.verification.every > self.steps:
            raise ValueError(
                f"verification.every is {self.verification.every}, and there are {self.steps} "
                "steps: judgements would never be trained on"
            )
        return self
