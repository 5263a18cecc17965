"""Reward a response for having the requested format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import FiniteFloat, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import continued
from ..columns import component, component_columns, flat, is_text, until_closed
from ..errors import DataError
from ..operator import Columns, Mapper

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_BOX = "\\boxed{"


class FormatRewardMapper(Mapper):
    r"""Write `reward_format`: `right` if the response has the format of `style`, else `wrong`.

    The format of tags is strict, because a policy exploits any laxity: each tag exactly once, in
    order and not nested, no part empty, and only white space before, between and after them. In the
    style `boxed` the text is free, but must contain exactly one `\boxed{...}` with balanced braces
    that is not empty. Both take time linear in the length of the response.

    The reward of a null response is missing as `no_response`; an empty one has the wrong
    format. The default values are those of the Trinity-RFT report (https://arxiv.org/abs/2505.17826).
    """

    style: Literal["think_answer", "boxed", "tags"] = "think_answer"
    """`<think>..</think><answer>..</answer>`, one `\\boxed{..}`, or the tags in `tags`."""
    tags: tuple[str, ...] = ()
    """For the style `tags`: the names of the tags in order, such as `[plan, final]`."""
    response_prefix: str | None = None
    """What the prompt ends with and a response continues, such as the `<think>` of DeepSeek-R1's
    chat template. Null: what the template in the folder of the policy ends with, in a recipe that
    samples; else nothing."""
    right: FiniteFloat = 0.1
    """Reward of a response with the right format."""
    wrong: FiniteFloat = -0.1
    """Reward of a response with another format."""

    gil_bound: ClassVar[bool] = True
    retryable: ClassVar[frozenset[str] | None] = frozenset()

    @model_validator(mode="after")
    def _tags_fit(self) -> Self:
        if (self.style == "tags") != bool(self.tags):
            raise ValueError("tags go with style tags, and only with it")
        if len(set(self.tags)) < len(self.tags):
            raise ValueError("a tag is listed twice")
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"'{tag}' is not the name of a tag, such as think")
        return self

    def reads(self) -> Columns:
        return ("response",)

    def writes(self) -> Columns:
        return component_columns("format")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        responses = flat(table["response"])
        if not (is_text(responses.type) or pa.types.is_null(responses.type)):
            found = f"column 'response' is {responses.type}, not text"
            raise DataError(found, "give the responses as strings")
        texts = continued(self.response_prefix, responses.to_pylist())
        right_N = self._right([text or "" for text in texts])
        missing = pc.if_else(pc.is_null(responses), "no_response", pa.scalar(None, pa.string()))
        return component("format", np.where(right_N, self.right, self.wrong), missing)

    def _right(self, texts: Sequence[str]) -> list[bool]:
        if self.style == "boxed":
            return [has_one_box(text) for text in texts]
        tags = self.tags if self.style == "tags" else ("think", "answer")
        marks = [(f"<{tag}>", f"</{tag}>") for tag in tags]
        return [is_tagged(text, marks) for text in texts]


def is_tagged(text: str, marks: Sequence[tuple[str, str]]) -> bool:
    """Whether it is a sequence of parts between opening and closing tags, each tag once."""
    at = 0
    for opening, closing in marks:
        start = text.find(opening, at)
        inside = start + len(opening)
        end = text.find(closing, inside)
        if start < 0 or end < 0:
            return False
        if not _blank(text[at:start]) or _blank(text[inside:end]):
            return False
        at = end + len(closing)
    if not _blank(text[at:]):
        return False
    # All marks occur. If there are only as many `<` as marks, none can occur twice; otherwise, as
    # with `a < b`, count each of them.
    each_once = (text.count(mark) == 1 for pair in marks for mark in pair)
    return text.count("<") == 2 * len(marks) or all(each_once)


def has_one_box(text: str) -> bool:
    r"""Exactly one, balanced and not empty. Escaped braces, as in `\{1, 2\}`, do not count."""
    if text.count(_BOX) != 1:
        return False
    inside = until_closed(text, text.index(_BOX) + len(_BOX))
    return inside is not None and not _blank(inside)


def _blank(text: str) -> bool:
    return not text or text.isspace()
