"""The policy judges its own answers: verification prompts, and how they reach the rollouts.

queued answers ──verification_prompts──> prompts ──verl's rollouts──> judgements
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from verl.utils import tensordict_utils

from ...operators.columns import of_task
from ...operators.groups import Array
from ...operators.mapper.policy_rollout_mapper import PolicyRolloutMapper
from ...operators.sampling.tokenizer import Encode
from ...pipelines.recipe.steps import Step
from ..held_out import RESPONSES
from .curation import Curated, curate, drop_overlong_prompts
from .queued_answers import SAMPLED_AT
from .step_files import response_figures
from .types import QueuedAnswers, VerificationPrompts

_OF_ANSWER = (SAMPLED_AT, "policy_version")


def verification_prompts(
    steps: Sequence[Step], queued: QueuedAnswers, step: int, encode: Encode, longest: int
) -> VerificationPrompts:
    """Make verification prompts of queued answers; answers that give none are flushed.

    Args:
        steps: `self_verification_mapper` and the steps that choose among its prompts.
        queued: the answers.
        step: of training.
        encode: token ids of a chat.
        longest: the most tokens that a prompt may have.
    """
    made = curate(steps[:1], queued.table)
    # Before anything is balanced: long answers are wrong more often than not.
    fit = drop_overlong_prompts(made, encode, longest, among_N=of_task(made.table, "verify"))
    chosen = curate(steps[1:], fit.table)
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
    decisions = pa.concat_tables([fit.decisions, chosen.decisions])
    for count in decisions["reason"].value_counts().to_pylist():
        figures[f"dropped/{count['values']}"] = count["counts"]
    notes = {**made.notes, **chosen.notes}
    figures |= {f"note/{name}": float(n) for name, n in notes.items()}
    return VerificationPrompts(prompts, decisions, figures)


def verl_batch(
    prompts: pa.Table, rollout: PolicyRolloutMapper, source: str, step: int
) -> tuple[list[str], Any]:
    """Verification prompts as verl's dataset would give them; their keys, and a TensorDict.

    Each has its own number of responses and its own limit of tokens.
    """
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
    curated: Curated, rollouts: pa.Table, steps: Sequence[Step]
) -> dict[str, float]:
    """The figures of judgements, for the loggers: those of responses, and how many are right.

    `accuracy` is balanced: the mean of the shares that are right among those that should be Yes
    and among those that should be No, if there are both; a judgement that cannot be read is wrong.
    A policy that always gives the same judgement has 0.5.
    """
    found, table = response_figures(curated, rollouts, steps), curated.table
    if not table.num_rows or "judgement" not in table.column_names:
        return found
    right_N = _true(pc.equal(table["judgement"], table["label"]))
    parts = [right_N[_true(pc.equal(table["label"], label))] for label in ("Yes", "No")]
    if all(len(part) for part in parts):
        found["accuracy"] = float(np.mean([part.mean() for part in parts]))
    return {
        **found,
        "says_yes": float(_true(pc.equal(table["judgement"], "Yes")).mean()),
        "malformed": float(np.asarray(table["judgement"].is_null()).mean()),
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
