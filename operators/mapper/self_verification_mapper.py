"""Make verification prompts from graded responses: the policy learns to judge its own answers.

Learning to Self-Verify Makes Language Models Better Reasoners, https://arxiv.org/abs/2602.07594.
docs/self-verification.md lists every difference from the published post-processing.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import fill, last_user_message, prompt_ids, prompts_of
from ..columns import MESSAGES, ROW_CONTRACT, content_ids
from ..groups import Array, Groups, hash_each, mix, uniform_N, uniform_of
from ..judgements import JUDGED_COLUMN, Mode, same_text
from ..operator import Change, Columns, Operator, Scope

_JUDGE = (
    "Then give your judgement on the last line: \\boxed{Yes} if the final answer is correct, "
    "\\boxed{No} if it is not."
)
_TEMPLATES = {
    "answer": (
        "You are a teacher. A student has worked on the problem below; you see the student's final "
        "answer. Decide whether it is correct.\n\n"
        "Problem:\n{question}\n\n"
        "Student's final answer:\n{answer}\n\n"
        "Work through the problem yourself and explain, step by step, whether the student's final "
        f"answer is correct. {_JUDGE}"
    ),
    "response": (
        "You are a teacher. A student has worked on the problem below; you see the student's whole "
        "solution. Decide whether its final answer is correct.\n\n"
        "Problem:\n{question}\n\n"
        "Student's solution:\n{response}\n\n"
        "Check the solution and explain, step by step, whether its final answer is correct. "
        f"{_JUDGE}"
    ),
}

_READ = ("prompt_id", "prompt", "reference", "response_id", "verdict")
_WRITTEN = ("prompt_id", "prompt", "reference", "task", "label", "judged_response_id")
_NO_VERDICT = ("no_answer", "timeout", "verifier_error")
_UNGRADED, _WRONG, _RIGHT = -1, 0, 1
_SPARE = "spare"


class SelfVerificationMapper(Operator):
    r"""Add verification prompts after each group: is this answer right, Yes or No?

    The input rows stay unchanged, with `task: generate`. Each verification prompt is a new row and
    a separate group: `task: verify`; `prompt` asks for a judgement; `label` is the right judgement,
    `Yes` for a `correct` response and `No` for a `wrong_answer`, and is also the `reference`;
    `judged_response_id` identifies the judged response; `prompt_id` is new. Response, verdict and
    rewards are null: the judgement has yet to be sampled.

    Only `correct` and `wrong_answer` responses are judged, unless `ungraded` is `ask`. Each
    distinct answer to a prompt (with `mode: response`, each distinct response) is judged once, by
    a random one of the responses with that answer; `over` says how likely each of them is drawn.
    An answer that is graded both right and wrong is excluded.

    The notes account for every candidate, which is a distinct answer that could be judged: it is
    counted in `yes`, `no` or `unlabelled`, or in `over_max_per_label`, or, with `candidates:
    balanced`, in `unpaired`: its prompt has too few candidates of the other label. If there is a
    limit, `short_of_max_per_label` is how many more prompts there would be if each prompt with a
    graded response gave as many of both labels as the limit allows. `spare_yes` and `spare_no` are
    those of `yes` and `no` that are spares; a spare counts towards no limit.

    Duplicate questions with different ids would give the same verification prompt twice: put an
    `exact_deduplicator` before sampling.
    """

    mode: Mode = "answer"
    """What is judged: the extracted answer or the whole response."""
    candidates: Literal["balanced", "all"] = "balanced"
    """`balanced`: as many right as wrong ones from each prompt, up to `max_per_label`, chosen at
    random; a prompt with only right or only wrong ones gives none. `all`: all of them, up to
    `max_per_label`; balance them over the dataset by `label_balance_selector` with `column: label`
    and `positive: "Yes"`."""
    max_per_label: PositiveInt | None = None
    """Most right ones, and most wrong ones, from one prompt, chosen at random. Null: 1 with
    `balanced`, no limit with `all`."""
    over: Literal["responses", "distinct"] = "responses"
    """What the choice is made over. `responses`, as published: an answer that three of four
    responses give is drawn three times as often as one that only the fourth gives. `distinct`:
    each distinct answer is as likely as any other."""
    spares: NonNegativeInt = 0
    """So many further right ones and wrong ones from a prompt with both, and right ones from a
    prompt with only right ones, where there are. They have `spare: true`:
    `label_balance_selector` with `spare: spare` keeps them only where the others are too few for
    its target. Published: 1. Requires `candidates: balanced`."""
    ungraded: Literal["skip", "ask"] = "skip"
    """`ask`: also judge responses with an answer but no verdict (no reference, a timeout), for
    `self_verified_vote_mapper` and `verification_filter`. The label is null, so these judgements
    have no reward. Requires `candidates: all`; `max_per_label` does not apply to them."""
    question: str | None = None
    """Column with the question to show. Null: the last user message of `prompt`."""
    template: str | None = None
    r"""The verification prompt, with `{question}` and `{answer}` or `{response}`; all other braces
    are plain text. Null: a teacher judges a student, explains, and ends with \boxed{Yes} or
    \boxed{No}."""
    carry: tuple[str, ...] = ()
    """Your own columns that a verification row copies from the response it judges, such as
    `data_source`."""
    seed: int = 0
    """Another seed gives another choice."""

    scope: ClassVar[Scope] = Scope.GROUP

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.ungraded == "ask" and self.candidates == "balanced":
            raise ValueError("ungraded: ask has no labels to balance: it needs candidates: all")
        if self.spares and self.candidates == "all":
            raise ValueError("candidates: all leaves no spares: it needs candidates: balanced")
        if self.template is not None:
            other = "{response}" if self.mode == "answer" else "{answer}"
            for placeholder in ("{question}", f"{{{self.mode}}}"):
                if placeholder not in self.template:
                    raise ValueError(f"template does not contain {placeholder}")
            if other in self.template:
                raise ValueError(
                    f"template contains {other}, which mode: {self.mode} does not fill in"
                )
        for name in self.carry:
            if name in ROW_CONTRACT or name in (*_WRITTEN, _SPARE):
                raise ValueError(
                    f"carry must not name '{name}', which verification rows set themselves"
                )
        return self

    def reads(self) -> Columns:
        extra = () if self.question is None else (self.question,)
        answer = (JUDGED_COLUMN["answer"],) if self.ungraded == "ask" else ()
        judged = JUDGED_COLUMN[self.mode]
        return tuple(dict.fromkeys((*_READ, judged, *answer, *self.carry, *extra)))

    def writes(self) -> Columns:
        spare = (_SPARE,) if self.spares else ()
        return (*_WRITTEN, *spare, *self.carry)

    def apply(self, table: pa.Table) -> Change:
        groups = Groups.of(table)
        question_G = self._questions(table, groups)
        found = self._candidates(table, groups, question_G)
        chosen = self._choose(found, len(groups.starts_G))
        verify = self._verification_rows(table, found.take(chosen.at), question_G)
        written = self._generation_rows(table)
        if self.spares:
            verify[_SPARE] = pa.array(chosen.spare)
            written[_SPARE] = pa.nulls(table.num_rows, pa.bool_())
        n, codes = table.num_rows, found.codes[chosen.at]
        after = groups.starts_G[codes] + groups.sizes_G[codes] - 1
        order = np.argsort(np.concatenate([np.arange(n), after]), kind="stable")
        take = pa.array(order)
        # A verification row has no parent: it must not inherit another row's rewards.
        parents = np.where(order < n, order, -1)
        columns = {
            name: pa.concat_arrays([column, verify[name]]).take(take)
            for name, column in written.items()
        }
        notes = _notes(table, groups, found, chosen, self._limit(), self.spares)
        return Change(columns, parents=parents, notes=notes)

    def _questions(self, table: pa.Table, groups: Groups) -> pa.Array:
        first_rows_G = pa.array(groups.starts_G)
        if self.question is not None:
            return table[self.question].take(first_rows_G).combine_chunks().cast(pa.string())
        return last_user_message(table["prompt"].take(first_rows_G).combine_chunks().cast(MESSAGES))

    def _candidates(self, table: pa.Table, groups: Groups, question_G: pa.Array) -> _Candidates:
        """Responses that could be judged, one for each distinct text of a prompt."""
        text = same_text(table[JUDGED_COLUMN[self.mode]])
        graded_N = _graded(table)
        usable_N = np.asarray(pc.fill_null(pc.not_equal(text, ""), False)).astype(bool)
        ungraded_N = graded_N == _UNGRADED
        if self.ungraded == "skip":
            usable_N &= ~ungraded_N
        else:  # Responses without an answer cannot be voted on, in mode response either.
            answer = same_text(table[JUDGED_COLUMN["answer"]])
            usable_N &= ~ungraded_N | np.asarray(pc.fill_null(pc.not_equal(answer, ""), False))
        has_question_G = np.asarray(question_G.is_valid())
        rows = np.flatnonzero(usable_N & has_question_G[groups.codes_N])
        uniform = uniform_N(table, seed=self.seed, salt=self.name())[rows]
        found = _Candidates(rows, groups.codes_N[rows], graded_N[rows], uniform)
        found = _distinct(found, hash_each(text.take(pa.array(rows))))
        # The number of an answer is the least of its responses': the more there are, the less it
        # is. Mixed, it is as good as a new one.
        mixed = uniform_of(mix(found.uniform.view(np.uint64)))
        return found if self.over == "responses" else found._replace(uniform=mixed)

    def _choose(self, found: _Candidates, n_groups: int) -> _Chosen:
        """In the order of the groups, the right ones first, of each label the spares last."""
        order = np.lexsort((found.uniform, -found.graded, found.codes))
        limit = self._limit()
        if limit is None:
            return _Chosen(order, np.zeros(len(order), bool))
        quota_G, spares_G2 = np.full(n_groups, limit), np.zeros((n_groups, 2), np.int64)
        if self.candidates == "balanced":
            count_G2 = np.zeros((n_groups, 2), np.int64)
            np.add.at(count_G2, (found.codes, found.graded), 1)
            quota_G = np.minimum(quota_G, count_G2.min(axis=1))
            # All-wrong prompts give none.
            spares_G2[count_G2[:, _RIGHT] > 0] = self.spares
        codes, graded = found.codes[order], found.graded[order]
        place = Groups.of_column(pa.array(codes * 3 + graded)).position()
        ungraded, quota = graded == _UNGRADED, quota_G[codes]
        chosen = ungraded | (place < quota + spares_G2[codes, graded])
        return _Chosen(order[chosen], (~ungraded & (place >= quota))[chosen])

    def _limit(self) -> int | None:
        default = 1 if self.candidates == "balanced" else None
        return self.max_per_label or default

    def _verification_rows(
        self, table: pa.Table, chosen: _Candidates, question_G: pa.Array
    ) -> dict[str, pa.Array]:
        text = JUDGED_COLUMN[self.mode]
        needed = dict.fromkeys((text, "prompt_id", "response_id", *self.carry))
        judged = table.select(list(needed)).take(pa.array(chosen.rows))
        m = len(chosen.rows)
        template = self.template or _TEMPLATES[self.mode]
        values = {
            "{question}": question_G.take(pa.array(chosen.codes)),
            f"{{{self.mode}}}": pc.utf8_trim_whitespace(
                judged[text].combine_chunks().cast(pa.string())
            ),
        }
        asked = fill(template, values).to_pylist()
        prompts = prompts_of([[("user", text)] for text in asked])
        labels = pa.array(["No", "Yes"], pa.string())
        label = labels.take(pa.array(chosen.graded, mask=chosen.graded == _UNGRADED))
        # The judged prompt's id is part of the new id: two prompts may contain the same question.
        judged_ids = judged["prompt_id"]
        ids = prompt_ids(prompts, label)
        return {
            **{name: judged[name].combine_chunks() for name in self.carry},
            "prompt_id": content_ids(zip(judged_ids.to_pylist(), ids.to_pylist(), strict=True)),
            "prompt": prompts,
            "reference": label,
            "task": pa.repeat(pa.scalar("verify"), m),
            "label": label,
            "judged_response_id": judged["response_id"].combine_chunks().cast(pa.string()),
        }

    def _generation_rows(self, table: pa.Table) -> dict[str, pa.Array]:
        nothing = pa.nulls(table.num_rows, pa.string())
        return {
            **{name: table[name].combine_chunks() for name in self.carry},
            "prompt_id": table["prompt_id"].combine_chunks().cast(pa.string()),
            "prompt": table["prompt"].combine_chunks().cast(MESSAGES),
            "reference": table["reference"].combine_chunks().cast(pa.string()),
            "task": pa.repeat(pa.scalar("generate"), table.num_rows),
            "label": nothing,
            "judged_response_id": nothing,
        }


class _Candidates(NamedTuple):
    rows: Array  # row in the table, ascending
    codes: Array  # group
    graded: Array  # `_RIGHT`, `_WRONG` or `_UNGRADED`
    uniform: Array  # a random number each

    def take(self, at: Array) -> _Candidates:
        return _Candidates(*(column[at] for column in self))

    def over(self, limit: int) -> int:
        known = self.graded != _UNGRADED
        count = np.unique(self.codes[known] * 2 + self.graded[known], return_counts=True)[1]
        return int(np.maximum(count - limit, 0).sum())


class _Chosen(NamedTuple):
    at: Array
    spare: Array


def _graded(table: pa.Table) -> Array:
    verdict = table["verdict"].cast(pa.string())
    found = pc.index_in(verdict, pa.array(["wrong_answer", "correct"]))
    graded_N: Array = np.asarray(found.fill_null(_UNGRADED)).astype(np.int64)
    return graded_N


def _distinct(all_of: _Candidates, keys: Array) -> _Candidates:
    """One random candidate for each (group, key), if possible one that is graded; none if a key is
    graded both right and wrong."""
    ungraded = all_of.graded == _UNGRADED
    order = np.lexsort((all_of.uniform, ungraded, keys, all_of.codes))
    codes, keys, graded = all_of.codes[order], keys[order], all_of.graded[order]
    first = np.ones(len(order), bool)
    first[1:] = (codes[1:] != codes[:-1]) | (keys[1:] != keys[:-1])
    starts = np.flatnonzero(first)
    if len(starts) == 0:
        return all_of
    wrong, right = (np.logical_or.reduceat(graded == each, starts) for each in (_WRONG, _RIGHT))
    return all_of.take(np.sort(order[starts[~(wrong & right)]]))


def _notes(
    table: pa.Table,
    groups: Groups,
    found: _Candidates,
    chosen: _Chosen,
    limit: int | None,
    spares: int,
) -> dict[str, float]:
    """Counts of prompts, responses and candidates. Pass rates count graded responses only."""
    verdict, graded_N = table["verdict"].cast(pa.string()), _graded(table)
    right_N, wrong_N = graded_N == _RIGHT, graded_N == _WRONG
    right_G, wrong_G = groups.sum(right_N) > 0, groups.sum(wrong_N) > 0
    graded = found.graded[chosen.at]
    over = 0 if limit is None else found.over(limit + spares)
    notes = {
        "yes": (graded == _RIGHT).sum(),
        "no": (graded == _WRONG).sum(),
        "unlabelled": (graded == _UNGRADED).sum(),
        "mixed_prompts": (right_G & wrong_G).sum(),
        "all_right_prompts": (right_G & ~wrong_G).sum(),
        "all_wrong_prompts": (~right_G & wrong_G).sum(),
        "ungraded_prompts": (~right_G & ~wrong_G).sum(),
        "right_responses": right_N.sum(),
        "wrong_responses": wrong_N.sum(),
        "distinct_candidates": len(found.rows),
        "over_max_per_label": over,
        "unpaired": len(found.rows) - len(chosen.at) - over,
        **{
            f"{slug}_responses": pc.sum(pc.equal(verdict, slug), min_count=0).as_py()
            for slug in _NO_VERDICT
        },
    }
    if limit is not None:
        labelled = (~chosen.spare & (graded != _UNGRADED)).sum()
        notes["short_of_max_per_label"] = 2 * limit * (right_G | wrong_G).sum() - labelled
    if spares:
        notes["spare_yes"] = (chosen.spare & (graded == _RIGHT)).sum()
        notes["spare_no"] = (chosen.spare & (graded == _WRONG)).sum()
    return {name: float(value) for name, value in notes.items()}
