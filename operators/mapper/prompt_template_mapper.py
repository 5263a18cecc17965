"""Make prompts from your columns: chat messages, the reference and the prompt's id."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import field_validator, model_validator
from typing_extensions import Self

from ..chats import fill, is_chat, nest_messages, prompt_ids, user_roles
from ..columns import at_path, is_text
from ..compute import pc
from ..errors import DataError
from ..groups import Array
from ..operator import Change, Columns, Operator, drop


class PromptTemplateMapper(Operator):
    r"""Write `prompt_id`, `prompt` and `reference` from a question and an answer column.

    Rows with the same messages and the same reference get the same `prompt_id`. So a file with
    one row per response becomes groups if its rows are sorted by question.

    References are stripped of white space and otherwise unchanged: the verifier reads `1,234`.

    Example:
        >>> train = pa.table({"question": ["1 + 1?"], "answer": ["One and one.\n#### 2"]})
        >>> change = PromptTemplateMapper(reference_pattern="#### (.*)").apply(train)
        >>> change.columns["prompt"].to_pylist(), change.columns["reference"].to_pylist()
        ([[{'role': 'user', 'content': '1 + 1?'}]], ['2'])
    """

    question: str = "question"
    """Column with the question: strings, or lists of chat messages (role, content)."""
    reference: str | None = "answer"
    """Column with the reference answer: strings or numbers; `reward_model.ground_truth` is a field
    of a column of structs, as in verl's datasets. Null: the prompts have none, and
    `reference` is null, even if the dataset has a column of that name."""
    reference_pattern: str | None = None
    """Regular expression that finds the reference in that column, such as `#### (.*)`. The last
    match counts; its first group is the reference, if it has one."""
    system: str | None = None
    """System message to prepend. Chats that already begin with a system message keep theirs."""
    template: str = "{question}"
    """The user's message. `{question}` is filled in; all other braces are text."""
    on_bad_row: Literal["fail", "drop_row"] = "fail"
    """What to do with a row without a question or a reference."""

    gil_bound: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "no_question": "the question is null or empty",
        "no_reference": "the reference is null, empty or not finite, or `reference_pattern` does "
        "not match",
    }

    @field_validator("reference_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError("it must contain {question}")
        return template

    @model_validator(mode="after")
    def _pattern_has_column(self) -> Self:
        if self.reference is None and self.reference_pattern is not None:
            raise ValueError("reference_pattern needs a reference column")
        return self

    def reads(self) -> Columns:
        paths = [self.question, *([] if self.reference is None else [self.reference])]
        return tuple(dict.fromkeys(path.split(".")[0] for path in paths))

    def writes(self) -> Columns:
        return ("prompt_id", "prompt", "reference")

    def replaces(self) -> Columns:
        # A field of a struct, or what a pattern finds, is not all that the column says.
        whole = {"prompt": self.question}
        if self.reference is not None and self.reference_pattern is None:
            whole["reference"] = self.reference
        return tuple(name for name, source in whole.items() if name == source)

    def apply(self, table: pa.Table) -> Change:
        prompts = self._prompts(at_path(table, self.question))
        columns = {"prompt": prompts}
        bad = {"no_question": prompts.is_null()}
        if self.reference is None:
            columns["reference"] = pa.nulls(table.num_rows, pa.string())
        else:
            columns["reference"] = self._references(at_path(table, self.reference))
            bad["no_reference"] = columns["reference"].is_null()
        columns["prompt_id"] = prompt_ids(prompts, columns["reference"])
        reasons = drop(bad)
        if self.on_bad_row == "fail" and reasons.null_count < len(reasons):
            row = int(np.flatnonzero(np.asarray(reasons.is_valid()))[0])
            self._fail(table, row, reasons[row].as_py())
        return Change(columns, reasons)

    def first_references(self, table: pa.Table) -> list[str]:
        """The references of the first rows of a dataset, as `apply` would write them.

        It looks at nothing else, and makes no array from Python's values, for which Arrow loads
        pandas: a check of a recipe should be quick.

        Raises:
            DataError: there is no such field, or a row has no reference and `on_bad_row` is
                `fail`; not where no row at all matches `reference_pattern`, which is wrong then.
        """
        if self.reference is None:
            return []
        found = self._texts(at_path(table, self.reference)).to_pylist()
        if self.reference_pattern is not None:
            pattern = re.compile(self.reference_pattern)
            found = [_last_match(pattern, text) for text in found]
        references = [(text or "").strip() for text in found]
        usable = self.reference_pattern is None or any(references)
        if self.on_bad_row == "fail" and usable and "" in references:
            self._fail(table, references.index(""), "no_reference")
        return [text for text in references if text]

    def _prompts(self, questions: pa.Array) -> pa.Array:
        if is_text(questions.type) or pa.types.is_null(questions.type):
            return self._from_text(questions.cast(pa.string()))
        if is_chat(questions.type):
            return self._from_chat(questions)
        raise DataError(
            f"column '{self.question}' is {questions.type}",
            "set `question` to a column of strings or of chat messages (role, content)",
        )

    def _from_text(self, questions: pa.Array) -> pa.Array:
        present_N = np.asarray(
            pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(questions), ""), False)
        )
        text = fill(self.template, {"{question}": questions.filter(pa.array(present_N))})
        return self._with_system(user_roles(len(text)), text, present_N.astype(np.int64))

    def _from_chat(self, chats: pa.Array) -> pa.Array:
        if self.template != "{question}":
            raise DataError(
                f"column '{self.question}' contains chat messages", "leave out `template`"
            )
        sizes_N = np.asarray(pc.fill_null(pc.list_value_length(chats), 0)).astype(np.int64)
        messages = pc.list_flatten(chats)
        roles = pc.struct_field(messages, "role").cast(pa.string())
        return self._with_system(
            roles, pc.struct_field(messages, "content").cast(pa.string()), sizes_N
        )

    def _with_system(self, roles: pa.Array, contents: pa.Array, sizes_N: Array) -> pa.Array:
        """Lists of messages from flat ones; the system message is prepended if there is none."""
        if self.system is None:
            return nest_messages(roles, contents, sizes_N)
        full_N = np.flatnonzero(sizes_N)
        starts = (np.cumsum(sizes_N) - sizes_N)[full_N]
        has_system = pc.fill_null(pc.equal(roles.take(pa.array(starts)), "system"), False)
        lacks_system = ~np.asarray(has_system)
        take = pa.array(np.insert(np.arange(len(roles)), starts[lacks_system], len(roles)))
        sizes_N = sizes_N.copy()
        sizes_N[full_N[lacks_system]] += 1
        return nest_messages(
            pa.concat_arrays([roles, pa.array(["system"])]).take(take),
            pa.concat_arrays([contents, pa.array([self.system], pa.string())]).take(take),
            sizes_N,
        )

    def _references(self, column: pa.Array) -> pa.Array:
        found = self._texts(column)
        if self.reference_pattern is not None:
            pattern = re.compile(self.reference_pattern)
            found = pa.array(
                [_last_match(pattern, text) for text in found.to_pylist()], pa.string()
            )
        stripped = pc.utf8_trim_whitespace(found)
        return pc.if_else(pc.equal(stripped, ""), pa.scalar(None, pa.string()), stripped)

    def _texts(self, column: pa.Array) -> pa.Array:
        """The column in which references are found, as strings."""
        if pa.types.is_nested(column.type):
            raise DataError(
                f"column '{self.reference}' is {column.type}",
                "set `reference` to a column of strings or numbers",
            )
        if pa.types.is_floating(column.type):  # NaN is pandas' null, and no answer
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
        # A cast, even to what it is, loads pyarrow.compute: a sixth of what `rejuice check` takes.
        return column if column.type == pa.string() else column.cast(pa.string())

    def _fail(self, table: pa.Table, row: int, reason: str) -> None:
        right = "fix the row, or set on_bad_row: drop_row to leave such rows out"
        paths = [path for path in (self.question, self.reference) if path is not None]
        values = {path: _excerpt(at_path(table, path)[row].as_py()) for path in paths}
        if reason == "no_question" or self.reference is None:
            rest = f" (its {self.reference}: {values[self.reference]})" if self.reference else ""
            raise DataError(f"a row has no text in column '{self.question}'{rest}", right)
        pattern = (
            "" if self.reference_pattern is None else f", {self.reference_pattern!r} not found"
        )
        raise DataError(
            f"no reference in column '{self.reference}': {values[self.reference]}{pattern}"
            f" (its {self.question}: {values[self.question]})",
            right,
        )


def _last_match(pattern: re.Pattern[str], text: str | None) -> str | None:
    matches = deque(pattern.finditer(text or ""), maxlen=1)
    return matches[0][min(1, pattern.groups)] if matches else None


def _excerpt(value: Any) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= 60 else text[:57] + "...") if value is not None else "null"
