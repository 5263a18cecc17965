"""The `train:` section of a recipe: the settings of GRPO training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from typing_extensions import Self

from ...operators.confidence import pass_at_powers
from ...operators.config import Config

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Section(Config):
    """Settings that are refused where they contradict each other."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        yield from ()


class ValidationSet(Section):
    """Held-out prompts, and how they are sampled; a path alone is a set with all defaults."""

    path: Path
    """The held-out prompts, with the columns of `dataset_path` or with `overrides`."""
    max_samples: PositiveInt | None = None
    """At most so many of its prompts, drawn once; verl's `val_max_samples`. Null: all."""
    n: PositiveInt = 1
    """Responses to each prompt."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """The temperature of sampling. 0: greedy. Null: that of training."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """The nucleus of sampling. Null: that of training."""
    overrides: dict[str, dict[str, Any]] = Field({})
    """Fields that steps before sampling have for this set instead of their own, by step: for other
    columns, such as `prompt_template_mapper: {question: problem}`."""

    @model_validator(mode="before")
    @classmethod
    def _of_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, (str, Path)) else value

    def _faults(self) -> Iterator[str]:
        if self.temperature == 0 and self.n > 1:
            yield "temperature: 0 always gives the same response: it needs n: 1"

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        fields = super().__get_pydantic_json_schema__(core_schema, handler)
        return {"anyOf": [{"type": "string", "format": "path"}, fields]}


def check_names(names: Iterable[str]) -> None:
    """Check that names of sets can be parts of the names of files and of metrics."""
    for name in names:
        if not _NAME.fullmatch(name):
            right = "use letters, digits, - and _"
            raise ValueError(f"validation set '{name}' has a name that is no file name: {right}")


Profile = Literal["cpu", "gpu"]
LossAggMode = Literal[
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "trajectory-turn-token-mean",
]
PolicyLoss = Literal["vanilla", "gspo", "cispo", "sapo", "geo_mean", "clip_cov", "kl_cov"]
TURN_MEAN: LossAggMode = "trajectory-turn-token-mean"
"""The only one that is not verl's."""
_VOCABULARY = ("lm_head", "model.embed_tokens")
ONE_SET = "validation"
"""The name of the validation set that `validation_path` is."""


class Megatron(Config):
    """How Megatron divides the policy, by verl's names."""

    tensor_model_parallel_size: PositiveInt = 1
    """GPUs that share each layer."""
    pipeline_model_parallel_size: PositiveInt = 1
    """Stages that the layers are divided into."""


class Gpu(Section):
    """Hardware settings of profile `gpu`."""

    gpus: PositiveInt = 8
    """GPUs on each node."""
    nodes: PositiveInt = 1
    """Nodes of the Ray cluster."""
    rollout: Literal["vllm", "sglang"] = "vllm"
    """What samples; verl's `actor_rollout_ref.rollout.name`."""
    strategy: Literal["fsdp2", "megatron"] = "fsdp2"
    """What trains; verl's `actor_rollout_ref.actor.strategy`."""
    megatron: Megatron = Megatron()
    """How the policy is divided; strategy `megatron` only."""
    tensor_parallel: PositiveInt = 1
    """GPUs per engine that samples."""
    rollout_gpus: PositiveInt | None = None
    """GPUs of each node on which engines sample all the time, beside `gpus`, on which the policy is
    trained; mode `separate_async` only, which needs them."""
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.6
    """Fraction of a GPU's memory that the engine may use while it samples."""
    tokens_per_gpu: PositiveInt = 16384
    """Tokens of prompts and responses in one forward or backward pass."""
    offload: bool = False
    """Keep weights and optimizer state in CPU memory while responses are sampled."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass instead of storing them."""
    attention: str | None = None
    """The attention of what trains, by its name in transformers; strategy `fsdp2` only. Null:
    `flash_attention_2` where the package flash-attn is installed, else `sdpa`."""
    reproducible: bool = False
    """Give each request a seed of its own, as profile `cpu` does. vLLM then draws the tokens of
    each response by itself, which takes longer."""

    def _faults(self) -> Iterator[str]:
        if self.reproducible and self.rollout == "sglang":
            yield "requests to SGLang take no seed: leave reproducible out, or choose rollout vllm"
        if self.strategy != "megatron" and self.megatron != Megatron():
            yield "megatron is for strategy megatron: leave it out, or choose that"
        if self.strategy == "megatron" and self.attention is not None:
            yield "attention is for strategy fsdp2: leave it out, or choose that"
        sizes, gpus = self.megatron, self.gpus * self.nodes
        parts = sizes.tensor_model_parallel_size * sizes.pipeline_model_parallel_size
        if gpus % parts:
            yield f"megatron divides the policy among {parts} GPUs, of which {gpus} are no multiple"


class Cpu(Config):
    """Memory settings of profile `cpu`."""

    tokens: PositiveInt | None = None
    """Tokens of prompts and responses in one forward or backward pass. Null: as many as take about
    4 GiB, by the size of the policy."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them."""


class Lora(Section):
    """LoRA, by PEFT: what is trained beside the weights of the policy."""

    rank: Annotated[int, Field(gt=0, le=512)] = 16
    """The rank of the adapter's matrices; vLLM takes no more than 512."""
    alpha: PositiveInt = 32
    """The adapter's product is multiplied by this, divided by `rank`."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """The modules that get an adapter: `all-linear`, all but the head; a regular expression; or a
    list such as `[q_proj, v_proj]`."""
    export: Literal["merged", "adapter"] = "merged"
    """What is written as the policy. `merged`: a whole model, the adapter added to its weights.
    `adapter`: a folder of PEFT, which needs the policy that it was trained beside."""

    def _faults(self) -> Iterator[str]:
        chosen = self.target_modules
        if isinstance(chosen, str):
            try:
                taken = any(re.fullmatch(chosen, name) for name in _VOCABULARY)
            except re.error as error:
                taken = False
                yield f"target_modules '{chosen}' is no regular expression: {error}"
        else:  # A module is named by the end of its path.
            ends = {name.rsplit(".", 1)[-1] for name in chosen}
            taken = any(name.rsplit(".", 1)[-1] in ends for name in _VOCABULARY)
        # verl's kernels take the head's weights, not its module; the embedding may share them.
        if taken:
            yield "lm_head and embed_tokens cannot have an adapter: leave them out"


class Loss(Section):
    """The loss of the policy."""

    policy: PolicyLoss = "vanilla"
    """The loss, by verl's name. `vanilla`: PPO's and GRPO's. `gspo`: ratios of whole responses.
    `cispo`: ratios are clipped, gradients are not. `sapo`: a soft gate instead of clipping.
    `geo_mean`: GMPO. `clip_cov`, `kl_cov`: tokens that lower the entropy most are left out, or kept
    near."""
    clip: tuple[PositiveFloat, PositiveFloat] | None = None
    """How far below and above 1 a ratio is clipped, such as `[0.2, 0.28]` for 0.8 to 1.28; below, 1
    is no bound. Of `geo_mean` it is how far from 0 the logarithm of a ratio is. Null: as the
    paper or example of the loss has it; `vanilla`: `[0.2, 0.2]`, `gspo`: `[0.0003, 0.0004]`,
    `cispo`: `[1, 0.2]`, `geo_mean`: `[0.4, 0.4]`, `clip_cov`: `[1, 1]`. `sapo` and `kl_cov` clip
    nothing."""
    aggregate: LossAggMode | None = None
    """How token losses are aggregated. `trajectory-turn-token-mean`, only for agents and their
    default with `vanilla`: Flow-GRPO's mean over trajectories, their turns, and the tokens of a
    turn. The other names are verl's, to which each turn of an agent is a response. Null:
    `seq-mean-token-mean` of `gspo`, `sapo` and `geo_mean`, of which the last two have no other;
    else `token-mean`."""

    def _faults(self) -> Iterator[str]:
        policy, aggregate = self.policy, self.aggregate
        if self.clip is not None and _CLIPS[policy] is None:
            yield f"loss {policy} clips no ratios: leave clip out"
        low, high = self.clip or (0, 0)
        if high < low < 1:
            yield f"clip [{low:g}, {high:g}] is out of order: first below 1, then above, no less"
        if aggregate == TURN_MEAN and policy != "vanilla":
            yield f"aggregate {TURN_MEAN} has a loss of its own: choose policy vanilla, or another"
        if aggregate and policy in _ONE_MEAN and aggregate != default_aggregate(policy):
            yield f"loss {policy} is a mean over responses: leave aggregate {aggregate} out"


_CLIPS: Mapping[PolicyLoss, tuple[float, float] | None] = {
    "vanilla": (0.2, 0.2),  # arXiv:1707.06347
    "gspo": (3e-4, 4e-4),  # arXiv:2507.18071, section 5.1
    # arXiv:2506.13585 has no lower bound, and does not say the upper one: that of verl's example.
    "cispo": (1.0, 0.2),
    "sapo": None,
    "geo_mean": (0.4, 0.4),  # of the logarithm: the example in verl of arXiv:2507.20673
    "clip_cov": (1.0, 1.0),  # verl's recipe/entropy, of the authors of arXiv:2505.22617
    "kl_cov": None,
}
"""How far below and above 1 ratios are clipped by default; None: verl's function clips nothing."""
_ONE_MEAN = ("sapo", "geo_mean")
"""Losses that are means over responses in verl, whatever `aggregate` is."""


def default_aggregate(policy: str) -> LossAggMode:
    """How verl aggregates the token losses of a loss by default."""
    return "seq-mean-token-mean" if policy in ("gspo", *_ONE_MEAN) else "token-mean"


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


class StopRules(Config):
    """When training ends before its last step."""

    nan_steps: NonNegativeInt = 3
    """Training fails after so many steps in a row whose gradient or loss is nan or infinite. Such
    a step leaves the policy as it is, and saves no checkpoint. 0: it goes on."""
    validations_without_gain: PositiveInt | None = None
    """Training ends after so many validations in a row without a new best accuracy on the first
    set. Null: it goes on."""
    at: dict[str, float] = Field({})
    """Training ends once a validation has reached all of these, such as `{accuracy: 0.9}`. Figures
    are called as in metrics.jsonl, such as `aime/pass@8`; `accuracy` is that of the first set."""


class Train(Section):
    """How `rejuice train` trains; n, temperature and lengths are in `policy_rollout_mapper`."""

    policy: str | None = None
    """A folder or hub name; by default the model of `policy_rollout_mapper`."""
    validation: dict[str, ValidationSet] = Field({})
    """Named sets of held-out prompts, each reported apart: `{gsm8k: PATH, aime: {path: PATH, n: 16,
    temperature: 0.6}}`. Empty, and without `validation_path`: there is no validation."""
    validation_path: Path | None = None
    """Held-out prompts, with the columns of `dataset_path`: one set, of the name `validation`."""
    steps: PositiveInt = 100
    """Training steps: each samples prompts, runs the recipe and updates the policy."""
    prompts_per_step: PositiveInt = 64
    """Prompts, and so groups, of a step."""
    updates_per_step: PositiveInt = 1
    """Optimizer updates per step. Each gets the same number of the remaining rows, a multiple of
    `n`; where few rows remain, there are fewer updates."""
    mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """When responses are sampled; verl's `trainer.v1.trainer_mode`. `sync`: those of a step before
    its update, all by the same policy. `colocate_async`: those of later steps, too, on the same
    hardware. `separate_async`: all the time, on hardware of their own. Profile `cpu` samples on
    half of the cores in both, while all train."""
    max_age: PositiveInt = 1
    """How many steps ahead prompts are sampled in the modes that are not `sync`."""
    wait_for_slow: bool = True
    """Whether a step waits for the prompts that were requested `max_age` steps before it. False: it
    takes those that are finished, and slow ones may get older: see `policy_age_filter`."""
    sync_every: PositiveInt = 1
    """Steps from one update of the sampling policy to the next; mode `separate_async` only."""
    replay: Path | None = None
    """A curated dataset with token ids, log-probabilities and rewards, to train on as it is.
    Sampling happens only for validation; ratios are relative to the stored log-probabilities."""
    refill: NonNegativeInt = 0
    """Dynamic sampling: how often a step may sample more prompts to replace groups that the
    recipe has dropped or, where a step trains on judgements alone, until there are as many
    verification prompts as the target of `label_balance_selector`. 0: train on what there is."""
    stop_without_signal: NonNegativeInt = 10
    """Training ends after so many steps in a row in which no group has a signal: all prompts are
    solved, or none is. Such a step leaves the policy as it is if no row of it can train. 0: it
    never ends early."""
    stop: StopRules = StopRules()
    """When training ends before its last step."""
    on_failed_session: Literal["drop_row", "drop_group"] = "drop_row"
    """What becomes of the other responses to a prompt if the sampling of one, in verl its session,
    has failed. `drop_row`: they are trained on, as in stock verl. `drop_group`: they are not."""
    learning_rate: PositiveFloat = 1e-6
    """The learning rate of AdamW."""
    warmup_steps: NonNegativeInt = 0
    """Steps over which the learning rate rises to its value."""
    weight_decay: NonNegativeFloat = 0.0
    """The weight decay of AdamW."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    loss: Loss = Loss()
    """The loss of the policy: which it is, how ratios are clipped, and how it is aggregated."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the initial policy. 0: no reference is loaded."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus in the loss."""
    lora: Lora | None = None
    """Trains an adapter of low rank instead of all weights. Null: all weights."""
    max_prompt_tokens: PositiveInt = 512
    """Longer prompts are dropped, with a decision. Of agents, a turn with a longer prompt ends the
    trajectory, as `context_full`."""
    validate_every: NonNegativeInt = 20
    """Steps between validations; 0: only before the first and after the last step."""
    validation_n: PositiveInt = 1
    """Responses to each prompt of `validation_path`."""
    save_every: NonNegativeInt = 50
    """Steps between checkpoints; the last step always saves one. 0: none at all."""
    keep_checkpoints: PositiveInt = 2
    """Older checkpoints are removed."""
    keep: Literal["last", "best"] = "last"
    """`best`: the checkpoint of the best validation so far is kept, too, by the accuracy on the
    first set, and the policy is written from it. `last`: the policy is that of the last step."""
    keep_rollouts: bool = True
    """Keep rollouts, decisions and rewards of each step as Parquet, for runs offline."""
    profile: Profile = "cpu"
    """`cpu`: the embedded sampler and gloo. `gpu`: vLLM or SGLang, and NCCL."""
    gpu: Gpu = Gpu()
    """The hardware; profile `gpu` only."""
    cpu: Cpu = Cpu()
    """Memory; profile `cpu` only."""
    schedule: Literal["generate", "self_verify", "verify_init", "verify_alter", "mixed"] = (
        "generate"
    )
    """What is trained on. `generate`: responses to the prompts of the dataset. `self_verify`: only
    judgements of them. `verify_init`: judgements first, then responses. `verify_alter`: responses,
    and every few steps judgements too. `mixed`: both at each step."""
    verification: Verification = Verification()
    """Which judgements are trained on, and when."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow", "swanlab"], ...] = ("tensorboard",)
    """verl's experiment trackers, in addition to the console and metrics.jsonl."""
    seed: NonNegativeInt = 0
    """Seed of the order of prompts and of sampling."""
    verl: dict[str, Any] = Field({})
    """Any key of verl's configuration that no field sets, such as
    `actor_rollout_ref.actor.optim.betas`."""

    @property
    def validation_figures(self) -> list[str]:
        """The figures of the validation sets, as metrics.jsonl has them; first the accuracy."""
        found = list[str]()
        for name, of_set in self.validation_sets.items():
            votes = [f"maj@{of_set.n}"] * (of_set.n > 1)
            passes = [f"pass@{k}" for k in pass_at_powers(of_set.n)]
            found += [f"{name}/{each}" for each in (f"mean@{of_set.n}", *passes, *votes)]
        return found

    def saves(self, step: int) -> bool:
        """Whether a step saves one, besides the last: also where it may be the best or the end."""
        decides = self.keep == "best" or self.stop.at or self.stop.validations_without_gain
        validated = step % (self.validate_every or self.steps) == 0
        return step % self.save_every == 0 or bool(decides and validated)

    @property
    def clip(self) -> tuple[float, float]:
        """How far below and above 1 ratios are clipped; any two numbers where none are."""
        return self.loss.clip or _CLIPS[self.loss.policy] or (0.2, 0.2)

    @property
    def validation_sets(self) -> dict[str, ValidationSet]:
        """The validation sets by name, that of `validation_path` included."""
        if self.validation_path is None:
            return self.validation
        return {ONE_SET: ValidationSet(path=self.validation_path, n=self.validation_n)}

    def _faults(self) -> Iterator[str]:
        check_names(self.validation)
        yield from self._faults_of_steps()
        yield from self._faults_of_validation()
        yield from self._faults_of_hardware()

    def _faults_of_steps(self) -> Iterator[str]:
        if self.prompts_per_step % self.updates_per_step:
            yield "prompts_per_step must be a multiple of updates_per_step"
        sampling = {
            "refill": self.refill,
            f"schedule {self.schedule}": self.schedule != "generate",
            f"mode {self.mode}": self.samples_ahead,
        }
        for name in (name for name, samples in sampling.items() if self.replay and samples):
            yield f"{name} samples, and replay does not: leave one of them out"
        if self.samples_ahead and self.schedule != "generate":
            found = f"schedule {self.schedule} judges what a step has sampled"
            yield f"{found}, and mode {self.mode} samples ahead: choose mode sync, or generate"
        for name in () if self.samples_ahead else ("max_age", "wait_for_slow"):
            if getattr(self, name) != type(self).model_fields[name].default:
                found = f"{name} is for modes that sample ahead, and mode is sync"
                yield f"{found}: leave it out, or choose colocate_async or separate_async"
        every = self.verification.every
        if self.schedule == "verify_alter" and every > self.steps:
            found = f"verification.every is {every}, and there are {self.steps} steps"
            yield f"{found}: judgements would never be trained on"

    def _faults_of_hardware(self) -> Iterator[str]:
        apart = {"sync_every": self.sync_every > 1, "gpu.rollout_gpus": self.gpu.rollout_gpus}
        for name in (name for name, is_set in apart.items() if is_set):
            if self.mode != "separate_async":
                found = f"{name} is for mode separate_async, and mode is {self.mode}"
                yield f"{found}: leave it out, or choose that"
        if self.profile == "cpu":
            return
        lora, modules = self.lora, self.lora.target_modules if self.lora else ()
        is_pattern = isinstance(modules, str) and modules != "all-linear"
        if self.mode == "separate_async" and self.gpu.rollout_gpus is None:
            yield "mode separate_async samples on GPUs of its own: say how many in gpu.rollout_gpus"
        if self.mode == "separate_async" and lora:
            yield "mode separate_async leaves the adapter of lora out: choose another, or no lora"
        if lora and self.gpu.strategy == "megatron":
            yield "lora trains by PEFT: leave lora out, or choose strategy fsdp2, not megatron"
        if is_pattern and self.gpu.rollout == "sglang":
            found = "SGLang takes no regular expression for lora.target_modules"
            yield f"{found}: list the modules, or choose all-linear"

    def _faults_of_validation(self) -> Iterator[str]:
        if self.validation and self.validation_path is not None:
            found = "validation and validation_path both say what is validated on"
            yield f"{found}: leave validation_path out, or name its set in validation"
        if self.validation and self.validation_n != 1:
            yield "validation_n is of validation_path: give each set of validation its own n"
        if self.keep == "best" and not (self.save_every and self.validation_sets):
            yield "keep: best needs a validation set, and a save_every above 0"
        if self.stop.validations_without_gain and not self.validation_sets:
            yield "stop.validations_without_gain needs a validation set"
        known = ["accuracy"] * bool(self.validation_sets) + self.validation_figures
        for unknown in sorted(self.stop.at.keys() - known):
            there = ", ".join(known) or "none without a validation set"
            yield f"stop.at: no figure of a validation is called {unknown}: there are {there}"

    @property
    def verl_keys(self) -> dict[str, Any]:
        """The keys of `verl` with dots and without `+`, whether they are nested or not."""
        return dict(_flat(self.verl))

    @property
    def samples_ahead(self) -> bool:
        """Whether prompts of later steps are sampled while a step is trained on."""
        return self.mode != "sync"

    @property
    def prompts_at_once(self) -> int:
        """How many prompts are under way or finished at most, those of a step included."""
        ahead = min(self.max_age, self.steps - 1) if self.samples_ahead else 0
        return self.prompts_per_step * (1 + ahead)

    @property
    def seeds_requests(self) -> bool:
        """Whether each request has a seed of its own, so that a step can be sampled again."""
        return self.profile == "cpu" or self.gpu.reproducible


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{above}{str(name).lstrip('+')}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value
