"""The finished groups of a training step or of a validation, and what of them trains."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import transfer_queue as tq

from ...operators.agents.trajectory import FAILURES
from ...operators.columns import RIGHT, WRONG
from ...operators.errors import DataError
from ...operators.groups import Array, Groups, hash_each
from ...operators.operator import Scope
from ...pipelines.recipe.steps import GROUP_OF_ONE, Step, compares_group
from ..run import UPDATE
from .advantage import TrajectoryKey
from .credit import TokenCredit, is_infinite, masked_rows, row_advantages
from .curation import (
    Curated,
    Curation,
    continued,
    curate,
    drop_rows,
    format_drop_counts,
    missing_figures,
)
from .trajectories import Rollouts, TrainedRows, plain, write

TOKENS = "response_token_ids"
_NO_ANSWER = {"scorer_timeout", "scorer_busy", "scorer_error", "scorer_unreachable"}  # of a server
_NO_ROLLOUTS = pa.schema(
    [("prompt_id", pa.string()), ("reward", pa.float64()), (TOKENS, pa.list_(pa.int32()))]
).empty_table()


class QueuedGroups:
    def __init__(self) -> None:
        self.uids: set[str] = set()  # keys of their prompts there
        self.tags: dict[TrajectoryKey, dict[str, Any]] = {}  # of their rows there
        self.failed = 0  # prompts without a response
        self.failed_responses = 0  # those whose group has others
        self.failed_rows = list[int]()  # which prompts have no responses, where it is known
        self._key_of: dict[str, TrajectoryKey] = {}
        self._rows_of: dict[TrajectoryKey, list[TrajectoryKey]] = {}

    def add_rows(
        self, keys: Mapping[str, TrajectoryKey], tags: Mapping[TrajectoryKey, dict[str, Any]]
    ) -> None:
        """Add rows: of each response its key, and of each key its tags."""
        self.uids.update(key.uid for key in tags)
        self.tags.update(tags)
        self._key_of.update(keys)
        for key in sorted(tags):
            self._rows_of.setdefault(key.first, []).append(key)

    def keys(self, table: pa.Table) -> list[list[TrajectoryKey]]:
        """The rows of TransferQueue that each row of the table has there, by turn."""
        if not table.num_rows:
            return []  # It may have no columns.
        ids = table["response_id"].to_pylist()
        if len(set(ids)) < len(ids) or not self._key_of.keys() >= set(ids):
            what = "a row is not one response of the policy, or not the only one that is"
            right = "leave out steps that copy or make rows after a policy_rollout_mapper"
            raise DataError(what, right)
        return [self._rows_of[self._key_of[each]] for each in ids]

    def lengths(self, keys: Sequence[TrajectoryKey]) -> Array:
        """Tokens that were sampled in each of these rows of TransferQueue, int64[R]."""
        return np.array([self.tags[key]["response_len"] for key in keys], np.int64)


class PendingGroups(QueuedGroups):
    """n trajectories of each prompt were requested."""

    def __init__(
        self,
        curation: Curation,
        read: Callable[[Mapping[TrajectoryKey, dict[str, Any]]], Rollouts],
        n: int,
    ) -> None:
        super().__init__()
        self._curation, self._read, self._n = curation, read, n
        self.ended = 0  # prompts, failed ones included
        self.repeated = 0  # groups that were left out, as their prompt was there already
        self._uid_of: dict[int, str] = {}
        self._parts: list[Rollouts] = []

    def fail(self, prompts: int, rows: Sequence[int] = ()) -> None:
        self.failed += prompts
        self.ended += prompts
        self.failed_rows += rows

    def check(self) -> None:
        self._curation.check()

    def add(self, uids: set[str], tags: Mapping[TrajectoryKey, dict[str, Any]]) -> None:
        """Start the curation of groups; a prompt that is here already is left out.

        A refill may reach the end of the dataset and start over. Rows of one prompt are one group;
        and where requests have seeds, a second group would be the first one again.
        """
        self.uids.update(uids)
        self.ended += len(uids)
        rollouts = self._read(tags)
        self.failed_responses += self._n * len(uids) - len(rollouts.keys)
        uid_N = [key.uid for key in rollouts.keys]
        first_N = [
            self._uid_of.setdefault(index, uid) == uid
            for index, uid in zip(rollouts.index_N.tolist(), uid_N, strict=True)
        ]
        if not all(first_N):
            self.repeated += len({u for u, first in zip(uid_N, first_N, strict=True) if not first})
            rollouts = rollouts.take(np.flatnonzero(first_N))
        ids = rollouts.table["response_id"].to_pylist()
        self.add_rows(dict(zip(ids, rollouts.keys, strict=True)), tags)
        self._parts.append(rollouts)
        self._curation.add(rollouts.table)

    def close(self) -> tuple[pa.Table, Curated]:
        """All rollouts so far, in the order of the prompts, and what the recipe made of them."""
        if not self._parts:
            return _NO_ROLLOUTS, curate((), _NO_ROLLOUTS)
        table = pa.concat_tables([part.table for part in self._parts])
        index_N = np.concatenate([part.index_N for part in self._parts])
        # The order in which groups finished must not matter.
        rollouts = table.take(np.argsort(index_N, kind="stable"))
        return rollouts, self._curation.close(rollouts["prompt_id"].unique())


class ValidationGroups:
    """The groups of all sets that are finished so far; each set has its own."""

    def __init__(self, of_splits: Mapping[str, PendingGroups]) -> None:
        self.of_splits = of_splits  # by the name of their files
        self.failed = 0  # prompts without a response

    @property
    def uids(self) -> set[str]:
        return set().union(*(each.uids for each in self.of_splits.values()))

    @property
    def ended(self) -> int:
        return self.failed + sum(each.ended for each in self.of_splits.values())

    def fail(self, prompts: int, rows: Sequence[int] = ()) -> None:
        self.failed += prompts

    def check(self) -> None:
        for each in self.of_splits.values():
            each.check()

    def add(self, uids: set[str], tags: Mapping[TrajectoryKey, dict[str, Any]]) -> None:
        first = {key.uid: str(key) for key in tags}
        data = tq.kv_batch_get([*first.values()], partition_id="val", select_fields=["extra_info"])
        splits = [plain(each)["split"] for each in data["extra_info"]]
        split_of = dict(zip(first, splits, strict=True))
        for split in dict.fromkeys(splits):
            of_set = {uid for uid in uids if split_of[uid] == split}
            rows = {key: tag for key, tag in tags.items() if key.uid in of_set}
            self.of_splits[split].add(of_set, rows)


def number_of_groups(table: pa.Table) -> int:
    return len(Groups.of(table).starts_G)


def drop_untrainable(curated: Curated, credit: Sequence[Step]) -> Curated:
    """Drop rows that have no reward or no token to give it to.

    Trajectories that failed go too, whatever the recipe made of their missing reward; and so do
    groups of one, where the steps that give credit compare the responses of a group.
    """
    if not curated.table.num_rows:
        return curated
    if "finish_reason" in curated.table.column_names:
        failed_N = np.asarray(pc.is_in(curated.table["finish_reason"], pa.array(FAILURES)))
        curated = drop_rows(curated, failed_N, "failed_trajectory")
    no_tokens_N = np.asarray(pc.equal(pc.list_value_length(curated.table[TOKENS]), 0))
    curated = drop_rows(curated, no_tokens_N, "no_tokens")
    reward_N = curated.table["reward"].to_numpy(zero_copy_only=False).astype(float)
    curated = drop_rows(curated, ~np.isfinite(reward_N), "no_reward")
    # Here, so that a refill replaces them.
    compares = [step.name for step in credit if compares_group(step.operator)]
    if not compares:
        return curated
    groups = Groups.of(curated.table)
    return drop_rows(curated, (groups.sizes_G == 1)[groups.codes_N], GROUP_OF_ONE, compares[0])


_EXCESS = "surplus_group"
AFTER_CREDIT = frozenset({"no_advantage", "infinite_advantage", "masked", _EXCESS})
"""Reasons of training itself to drop rows that have credit."""


def give_credit(curated: Curated, credit: Sequence[Step]) -> Curated:
    """Run the steps that give credit on what can train, and drop the rows that do not train."""
    curated = continued(curated, credit)
    if not curated.table.num_rows:
        return curated
    advantage_N = row_advantages(curated.table)
    curated = drop_rows(curated, np.isnan(advantage_N), "no_advantage")
    curated = drop_rows(curated, is_infinite(curated.table), "infinite_advantage")
    return drop_rows(curated, masked_rows(curated.table), "masked")


def drop_excess_groups(
    trainable: Curated, curated: Curated, credit: Sequence[Step], wanted: int, step: int
) -> Curated:
    """Drop whole groups in a seeded random order, if there are more than wanted.

    What gives credit runs again, on the groups that stay: the others have none on file.
    `trainable` are rows that can train, and `curated` those of them that have credit.
    """
    prompt_ids_G = curated.table["prompt_id"].unique()
    if len(prompt_ids_G) <= wanted:
        return curated
    order_G = np.argsort(hash_each(prompt_ids_G, seed=step))
    excess = prompt_ids_G.take(pa.array(order_G[wanted:]))
    kept = drop_rows(trainable, _is_of(trainable, excess), _EXCESS)
    if not any(each.operator.scope is Scope.DATASET for each in credit):
        return give_credit(kept, credit)
    # Groups without credit stay without it, for the reasons that they have.
    left = prompt_ids_G.take(pa.array(order_G[:wanted]))
    decisions = curated.decisions.slice(trainable.decisions.num_rows)
    for name, reason in sorted({(each["step"], each["reason"]) for each in decisions.to_pylist()}):
        of_reason = pc.and_(
            pc.equal(decisions["step"], name), pc.equal(decisions["reason"], reason)
        )
        ids = decisions.filter(of_reason)["row_id"].combine_chunks()
        lost_N = np.asarray(pc.is_in(kept.table["response_id"], ids)) & ~_is_of(kept, left)
        kept = drop_rows(kept, lost_N, reason, name)
    return give_credit(kept, credit)


def _is_of(curated: Curated, prompt_ids: pa.Array) -> Array:
    return np.asarray(pc.is_in(curated.table["prompt_id"], prompt_ids))


class StepPart(NamedTuple):
    groups: QueuedGroups  # their groups
    rollouts: pa.Table  # as sampled
    curated: Curated  # what the recipe left of them, without untrainable rows if they train
    values: pa.Table  # what each step wrote to them, as `values_table` gives it
    recipe: tuple[Step, ...]  # the steps that they went through
    trains: bool  # whether they train
    not_asked: pa.Table | None = None  # decisions about verification prompts that were not chosen

    @property
    def tables(self) -> dict[str, pa.Table]:
        """By the names of their files."""
        found = {"rollouts": self.rollouts}
        found |= {"curated": self.curated.table, "decisions": self.curated.decisions}
        found["values"] = self.values
        return found if self.not_asked is None else {**found, "not_asked": self.not_asked}

    @property
    def trained(self) -> pa.Table:
        return self.curated.table if self.trains else self.curated.table.slice(0, 0)

    def trained_rows(self) -> TrainedRows:
        return trained_rows(self.trained, self.groups.keys(self.trained), self.groups.tags)


def trained_rows(
    table: pa.Table,
    turns: Sequence[Sequence[TrajectoryKey]],
    tags: Mapping[TrajectoryKey, Mapping[str, Any]],
) -> TrainedRows:
    """The rows of TransferQueue that train, those of a trajectory next to each other.

    A turn of which each token is masked does not train. Each row of the table has its rows in
    TransferQueue, by turn.
    """
    if not turns:
        return TrainedRows([], np.zeros(0), [], [])
    keys = list(chain.from_iterable(turns))
    lengths_N = [[tags[key]["response_len"] for key in each] for each in turns]
    credit = TokenCredit.of(table, lengths_N)
    ends_R = np.cumsum(list(chain.from_iterable(lengths_N)))[:-1]
    masks, advantages = np.split(credit.mask_M, ends_R), np.split(credit.advantage_M, ends_R)
    reward_R = np.repeat(table["reward"].to_numpy(), [len(each) for each in turns])
    trains_R = [bool(mask.any()) for mask in masks]
    return TrainedRows(
        list(compress(keys, trains_R)),
        reward_R[trains_R],
        list(compress(advantages, trains_R)),
        list(compress(masks, trains_R)),
    )


def release_validation(groups: PendingGroups, table: pa.Table, score: str) -> list[TrajectoryKey]:
    """Write scores of validated responses to TransferQueue, and clear all others from it.

    Of a trajectory the key is that of its last turn.
    """
    keys = [turns[-1] for turns in groups.keys(table)]
    if keys:
        write(keys, "val", table[score].to_numpy(), groups.lengths(keys))
    clear_others(groups, keys, "val")
    return keys


def clear_others(groups: QueuedGroups, keys: Iterable[TrajectoryKey], partition: str) -> None:
    """Clear the prompts of some groups, and their rows but these, from TransferQueue."""
    dropped = map(str, groups.tags.keys() - set(keys))
    cleared = [*groups.uids, *dropped]
    if cleared:
        tq.kv_clear(partition_id=partition, keys=cleared)


def tokens_sampled(parts: Iterable[StepPart]) -> int:
    """Dropped rows included."""
    lengths = [pc.list_value_length(part.rollouts[TOKENS]) for part in parts]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


# --- What came of a step ----------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a step, of which too many alike in a row end training."""

    kind: Literal["trained", "no_signal", "outage", "nan"]  # all but the first leave the policy
    why: str = ""  # it did not train
    right: str = ""  # what to do, if training ends by it


TRAINED = Outcome("trained")
NO_SIGNAL = Outcome(
    "no_signal",
    "no group has a signal",
    "take harder prompts if all responses are right, and easier ones if none is",
)


def not_finite(figures: Mapping[str, Any], learning_rate: float) -> Outcome | None:
    """The outcome of a step whose gradient or loss is no number; None where they are."""
    found = [name for name in UPDATE if not math.isfinite(figures.get(name, 0.0))]
    if not found:
        return None
    return Outcome(
        "nan",
        f"{' and '.join(name.removeprefix('actor/') for name in found)} is nan or infinite: no "
        "update was made, and no checkpoint saved",
        f"go back to one before, with a learning_rate below {learning_rate:g}, or look for "
        "rewards and weights that are too large",
    )


_NO_SIGNAL = frozenset({"too_easy", "too_hard", "no_reward_spread"})


def skip_of(step: int, parts: Mapping[str, StepPart], sampler: str) -> Outcome:
    """What came of a step in which no row can train; `sampler` names the step that samples."""
    if found := _outage(parts[""]):
        print(f"step {step}: warning: {found}, so the step is left out")
        return Outcome("outage", found, "verl.log says why the first one did")
    if _lacks_signal(parts):
        return NO_SIGNAL
    raise _nothing_to_train_on(step, parts, sampler)


def _lacks_signal(parts: Mapping[str, StepPart]) -> bool:
    """Whether no row of a step can train because groups are all right or all wrong.

    Either a filter has dropped them for it, or no answer gives a verification prompt. Where other
    reasons have left nothing, it is an error.
    """
    judged = parts.get("verify")
    if judged is not None and not judged.rollouts.num_rows and not judged.groups.failed:
        return not {RIGHT, *WRONG}.isdisjoint(parts[""].curated.verdicts)
    return any(part.trains and _mostly_without_signal(part) for part in parts.values())


def _outage(part: StepPart) -> str:
    """How most rows of a step failed, as `tool_failed 14 of 16 trajectories failed`; or nothing."""
    rows, failed = part.rollouts.num_rows, defaultdict[str, Counter[str]](Counter)
    if "finish_reason" in part.rollouts.column_names:
        ends = Counter(part.rollouts["finish_reason"].to_pylist())
        failed["trajectories failed"] = ends & Counter(dict.fromkeys(FAILURES, rows))
    for name, missing in missing_figures(part.values).items():
        _, component, reason = name.split("/")
        if reason in _NO_ANSWER:
            failed[f"responses have no {component}"][reason] = int(missing)
    for what, counts in failed.items():
        if 2 * counts.total() > rows:
            listed = ", ".join(f"{reason} {n}" for reason, n in counts.items())
            return f"{listed} of {rows} {what}"
    return ""


def _mostly_without_signal(part: StepPart) -> bool:
    reasons = part.curated.decisions["reason"]
    found = pc.sum(pc.is_in(reasons, pa.array(sorted(_NO_SIGNAL)))).as_py() or 0
    return 0 < len(reasons) <= 2 * found


def _nothing_to_train_on(step: int, parts: Mapping[str, StepPart], sampler: str) -> DataError:
    found, judged = f"step {step}: no group is left to train on", parts.get("verify")
    if judged is not None and not judged.rollouts.num_rows and not judged.groups.failed:
        right = "a prompt needs right and wrong answers: take more prompts_per_step or n, or refill"
        return DataError(f"{found}: no answer gives a verification prompt", right)
    last = parts[""] if judged is None else judged
    missing = missing_figures(last.values).items()
    counts = [f"{name.removeprefix('missing/')} {rows:.0f}" for name, rows in missing]
    steps = f"after {sampler}" if judged is None else "that judge"
    right = f"look at the steps {steps}, or allow a refill"
    return DataError(f"{found} ({', '.join([format_drop_counts(last.curated), *counts])})", right)
