"""A recipe, split at the step that samples.

before ──> prompts of the trainer      (run once, offline)
rollout    verl's rollouts take its place
after  ──> runs on each training step's complete groups, before the update

Where the policy judges its own answers, more follows in the same training step:

judging.prompting ──> verification prompts, made of the answers that are left
judging.rollout       verl's rollouts take its place too
judging.after     ──> runs on the judgements
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ..operators.columns import ADVANTAGES, CREDIT, columns_of
from ..operators.errors import RecipeError, suggest
from ..operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ..operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..operators.mapper.history_mapper import HistoryMapper
from ..operators.mapper.importance_weight_mapper import ImportanceWeightMapper
from ..operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ..operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from ..operators.mapper.reward_sum_mapper import RewardSumMapper
from ..operators.mapper.self_verification_mapper import SelfVerificationMapper
from ..operators.operator import Kind, Mapper, Operator, ResumableOperator, Scope
from ..operators.registry import build
from ..operators.sampling.protocol import Settings
from ..operators.sampling.rollout import RolloutMapper
from ..operators.selector.label_balance_selector import LabelBalanceSelector
from ..operators.selector.replay_selector import ReplaySelector
from ..operators.selector.source_quota_selector import SourceQuotaSelector
from ..operators.training_step import RANK, PerStepOperator
from ..pipelines.recipe.recipe import Recipe
from ..pipelines.recipe.steps import Step, compares_group, credit_step, gives_credit, gives_reward
from ..pipelines.recipe.train import (
    ONE_SET,
    TURN_MEAN,
    LossAggMode,
    PolicyLoss,
    Train,
    default_aggregate,
)

SAMPLES = {"prompt_token_ids", "response_token_ids", "response_logprobs"}
"""Columns that are large, and that are not used to judge an answer."""
REPLAYED = "replayed"
"""The part of a training step that has groups of earlier ones: its name, and that of its folder."""
ACCURACY = "reward_accuracy"
"""The column by which validation grades."""
_GRADE = "add a verifier, such as math_verify_mapper, or leave the validation sets out"


class JudgingSteps(NamedTuple):
    """The steps after the answers of a recipe in which the policy judges its own answers."""

    prompting: tuple[Step, ...]  # make verification prompts, and choose among them
    rollout: PolicyRolloutMapper  # samples judgements
    after: tuple[Step, ...]  # reward them

    @property
    def target(self) -> int | None:
        """How many verification prompts a step is to have; None: the recipe does not say."""
        made = (step.operator for step in self.prompting)
        found = [each.most for each in made if isinstance(each, LabelBalanceSelector)]
        return found[-1] if found else None


class SplitRecipe(NamedTuple):
    source: str  # name of its project, under which verl reports
    before: tuple[Step, ...]  # make prompts
    rollout: RolloutMapper  # samples responses, or trajectories
    after: tuple[Step, ...]  # reward and filter responses
    judging: JudgingSteps | None = None  # the rest, if the policy judges its own answers
    choosing: tuple[Step, ...] = ()  # between the first two, at each training step

    @property
    def agents(self) -> AgentRolloutMapper | None:
        """The step that samples, where it samples trajectories of agents."""
        return self.rollout if isinstance(self.rollout, AgentRolloutMapper) else None

    @property
    def replay_selector(self) -> ReplaySelector | None:
        """The step that replays groups of earlier training steps, if there is one."""
        found = [x.operator for x in self.after if isinstance(x.operator, ReplaySelector)]
        return found[0] if found else None


def split_recipe(recipe: Recipe) -> SplitRecipe:
    """Split a recipe at the step that samples, and at the second one if it has two."""
    found = _parts(recipe)
    trained = found.judging.after if found.judging else found.after
    if not gives_reward(trained):
        what = f"no step after {found.rollout.name()} writes the column reward"
        raise RecipeError(what, f"add a {RewardSumMapper.name()}", where=str(recipe.path))
    for steps in (found.after, trained):
        if gives_reward(steps) and not gives_reward(grading_and_credit(steps)[0]):
            late = next(step for step in steps if "reward" in step.operator.writes())
            first = grading_and_credit(steps)[1][0].name
            what = (
                f"{late.name} writes the reward after {first}, before which rows without a reward "
                "are dropped"
            )
            raise RecipeError(what, f"put it before {first}", where=_where(recipe, late))
    _check_choosing(found, recipe)
    _check_sampled(found.after, recipe)
    _check_order(found.after, recipe)
    if found.judging:
        _check_order(found.judging.after, recipe)
    return found


def check_section(found: SplitRecipe, config: Train) -> None:
    """Check that a recipe has what its `train:` section needs."""
    _check_schedule(found, config)
    _check_loss(found, config)
    if config.replay is None:  # Its groups and their lengths are those that are stored.
        _check_sizes(found, config)
    samples = config.replay is None or bool(config.validation_sets)
    if found.agents is not None and found.agents.engine == "recorded" and samples:
        what = "engine recorded returns stored trajectories, and training samples its own"
        right = "choose engine transformers, or train on stored ones by train.replay"
        raise RecipeError(what, right)
    if config.validation_sets:
        grading_steps(found.after)
    _check_replay(found, config)
    if config.samples_ahead:
        _check_ahead(found, config)
    if config.replay is not None and found.choosing:
        name = found.choosing[0].name
        what = f"{name} chooses the prompts to sample, and train.replay has samples"
        raise RecipeError(what, "leave it out, or leave train.replay out")
    replays, temperature = config.replay or found.replay_selector, found.rollout.temperature
    if replays is not None and temperature != 1:
        raise RecipeError(
            f"temperature is {temperature:g}, and stored log-probabilities are those of the policy "
            "itself",
            f"set the temperature of {found.rollout.name()} to 1",
        )


def _check_sizes(found: SplitRecipe, config: Train) -> None:
    sampler, credit = found.rollout.name(), grading_and_credit(found.after)[1]
    compares = [step.name for step in credit if compares_group(step.operator)]
    if found.rollout.n == 1 and compares and config.schedule != "self_verify":
        alone = f"{compares[0]} compares the responses of a group: no step would train"
        raise RecipeError(f"{sampler} has n: 1, and {alone}", f"set n of {sampler} to 2 or more")
    keys, actor = config.verl_keys, "actor_rollout_ref.actor."
    fits = keys.get(f"{actor}ppo_max_token_len_per_gpu", config.gpu.tokens_per_gpu)
    divided = any("ulysses" in key or "context_parallel" in key for key in keys)
    if config.profile != "gpu" or divided or keys.get(f"{actor}use_dynamic_bsz") is False:
        return
    longest = config.max_prompt_tokens + found.rollout.max_tokens
    if longest > fits:
        raise RecipeError(
            f"a prompt and its response may have {config.max_prompt_tokens:,} + "
            f"{found.rollout.max_tokens:,} tokens, and train.gpu.tokens_per_gpu is {fits:,}",
            f"set it to {longest} or more, or lower max_tokens of {sampler}",
        )


def _check_replay(found: SplitRecipe, config: Train) -> None:
    name, selector = ReplaySelector.name(), found.replay_selector
    judged = () if found.judging is None else (*found.judging.prompting, *found.judging.after)
    if any(isinstance(step.operator, ReplaySelector) for step in judged):
        what = f"{name} replays answers, and stands among the steps of judgements"
        raise RecipeError(what, f"put it before {SelfVerificationMapper.name()}")
    if selector is None:
        return
    if sum(isinstance(step.operator, ReplaySelector) for step in found.after) > 1:
        raise RecipeError(f"two {name}s", "give one of them")
    if config.schedule == "self_verify":
        what = "replays answers, and schedule self_verify trains on judgements alone"
        raise RecipeError(f"{name} {what}", f"leave {name} out")
    if selector.where is not None:
        raise RecipeError(f"{name} has a `where`", "leave it out: groups are whole")
    if not selector.most(config.prompts_per_step):
        share, prompts = selector.max_share, config.prompts_per_step
        what = f"max_share {share:g} of {prompts} prompts_per_step is less than one group"
        right = f"set max_share of {name} to {math.ceil(1e4 / prompts) / 1e4:g} or more"
        raise RecipeError(what, right)
    if found.rollout.top_p < 1:
        raise RecipeError(
            f"top_p is {found.rollout.top_p:g}, and {name} compares log-probabilities of whole "
            "distributions",
            f"set top_p of {found.rollout.name()} to 1",
        )
    if found.agents is not None:
        what = f"replays responses, and {found.agents.name()} samples trajectories"
        raise RecipeError(f"{name} {what}", "leave it out")
    if config.replay is not None:
        what = "replays groups of earlier training steps, and train.replay samples none"
        raise RecipeError(f"{name} {what}", f"leave {name} out, or leave train.replay out")
    if not config.keep_rollouts:
        what = "reads the rollouts of earlier steps, and keep_rollouts is false"
        raise RecipeError(f"{name} {what}", "set keep_rollouts: true")


def _check_ahead(found: SplitRecipe, config: Train) -> None:
    sampler, rollout = found.rollout.name(), found.rollout
    for name, value in (("temperature", rollout.temperature), ("top_p", rollout.top_p)):
        if value != 1:
            raise RecipeError(
                f"{name} is {value:g}, and mode {config.mode} compares log-probabilities of the "
                "policies themselves",
                f"set {name} of {sampler} to 1, or choose mode sync",
            )
    weighted = [x for x in found.after if isinstance(x.operator, ImportanceWeightMapper)]
    if not weighted:
        return
    name = weighted[0].name
    if found.agents is not None:
        what = f"{name} gives responses weights, and {sampler} samples trajectories"
        right = f"leave {name} out: the update then starts from the policy that sampled"
        raise RecipeError(what, right)
    credit = grading_and_credit(found.after)[1]
    if any(step not in credit for step in weighted):
        raise RecipeError(
            f"{name} stands before {credit[0].name}, until which responses of older policies have "
            "no log-probabilities of the current one",
            f"put it after {credit[0].name}",
        )


def loss_agg_mode(found: SplitRecipe, config: Train) -> LossAggMode:
    """How token losses are aggregated, whether the recipe says so or not."""
    policy = config.loss.policy
    of_turns = found.agents is not None and policy == "vanilla"
    return config.loss.aggregate or (TURN_MEAN if of_turns else default_aggregate(policy))


def _check_loss(found: SplitRecipe, config: Train) -> None:
    if config.loss.aggregate == TURN_MEAN and found.agents is None:
        raise RecipeError(
            f"loss.aggregate {TURN_MEAN} is a mean over turns, of which these responses have none",
            "leave it out, or sample with agent_rollout_mapper",
        )
    keys, actor = config.verl_keys, "actor_rollout_ref.actor."
    policy = keys.get(f"{actor}policy_loss.loss_mode", config.loss.policy)
    of_turns = loss_agg_mode(found, config) == TURN_MEAN
    for key in keys:
        name = key.removeprefix(actor)
        of = next((loss for begin, loss in _READ.items() if name.startswith(begin)), policy)
        if of_turns and name.startswith((*_READ, *_NOT_OF_TURNS)):
            right = "leave the key out, or choose another mean"
            raise RecipeError(f"loss.aggregate {TURN_MEAN} ignores {key}", right)
        if of != policy and policy in get_args(PolicyLoss):  # What others read is not known.
            right = f"leave the key out, or set train.loss.policy to {of}"
            raise RecipeError(f"{key} is of loss {of}, and {policy} ignores it", right)


_READ = {
    "clip_ratio_c": "vanilla", "tau_pos": "sapo", "tau_neg": "sapo",
    "policy_loss.clip_cov_": "clip_cov",
    "policy_loss.kl_cov_": "kl_cov", "policy_loss.ppo_kl_coef": "kl_cov",
}  # fmt: skip
"""How keys of verl's actor begin that one loss alone reads."""
_NOT_OF_TURNS = ("loss_agg_mode", "loss_scale_factor", "policy_loss.loss_mode")


def _check_schedule(found: SplitRecipe, config: Train) -> None:
    schedule, capacity, n = config.schedule, config.verification.capacity, found.rollout.n
    if not gives_reward(found.after):
        what = f"no step before {SelfVerificationMapper.name()} writes the reward of responses"
        right = f"add a {RewardSumMapper.name()} there; schedule self_verify does not use it"
        raise RecipeError(what, right)
    if schedule == "generate":
        return
    if found.agents is not None:
        what = "trains on judgements, and agents judge nothing"
        raise RecipeError(f"schedule {schedule} {what}", "choose schedule generate")
    if capacity < n:
        what = f"verification.capacity is {capacity}, and one prompt has {n} answers"
        raise RecipeError(what, "whole prompts are queued: take n or more")
    if found.judging is None:
        raise RecipeError(
            f"schedule {schedule} trains on judgements, of which the recipe has none",
            f"add {SelfVerificationMapper.name()}, policy_rollout_mapper: {{task: verify}} and "
            "their reward, or choose schedule generate",
        )
    if schedule == "self_verify" and config.refill and found.judging.target is None:
        raise RecipeError(
            "refill samples until there are enough verification prompts, and nothing says how many "
            "are enough",
            f"give {LabelBalanceSelector.name()} a target, or leave refill out",
        )


def grading_and_credit(steps: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Split steps before the first one that writes an advantage, or that replays groups before it.

    What comes before runs on groups as they finish. What gives credit runs on the rows that can
    train, all groups together, so that a statistic is that of what trains. If no step does,
    `grpo_advantage_mapper` is added.
    """
    begins = (isinstance(x.operator, ReplaySelector) or gives_credit(x.operator) for x in steps)
    at = next((number for number, found in enumerate(begins) if found), len(steps))
    credit = tuple(steps[at:])
    if not any(gives_credit(step.operator) for step in credit):
        number = steps[-1].number + 1 if steps else 1
        credit += (Step(number, GrpoAdvantageMapper.name(), GrpoAdvantageMapper()),)
    return tuple(steps[:at]), credit


def replayed_credit(steps: Sequence[Step], columns: Collection[str]) -> tuple[Step, ...]:
    """The steps that give credit to stored rows with some columns: those of the recipe.

    They are those that write weights before the first advantage, and those from there on. If none
    writes an advantage, the stored ones train; and if there are none either, those of
    `grpo_advantage_mapper`.
    """
    grading, credit = grading_and_credit(steps)
    weights = tuple(step for step in grading if not {*CREDIT}.isdisjoint(step.operator.writes()))
    if credit_step(steps) is None and not {*ADVANTAGES}.isdisjoint(columns):
        return weights
    return (*weights, *credit)


def _parts(recipe: Recipe) -> SplitRecipe:
    steps = tuple(step for step in recipe.steps if step.operator.on != "run")
    source = recipe.head.project_name
    samples = [at for at, step in enumerate(steps) if isinstance(step.operator, RolloutMapper)]
    asks = [at for at, s in enumerate(steps) if isinstance(s.operator, SelfVerificationMapper)]
    if not 1 <= len(samples) <= 2:
        found = f"{len(samples)} steps sample responses" if samples else "no step samples responses"
        right = (
            f"training needs one {PolicyRolloutMapper.name()} or {AgentRolloutMapper.name()}, and "
            "a second where the policy judges"
        )
        raise RecipeError(found, right, where=str(recipe.path))
    _check_agents([steps[at] for at in (*samples, *asks)], recipe)
    first, last = samples[0], samples[-1]
    rollout = steps[first].operator
    assert isinstance(rollout, RolloutMapper)
    chooses = [isinstance(step.operator, PerStepOperator) for step in steps[:first]]
    start = chooses.index(True) if any(chooses) else first
    before, choosing = tuple(steps[:start]), tuple(steps[start:first])
    if first == last:
        for at in asks:
            what = f"no step answers the prompts of {steps[at].name}"
            right = "put policy_rollout_mapper: {task: verify} after it, or leave the step out"
            raise RecipeError(what, right, where=_where(recipe, steps[at]))
        return SplitRecipe(source, before, rollout, tuple(steps[first + 1 :]), None, choosing)
    if len(asks) != 1 or not first < asks[0] < last:
        right = f"the second answers the prompts of one {SelfVerificationMapper.name()} before it"
        raise RecipeError("two steps sample responses", right, where=_where(recipe, steps[last]))
    ask = asks[0]
    judge = steps[last].operator
    assert isinstance(judge, PolicyRolloutMapper)
    judging = JudgingSteps(tuple(steps[ask:last]), judge, tuple(steps[last + 1 :]))
    _check_judging(judging, rollout, _where(recipe, steps[last]), recipe)
    return SplitRecipe(source, before, rollout, tuple(steps[first + 1 : ask]), judging, choosing)


def _where(recipe: Recipe, step: Step) -> str:
    """Where a message points that names the step itself."""
    return f"{recipe.line_of(step)}, step {step.number}"


def _check_agents(steps: Sequence[Step], recipe: Recipe) -> None:
    """Where agents are trained, nothing else is sampled."""
    if len(steps) > 1 and any(isinstance(step.operator, AgentRolloutMapper) for step in steps):
        raise RecipeError(
            f"{AgentRolloutMapper.name()} and {steps[-1].name} in one recipe",
            "training samples the trajectories of agents or has the policy judge its answers: "
            "leave one of them out",
            where=_where(recipe, steps[-1]),
        )


def _check_judging(
    judging: JudgingSteps, answers: RolloutMapper, here: str, recipe: Recipe
) -> None:
    """One policy answers and judges, at one temperature; no step sees both kinds of rows."""
    if judging.rollout.task != "verify":
        raise RecipeError(
            "the second policy_rollout_mapper samples all rows", "give it task: verify", where=here
        )
    for name in ("engine", "model", "temperature", "top_p", "chat_template_kwargs"):
        if getattr(judging.rollout, name) != getattr(answers, name):
            what = f"the two policy_rollout_mappers differ in {name}"
            raise RecipeError(what, "training has one policy, which answers and judges", where=here)
    if judging.rollout.n == 1:
        what = "a single judgement has no other one to be compared with"
        raise RecipeError(what, "give it n: 2 or more", where=here)
    for step in judging.prompting:
        if isinstance(step.operator, SelfVerificationMapper) and step.operator.ungraded == "ask":
            what = f"{step.name} asks about answers without a verdict, which train nothing"
            raise RecipeError(what, "leave ungraded: ask out", where=_where(recipe, step))
        lost = SAMPLES & set(step.operator.reads())
        if lost:
            what = f"{step.name} reads {min(lost)}, which queued answers do not have"
            right = f"put it before {SelfVerificationMapper.name()}"
            raise RecipeError(what, right, where=_where(recipe, step))
    if judging.rollout.max_tokens > answers.max_tokens:
        raise RecipeError(
            f"judgements may have {judging.rollout.max_tokens} tokens, "
            f"and responses {answers.max_tokens}",
            "verl has one limit for both: raise max_tokens of the first policy_rollout_mapper",
            where=here,
        )
    for step in judging.after:
        if step.operator.scope is Scope.DATASET:
            what = f"{step.name} sees answers and judgements together, which training does not"
            right = f"leave it out, or put it before {SelfVerificationMapper.name()}"
            raise RecipeError(what, right, where=_where(recipe, step))


def _check_choosing(found: SplitRecipe, recipe: Recipe) -> None:
    """What runs before each step only chooses prompts; nothing else uses what it writes."""
    written, quotas = set[str](), ""
    for step in found.choosing:
        operator, where, first = step.operator, _where(recipe, step), found.choosing[0].name
        if operator.asks_server or isinstance(operator, ResumableOperator):
            what = f"{step.name} would ask a server before each training step, about all prompts"
            raise RecipeError(what, f"put it before {first}", where=where)
        if isinstance(operator, HistoryMapper) and "history_visits" in written:
            raise RecipeError(f"two {HistoryMapper.name()}s", "give one of them", where=where)
        if quotas and (_drops(operator) or RANK in operator.writes()):
            what = (
                f"{step.name} would change the choice that {quotas} has divided among the sources"
            )
            raise RecipeError(what, f"put it before {quotas}", where=where)
        if isinstance(operator, SourceQuotaSelector):
            quotas = step.name
        written |= {*operator.writes()}
        if lost := written & {*found.rollout.reads(), "prompt_id"}:
            what = f"{step.name} writes {min(lost)} after {first}, from where on prompts are chosen"
            raise RecipeError(what, f"put it before {first}", where=where)
    judging = found.judging
    for step in (*found.after, *(() if judging is None else (*judging.prompting, *judging.after))):
        own = step.operator
        if isinstance(own, PerStepOperator) and not getattr(own, "run", None):
            what = f"{step.name} is for prompts, and stands after the sampling"
            raise RecipeError(what, "put it before", where=_where(recipe, step))
        if lost := written & {*columns_of(own.reads()), *columns_of(own.where or ())}:
            what = f"{step.name} reads {min(lost)}, which is written before each training step to "
            what += "choose prompts, and which responses do not have"
            right = f"put what writes it before {found.choosing[0].name}, if it can be"
            raise RecipeError(what, right, where=_where(recipe, step))


def _check_sampled(steps: Sequence[Step], recipe: Recipe) -> None:
    """Training trains on what it has sampled itself."""
    for step in steps:
        if isinstance(step.operator, RecordedRolloutMapper):
            what = f"{step.name} makes responses that training has not sampled"
            right = "leave it out, or train on recorded responses by train.replay"
            raise RecipeError(what, right, where=_where(recipe, step))


def _check_order(steps: Sequence[Step], recipe: Recipe) -> None:
    compared: Step | None = None
    for step in steps:
        if compared and _drops(step.operator):
            within = step.operator.drops_within_groups()
            what = f"{step.name} drops rows that were compared with their group already"
            right = "leave it out of training" if within else f"put it before {compared.name}"
            raise RecipeError(what, right, where=_where(recipe, step))
        if compared is None and gives_credit(step.operator):
            compared = step


def _drops(operator: Operator) -> bool:
    """Whether it may drop rows; where it names no reasons, only its kind tells."""
    if isinstance(operator, Mapper) or gives_credit(operator):
        return False
    return bool(operator.reasons) or operator.kind is not Kind.MAPPER


def grading_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that grade a response, for validation, where nothing is dropped."""
    wanted, kept = {ACCURACY}, list[Step]()
    for step in reversed(steps):
        operator = step.operator
        if wanted.isdisjoint(operator.writes()):
            continue
        maps = isinstance(operator, (Mapper, ResumableOperator)) and not _drops(operator)
        if not maps or operator.scope is not Scope.ROW:
            raise RecipeError(f"{step.name} does not grade responses one by one", _GRADE)
        wanted.update((*operator.reads(), *columns_of(operator.where or ())))
        kept.append(step)
    if not kept:
        raise RecipeError(f"no step writes {ACCURACY}, by which validation grades", _GRADE)
    return tuple(reversed(kept))


# --- The validation sets of a run: their prompts, and how they are sampled ------------

RESPONSES = "__rollout_n__"
"""Field of a prompt by which verl's agent loops know that it has an n of its own."""


class HeldOutSet(NamedTuple):
    name: str  # the one that it is reported by
    path: Path  # of its dataset
    split: str  # the name of its files, without their endings
    source: str  # its name in verl's own metrics, verl's `data_source`
    steps: tuple[Step, ...]  # the steps before sampling, with the set's own fields
    settings: Settings  # how its prompts are sampled
    max_samples: int | None = None  # the most prompts that it has; None: all


def held_out_sets(parts: SplitRecipe, config: Train, where: str) -> tuple[HeldOutSet, ...]:
    rollout, found = parts.rollout, list[HeldOutSet]()
    for name, each in config.validation_sets.items():
        try:
            steps = _overridden(parts, each.overrides)
        except RecipeError as error:
            raise error.at(f"{where}, train.validation.{name}.overrides") from None
        temperature = rollout.temperature if each.temperature is None else each.temperature
        top_p = rollout.top_p if each.top_p is None else each.top_p
        settings = Settings(each.n, temperature, top_p, rollout.max_tokens)
        # The single set of `validation_path` has the names that it has always had.
        split, source = (f"{ONE_SET}-{name}", name) if name != ONE_SET else (name, parts.source)
        found.append(HeldOutSet(name, each.path, split, source, steps, settings, each.max_samples))
    return tuple(found)


def _overridden(parts: SplitRecipe, overrides: Mapping[str, Mapping[str, Any]]) -> tuple[Step, ...]:
    steps, choosing = parts.before, {step.name for step in parts.choosing}
    names = [step.name for step in steps]
    for name in overrides:
        if name in choosing:
            found = f"{name} chooses the prompts of training steps, and a validation has all"
            raise RecipeError(found, "leave it out")
        if name not in names:
            listed = f"the steps before sampling are: {', '.join(names) or 'none'}"
            raise RecipeError(f"no step '{name}' before sampling", suggest(name, names) or listed)
    made = {step.name: step for step in steps}
    for name, fields in overrides.items():
        own = made[name].operator
        try:
            operator = build(type(own), {**own.model_dump(), **fields})
        except RecipeError as error:
            raise error.at(name) from None
        made[name] = made[name]._replace(operator=operator)
    return tuple(made.values())


# --- Answers --------------------------------------------------------------------------
# The part of a recipe that other trainers can use: prompts, and rewards of answers to them.


def answers_only(recipe: Recipe) -> SplitRecipe:
    """The parts of a recipe in which the policy answers, and judges nothing."""
    parts = split_recipe(recipe)
    found, right, where = "", "", str(recipe.path)
    if parts.agents is not None:
        found = f"{parts.agents.name()} samples trajectories to train on"
        right = f"sample one response to each prompt, by {PolicyRolloutMapper.name()}"
    elif parts.judging is not None:
        found = "the policy judges its own answers"
        right = f"leave out {SelfVerificationMapper.name()} and what follows it"
    elif parts.replay_selector is not None:
        found = f"{ReplaySelector.name()} replays groups of earlier training steps"
        right = "leave it out"
    elif parts.choosing:
        found = f"{parts.choosing[0].name} chooses prompts at each training step"
        right = "leave out what chooses prompts before the sampling"
        where = _where(recipe, parts.choosing[0])
    if found:
        raise RecipeError(f"{found}, which only `rejuice train` does", right, where=where)
    return parts
