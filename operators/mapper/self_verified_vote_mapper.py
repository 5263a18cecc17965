"""Vote over the answers to a prompt, weighting each vote by the policy's own judgements."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import NonNegativeFloat

from .. import judgements
from ..groups import Array, Groups
from ..operator import Change, Columns, Operator, Scope


class SelfVerifiedVoteMapper(Operator):
    """Write how the policy judges each answer, and which answer wins a vote over the prompt.

    - `judged_right`, float64: the share of `Yes` among the well-formed judgements of the response.
      A response that was not judged itself takes the judgements of the responses to its prompt with
      the same answer, since each distinct text of a prompt is judged once. Null: no judgement.
    - `majority`, bool: the row has the answer with the most votes of its prompt.
    - `voted`, bool: the same, but each vote is weighted by the share of `Yes` among its judgements,
      after adding `prior` judgements of each kind (the rule of succession). Without the prior, a
      single wrong judgement could cancel an answer however many votes it has.

    One answer wins, and all rows with that answer are true. Ties in weight go to the answer with
    more votes, then to the one that occurs first. Answers are equal if their texts are, ignoring
    white space. Responses without an answer do not vote. Rows that are not `task: generate` get
    nulls.

    All candidates should be judged: use `candidates: all` in `self_verification_mapper`, and no
    `label_balance_selector`, which would remove judgements of the more frequent label.

    Majority vote: https://arxiv.org/abs/2203.11171. Weights by the policy's own judgements:
    https://arxiv.org/abs/2602.07594.
    """

    mode: judgements.Mode = "answer"
    """What was judged, as in `self_verification_mapper`. With `response`, a response that was not
    judged itself takes the judgements of the same text first, then those of the same answer."""
    prior: NonNegativeFloat = 1.0
    """How many judgements of each kind are added. 0: a vote's weight is `judged_right`. A vote
    without any judgement has weight 0.5."""

    scope: ClassVar[Scope] = Scope.DATASET

    def reads(self) -> Columns:
        return judgements.read(self.mode)

    def writes(self) -> Columns:
        return ("judged_right", "majority", "voted")

    def digest(self, table: pa.Table) -> pa.Table:
        return judgements.digest(table, self.mode)

    def apply(self, table: pa.Table) -> Change:
        generated_N, judged = judgements.generated(table), judgements.judged(table)
        right_N, weight_N = judged.right_N(), judged.right_N(self.prior, none=0.5)
        ballot = _Ballot.of(table, weight_N)
        majority_B, voted_B = ballot.winners(weighted=False), ballot.winners(weighted=True)
        columns = {"judged_right": pa.array(right_N, mask=np.isnan(right_N))}
        for name, winner_B in (("majority", majority_B), ("voted", voted_B)):
            wins_N = np.zeros(table.num_rows, bool)
            wins_N[ballot.rows_V] = winner_B[ballot.answers_V]
            columns[name] = pa.array(wins_N, mask=~generated_N)
        notes = {
            "prompts": float(majority_B.sum()),
            "voted_differently": float((majority_B & ~voted_B).sum()),
            "unjudged_votes": float(np.isnan(right_N[ballot.rows_V]).sum()),
        }
        return Change(columns, notes=notes)


class _Ballot(NamedTuple):
    """The votes V for the answers B of all prompts; answers to a prompt are contiguous."""

    rows_V: Array  # row of each vote
    answers_V: Array  # the answer it is for
    prompts_B: Array  # the prompt of each answer, ascending
    first_B: Array  # the first row with the answer
    votes_B: Array  # number of rows with the answer
    weight_B: Array  # sum of their weights

    @classmethod
    def of(cls, digests: pa.Table, weight_N: Array) -> _Ballot:
        rows_V = np.flatnonzero(np.asarray(digests["answer"].is_valid()))
        prompts_V = np.cumsum(np.asarray(digests["starts"]))[rows_V]
        keys_V = np.asarray(digests["answer"].drop_null())
        order_V = np.lexsort((keys_V, prompts_V))  # Stable: equal keys stay in row order.
        rows_V, prompts_V = rows_V[order_V], prompts_V[order_V]
        # The key includes the prompt, so each answer is one run.
        answers = Groups.of_column(pa.array(keys_V[order_V]))
        # Rounded, so that a tie does not depend on the order in which votes are added.
        weight_B = np.round(answers.sum(weight_N[rows_V]), 9)
        prompts_B, first_B = prompts_V[answers.starts_G], rows_V[answers.starts_G]
        return cls(rows_V, answers.codes_N, prompts_B, first_B, answers.sizes_G, weight_B)

    def winners(self, *, weighted: bool) -> Array:
        """Return which answers win, bool[B]: one for each prompt."""
        weight_B = self.weight_B if weighted else self.votes_B
        order_B = np.lexsort((self.first_B, -self.votes_B, -weight_B, self.prompts_B))
        winner_B = np.zeros(len(order_B), bool)
        # Prompts ascend in both orders, so the best answer of each comes where the prompt begins.
        winner_B[order_B[Groups.of_column(pa.array(self.prompts_B)).starts_G]] = True
        return winner_B
