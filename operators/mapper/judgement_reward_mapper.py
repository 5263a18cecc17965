r"""Reward a judgement for being right: Yes about right answers, No about wrong ones.

Learning to Self-Verify Makes Language Models Better Reasoners, https://arxiv.org/abs/2602.07594.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import FiniteFloat, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import component, component_columns, flat
from ..operator import Change, Columns, Operator, drop

_BOX = re.compile(r"\\boxed\s*\{")
_WORD = r"\s*([Yy][Ee][Ss]|[Nn][Oo])\s*(?:\.\s*)?"
_FONT = r"\s*\\(?:text(?:bf|it|rm)?|math(?:bf|it|rm))\s*"
_IN_BOX = re.compile(rf"{_FONT}\{{{_WORD}\}}\s*(?:\.\s*)?\}}|{_WORD}\}}")


class JudgementRewardMapper(Operator):
    r"""Write `judgement`, Yes or No, and `reward_verification`: whether it equals the `label`.

    It applies to verification prompts, rows with `task: verify` such as `self_verification_mapper`
    makes, once responses to them are sampled. The judgement is the content of the last
    `\boxed{...}` of the response: Yes or No in any case, also as `\text{Yes}` or `\textbf{Yes}`,
    with or without a full stop. Earlier boxes may contain anything else.

    A response without a judgement is malformed, and its `judgement` is null: it has no box (it may
    have been truncated), or something else in the last one. A response with Yes in one box and No
    in another, in any order, is also malformed, because it hedges. A malformed response is an
    error of the policy and has a reward; the reward is missing only where the row is no evidence
    about the policy:

    - `other_task`: the row is not a verification prompt;
    - `no_response`: the response is null, for example because it is not sampled yet;
    - `no_label`: the label is neither Yes nor No.

    The notes count how many of the rewarded rows were `right`, `wrong` and `malformed`. The default
    values are those of the source.

    Source: Learning to Self-Verify, https://arxiv.org/abs/2602.07594.
    """

    right: FiniteFloat = 1.0
    """Reward of a judgement that equals the label."""
    wrong: FiniteFloat = 0.0
    """Reward of one that does not."""
    malformed: FiniteFloat = 0.0
    """Reward of a response without a judgement."""

    gil_bound: ClassVar[bool] = True
    missing: ClassVar[Mapping[str, str]] = {
        "other_task": "the row is not a verification prompt",
        "no_response": "the response is null",
        "no_label": "the label is neither Yes nor No",
    }
    """Why the reward may be missing."""
    not_failures: ClassVar[frozenset[str]] = frozenset({"other_task", "no_label"})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in ("wrong", "malformed"):
            if getattr(self, name) >= self.right:
                found = f"{name} {getattr(self, name)}"
                raise ValueError(f"{found} is not below right {self.right}")
        return self

    def reads(self) -> Columns:
        return ("task", "response", "label")

    def writes(self) -> Columns:
        return ("judgement", *component_columns("verification"))

    def apply(self, table: pa.Table) -> Change:
        task, response, label = (flat(table[name]).cast(pa.string()) for name in self.reads())
        verify = pc.fill_null(pc.equal(task, "verify"), False)
        texts = pc.if_else(verify, response, pa.scalar(None, pa.string()))
        found = [None if text is None else judgement_in(text) for text in texts.to_pylist()]
        judgement = pa.array(found, pa.string())
        masks = {
            "other_task": pc.invert(verify),
            "no_response": pc.is_null(response),
            "no_label": pc.invert(pc.is_in(label, pa.array(["Yes", "No"]))),
        }
        missing = drop(masks)
        right_N = np.asarray(pc.fill_null(pc.equal(judgement, label), False))
        malformed_N = np.asarray(pc.is_null(judgement))
        reward_N = np.where(right_N, self.right, np.where(malformed_N, self.malformed, self.wrong))
        rewarded_N = np.asarray(pc.is_null(missing))
        counted = {"right": right_N, "wrong": ~right_N & ~malformed_N, "malformed": malformed_N}
        return Change(
            columns={"judgement": judgement, **component("verification", reward_N, missing)},
            notes={name: float((mask_N & rewarded_N).sum()) for name, mask_N in counted.items()},
        )


def judgement_in(text: str) -> str | None:
    """Yes or No; None if the response is malformed."""
    last, found = None, set[str]()
    for box in _BOX.finditer(text):
        word = _IN_BOX.match(text, box.end())
        last = None if word is None else (word[1] or word[2]).capitalize()
        if last is not None:
            found.add(last)
    return last if len(found) == 1 else None
