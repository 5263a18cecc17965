"""The policy judges its own answers: verification prompts, and how they reach the rollouts.

queued answers ──verification_prompts──> prompts ──verl's rollouts──> judgements
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather

from ...operators.columns import of_task
from ...operators.groups import Array, hash_each
from ...operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ...operators.sampling.tokenizer import Encode
from ...pipelines.recipe.steps import Step
from .. import saved
from ..run import TrainingRun, plan_step
from ..split import RESPONSES, SAMPLES
from .curation import (
    Curated,
    continued,
    curate,
    drop_overlong_prompts,
    first_rows,
    group_rows_by_prompt,
)
from .figures import response_figures

# --- The queue of answers that are still to be judged ---------------------------------
# It lies in the folders of the steps that sampled the answers: what is queued, and how old it is,
# is the same for a run that was killed and resumed. What was judged is removed, once no resume
# needs it.

SAMPLED_AT = "sampled_at_step"
"""Column of the training step that sampled an answer."""
_FILE = "answers.arrow"


class QueuedAnswers(NamedTuple):
    table: pa.Table  # rows of a prompt are adjacent; those of the newest step come first
    stale: int = 0  # how many answers were dropped because they are too old
    repeated: int = 0  # how many, because the prompt got the same one at a later step
    over: int = 0  # how many, because the queue is over its capacity
    # how many steps have kept none, such as those before a resume by another schedule
    lacking: int = 0


class AnswerQueue:
    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def keep(self, step: int, table: pa.Table) -> None:
        """Queue the graded answers of a step; what the step queued before a resume is replaced."""
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = table.drop_columns([name for name in table.column_names if name in SAMPLES])
        at = pa.repeat(pa.scalar(step, pa.int64()), table.num_rows)
        feather.write_feather(kept.append_column(SAMPLED_AT, at), path)

    def take(self, since: int, step: int) -> QueuedAnswers:
        """The answers of steps `since` to `step`, without those that are too old or too many.

        The newest ones stay; of the step that does not fit whole, whole prompts are drawn by a
        seeded random order. An answer that a prompt got at two steps is there once, as of the
        later step.
        """
        limits = self._run.config.verification
        steps = range(step, since - 1, -1)
        there = {at: feather.read_table(self._path(at)) for at in steps if self._path(at).exists()}
        oldest = since if limits.max_age is None else step - limits.max_age
        fresh = [table for at, table in there.items() if at >= oldest]
        stale = sum(table.num_rows for table in there.values()) - sum(map(len, fresh))
        table = pa.concat_tables(fresh, promote_options="permissive")
        unique = table.take(first_rows(table["response_id"]))
        kept = _newest(unique, limits.capacity)
        return QueuedAnswers(
            group_rows_by_prompt(kept),
            stale,
            repeated=len(table) - len(unique),
            over=len(unique) - len(kept),
            lacking=len(steps) - len(there),
        )

    def forget(self, step: int) -> None:
        """Remove the answers of all steps up to one that judges, but those that a resume needs.

        A resume repeats the steps after a checkpoint; if that is in the middle of a window, the
        answers of the steps of the window before it are judged again.
        """
        needed = set[int]()
        for at in saved.steps(self._run.folder):
            needed.update(range(plan_step(self._run.config, at + 1).since, at + 1))
        for path in self._path(step).parents[1].glob(f"*/{_FILE}"):
            at = int(path.parent.name)
            if at <= step and at not in needed:
                path.unlink()

    def _path(self, step: int) -> Path:
        return self._run.step_folder(step) / _FILE


def _newest(table: pa.Table, capacity: int) -> pa.Table:
    """At most `capacity` rows of a table in which the newest step comes first.

    Nothing older than the step that does not fit whole is kept. Of that step, prompts are drawn in
    a seeded random order: if the last rows were cut off instead, the same late prompts would be
    lost each time, and one of them in half.
    """
    if table.num_rows <= capacity:
        return table
    steps_N = table[SAMPLED_AT].to_numpy()
    step = int(steps_N[capacity])
    first = int(np.flatnonzero(steps_N == step)[0])
    part = table.slice(first, int((steps_N == step).sum()))
    prompts = part["prompt_id"].combine_chunks().dictionary_encode()
    codes_N = prompts.indices.to_numpy()
    drawn_G = np.argsort(hash_each(prompts.dictionary, seed=step))
    fits_G = np.cumsum(np.bincount(codes_N)[drawn_G]) <= capacity - first
    kept_N = np.isin(codes_N, drawn_G[fits_G])
    return pa.concat_tables([table.slice(0, first), part.filter(pa.array(kept_N))])


# --- Judging --------------------------------------------------------------------------

_OF_ANSWER = (SAMPLED_AT, "policy_version")


class VerificationPrompts(NamedTuple):
    prompts: pa.Table  # a row and a group each, with the step and the policy version of the answer
    decisions: pa.Table  # about those that were dropped
    figures: dict[str, float]  # how many answers and prompts there were, and of what age


def verification_prompts(
    steps: Sequence[Step], queued: QueuedAnswers, step: int, encode: Encode, longest: int
) -> VerificationPrompts:
    """Answers that give none are flushed."""
    made = curate(steps[:1], queued.table)
    # Before anything is balanced: long answers are wrong more often than not.
    fit = drop_overlong_prompts(made, encode, longest, among_N=of_task(made.table, "verify"))
    chosen = continued(fit, steps[1:])
    table = chosen.table.filter(pa.array(of_task(chosen.table, "verify")))
    prompts = _of_answers(table, queued.table)
    figures = {
        "answers": queued.table.num_rows,
        "stale_answers": queued.stale,
        "repeated_answers": queued.repeated,
        "answers_over_capacity": queued.over,
        "steps_without_answers": queued.lacking,
        "prompts": prompts.num_rows,
        "flushed_answers": queued.table.num_rows - prompts.num_rows,
    }
    if prompts.num_rows:
        age_N = step - prompts[SAMPLED_AT].to_numpy()
        figures |= {"age": float(age_N.mean()), "oldest": float(age_N.max())}
    return VerificationPrompts(prompts, chosen.decisions, {**figures, **chosen.figures})


def verl_batch(
    prompts: pa.Table, rollout: PolicyRolloutMapper, source: str, step: int
) -> tuple[list[str], Any]:
    """Verification prompts as verl's dataset would give them; their keys, and a TensorDict.

    Each has its own number of responses and its own limit of tokens.
    """
    from verl.utils import tensordict_utils  # The queue is read where verl is not loaded.

    names = prompts["prompt_id"].to_pylist()
    uids = [f"{name}-{step}" for name in names]
    labels = prompts["label"].to_pylist()
    columns = {
        "uid": uids,
        "raw_prompt": prompts["prompt"].to_pylist(),
        "data_source": [source] * len(uids),
        "reward_model": [{"style": "rule", "ground_truth": label} for label in labels],
        "extra_info": [
            {"index": row, "prompt_id": name, "max_tokens": rollout.max_tokens}
            for row, name in enumerate(names)
        ],
        "index": list(range(len(uids))),
        "tools_kwargs": [{} for _ in uids],
        "interaction_kwargs": [{} for _ in uids],
        RESPONSES: [rollout.n] * len(uids),
    }
    found = tensordict_utils.get_tensordict(columns)
    tensordict_utils.assign_non_tensor_data(found, "global_steps", step)
    return uids, found


def judgement_figures(
    curated: Curated, rollouts: pa.Table, values: pa.Table, steps: Sequence[Step]
) -> dict[str, float]:
    """The figures of all judgements that were sampled, whatever the steps have dropped since."""
    found = response_figures(curated, rollouts, values, steps)
    if not rollouts.num_rows or "judgement" not in values.column_names:
        return found
    return found | accuracy_figures(rollouts["label"], values["judgement"])


def accuracy_figures(labels_N: pa.ChunkedArray, judgements_N: pa.ChunkedArray) -> dict[str, float]:
    """How many judgements are right, are Yes, and cannot be read.

    `accuracy` is balanced: the mean of the shares that are right among those that should be Yes
    and among those that should be No, if there are both; a judgement that cannot be read is wrong.
    A policy that always gives the same judgement has 0.5.
    """
    right_N = _true(pc.equal(judgements_N, labels_N))
    parts = [right_N[_true(pc.equal(labels_N, label))] for label in ("Yes", "No")]
    found = dict[str, float]()
    if all(len(part) for part in parts):
        found["accuracy"] = float(np.mean([part.mean() for part in parts]))
    return {
        **found,
        "says_yes": float(_true(pc.equal(judgements_N, "Yes")).mean()),
        "malformed": float(np.asarray(judgements_N.is_null()).mean()),
    }


def _true(mask: pa.ChunkedArray) -> Array:
    return np.asarray(mask.fill_null(False)).astype(bool)


def _of_answers(prompts: pa.Table, answers: pa.Table) -> pa.Table:
    """Prompts with those columns of the answers they are about that the answers have."""
    rows = pc.index_in(prompts["judged_response_id"], answers["response_id"])
    for name in _OF_ANSWER:
        if name not in answers.column_names:
            continue
        column = answers[name].take(rows)
        name = name if name == SAMPLED_AT else f"answer_{name}"
        prompts = prompts.drop_columns([name]) if name in prompts.column_names else prompts
        prompts = prompts.append_column(name, column)
    return prompts
