"""Make prompts from your columns: chat messages, the reference and the prompt's id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import field_validator, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import DIALOGUES, Chats, chats_of, fill, prompt_ids, prompts_of
from ..columns import (
    Choices,
    as_text,
    at_path,
    has_box,
    is_list,
    is_text,
    last_box,
    listed_answers,
    with_items,
)
from ..errors import DataError, shown
from ..json_text import LATEX_OF_N
from ..operator import Change, Columns, Operator, drop

_BRACES = re.compile(r"(\\[a-zA-Z]{2,}\{[^{}]*\}|(?<!\{)\{\{[^{}]*\}\}(?!\})|\{[^{}]*\})")
"""A command of LaTeX such as `\\boxed{x}`, doubled braces, and those that may name a column."""
_NAME = re.compile(r"[^\W\d][^{}\\,:;=<>|^+*\"]*")
_Content: TypeAlias = tuple[str, str | None]  # the role of a message, and what it says
_OptionsOfRows: TypeAlias = Sequence[Choices | str]  # of each row, or why it has none
_ABSENT = ("n/a", "#n/a", "<na>")
_ESCAPES = {"\a": "a", "\b": "b", "\v": "v", "\f": "f", "\r": "r", "\x1b": "e"}


class PromptTemplateMapper(Operator):
    r"""Write `prompt_id`, `prompt` and `reference` from a question and an answer column.

    Rows with the same messages, the same reference and the same values in the columns of
    `identity` get the same `prompt_id`. So a file with one row per response becomes groups if its
    rows are sorted by question.

    References are stripped of white space and otherwise unchanged: the verifier reads `1,234`.
    A text `n/a` is no reference, unless `reference_form` is `text`.
    Several right answers are a list, or a JSON list as text; they become a JSON list as text,
    which the verifier reads.

    Example:
        >>> train = pa.table({"question": ["1 + 1?"], "answer": ["One and one.\n#### 2"]})
        >>> change = PromptTemplateMapper(reference_pattern="#### (.*)").apply(train)
        >>> change.columns["prompt"].to_pylist(), change.columns["reference"].to_pylist()
        ([[{'role': 'user', 'content': '1 + 1?'}]], ['2'])
    """

    question: str = "question"
    """Column with the question: strings, or chats. A chat is a list of messages (role, content),
    also with content parts, with ShareGPT's keys (from, value), or as JSON text; or it is one text,
    as in hh-rlhf (`Human: ... Assistant: ...`) or with the marks of ChatML, Llama 3 or Gemma. Other
    names of roles, such as `gpt`, `observation` or `developer`, become system, user, assistant and
    tool.

    Or a text over columns, such as "{instruction}\\n{input}": an empty cell gives nothing, a list
    is written as `[3, 4]`, and `{choices}` are those of `choices`, in lines `A. ...`. `{{name}}` is
    the text `{name}`; other braces, such as `{1, 2}` and `\\boxed{x}`, are text. The column of
    `reference` is refused."""
    final_message: Literal["auto", "response", "fail"] = "auto"
    """What a final message of the assistant is: `response` leaves it out of the prompt, and
    `recorded_rollout_mapper` reads it from the same column; `fail` ends the run. `auto` is `fail`
    in a recipe that samples, else `response`."""
    other_fields: Literal["fail", "leave_out"] = "fail"
    """What to do with what a policy would not see: fields of messages such as `tool_calls`, and
    content parts that are not text, such as images."""
    identity: tuple[str, ...] = ()
    """Columns that distinguish prompts of the same text, such as an image, or the documents that a
    tool searches."""
    reference: str | None = "answer"
    """Column with the reference answer: strings, numbers, or lists of them, each of which is right;
    `reward_model.ground_truth` is a field of a column of structs, as in verl's datasets. Null: the
    prompts have none, and `reference` is null, even if the dataset has a column of that name."""
    reference_form: Literal["auto", "text", "boxed"] = "auto"
    r"""`boxed`: the reference is the content of the last `\boxed{}` of a worked solution, and there
    is none without one. `text`: it is all of the text. `auto`: what is in the last box, where a
    text has one, else all of it."""
    choices: tuple[str, ...] = ()
    """Column with the options of multiple choice, or a column for each. The number, label or text
    of one in `reference`, or a list of one, becomes its letter and text, which are both right; so
    is its label in the dataset (or its number, with `first_choice: 1`) where `question` has no
    `{choices}`. An order is drawn if `reference` is one of the columns, or a list of 1 for the
    right one and 0, as it is first. A label in front of each, as in `B) 7`, is left out. Only the
    last options may be empty."""
    first_choice: Literal[0, 1] = 0
    """The number of the first of the choices, where references are numbers."""
    reference_pattern: str | None = None
    """Regular expression that finds the reference in that column, such as `#### (.*)`. The last
    match counts; its first group is the reference, if it has one."""
    system: str | None = None
    """System message to prepend, or a text over columns, such as "{system}", as in `question`: none
    where the cells are empty. Chats that already begin with a system message keep theirs."""
    template: str = "{question}"
    """The user's message. `{question}` is filled in; all other braces are text."""
    on_bad_row: Literal["fail", "drop_row"] = "fail"
    """What to do with a row without a question or a reference."""

    gil_bound: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "no_question": "the question is null or empty",
        "no_reference": "the reference is null, empty or not finite, `reference_pattern` does not "
        "match, there is no box with balanced braces, or it is none of the `choices`",
    }

    @field_validator("reference_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        for character, letter in _ESCAPES.items():
            if character in (pattern or ""):
                found = f"it has a control character, as YAML reads \\{letter} in double quotes"
                raise ValueError(f"{found}; put the pattern in single quotes")
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @field_validator("question")
    @classmethod
    def _has_line_breaks(cls, question: str) -> str:
        commands = set(re.findall(r"\\(n[a-zA-Z]*)", question))
        if "\n" not in question and commands - LATEX_OF_N:
            raise ValueError(r"\n is not a line break in single quotes; put it in double quotes")
        return question

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError("it must contain {question}")
        return template

    @model_validator(mode="after")
    def _reference_is_apart(self) -> Self:
        if self.reference is None and self.reference_pattern is not None:
            raise ValueError("reference_pattern needs a reference column")
        # Of a dialogue, a pattern may find it in the last message, which prompts do not show.
        whole = () if self.reference_pattern else (self.question,)
        if self.reference in (*whole, *self._named_in(f"{self.question} {self.system}")):
            found = f"prompts would show column '{self.reference}', which is the reference"
            raise ValueError(f"{found}; leave it out, double its braces or set another `reference`")
        return self

    def questions(self) -> Columns:
        """The columns of which questions are made, as paths."""
        if not columns_in(self.question):
            return (self.question,)
        return self._named_in(self.question) or self.choices

    def _named_in(self, text: str | None) -> Columns:
        """The columns that a text over columns names, without the options."""
        names = columns_in(text or "")
        return tuple(name for name in names if name != "choices" or not self.choices)

    def as_question(self, template: str) -> str:
        """A template as the field `question` has it in YAML, as a text over columns."""
        question = self.question if "{" in self.question else f"{{{self.question}}}"
        return json.dumps(template.replace("{question}", question), ensure_ascii=False)

    def paths(self) -> Columns:
        reference = [] if self.reference is None else [self.reference]
        of_system = self._named_in(self.system)
        return (*self.questions(), *of_system, *reference, *self.choices, *self.identity)

    def writes(self) -> Columns:
        return ("prompt_id", "prompt", "reference")

    def replaces(self) -> Columns:
        # A field of a struct, or what a pattern finds, is not all that the column says.
        whole = {"prompt": self.questions()}
        if self.reference is not None and self.reference_pattern is None:
            whole["reference"] = (self.reference,)
        return tuple(name for name, sources in whole.items() if name in sources)

    def apply(self, table: pa.Table) -> Change:
        options = self.options(table)
        prompts, dialogues = self._prompts(table, options)
        found = [text or None for text in self._references(table, options)]
        references = pa.array(found, pa.string())
        bad = {"no_question": prompts.is_null()}
        if self.reference is not None:
            bad["no_reference"] = references.is_null()
        others = [at_path(table, path).to_pylist() for path in self.identity]
        identity = [list(row) for row in zip(*others, strict=True)] if others else None
        ids = prompt_ids(prompts, references, identity)
        columns = {"prompt": prompts, "reference": references, "prompt_id": ids}
        reasons = drop(bad)
        if self.on_bad_row == "fail" and reasons.null_count < len(reasons):
            row = int(np.flatnonzero(np.asarray(reasons.is_valid()))[0])
            self._fail(table, row, reasons[row].as_py())
        return Change(columns, reasons, notes={DIALOGUES: dialogues} if dialogues else {})

    def first_references(self, table: pa.Table) -> list[str]:
        """The references of the first rows of a dataset, as `apply` would write them.

        It makes no array of Python's values, for which Arrow loads pandas: a check should be quick.

        Raises:
            DataError: a row has no reference and `on_bad_row` is `fail`; not where no row at all
                matches `reference_pattern`, which is wrong then.
        """
        if self.reference is None:
            return []
        references = self._references(table, self.options(table))
        usable = self.reference_pattern is None or any(references)
        if self.on_bad_row == "fail" and usable and "" in references:
            self._fail(table, references.index(""), "no_reference")
        return [text for text in references if text]

    def options(self, table: pa.Table) -> list[Choices | str]:
        """Those of each row, or what was found instead; empty without `choices`."""
        if not self.choices:
            return []
        columns = [at_path(table, path).to_pylist() for path in self.choices]
        cells = columns[0] if len(columns) == 1 else map(list, zip(*columns, strict=True))
        read = partial(
            Choices.of,
            first=self.first_choice,
            is_first=self.reference in self.choices,
            lists="choices" in columns_in(self.question),
        )
        return list(map(read, cells, self._found(table)))

    def _references(self, table: pa.Table, options: _OptionsOfRows) -> list[str]:
        """Empty where a row has none."""
        if not self.choices:
            return self._found(table)
        return ["" if isinstance(each, str) else as_text(each.right) for each in options]

    def _prompts(self, table: pa.Table, options: _OptionsOfRows) -> tuple[pa.Array, int]:
        """Prompts, and how many questions are dialogues: none where a template surrounds them."""
        systems: list[str | None] = [self.system] * table.num_rows
        if columns_in(self.system or ""):
            systems = self._filled(self.system or "", table, options).to_pylist()
        asked, dialogues = self._asked(table, options)
        for chat, system in zip(asked, systems, strict=True):
            if system is not None and chat and chat[0][0] != "system":
                chat.insert(0, ("system", system))
        return prompts_of(asked), dialogues

    def _asked(self, table: pa.Table, options: _OptionsOfRows) -> tuple[list[list[_Content]], int]:
        """As `_prompts`, without `system`: roles and contents, none where nothing is asked."""
        if columns_in(self.question):
            texts = self._filled(self.question, table, options)
        else:
            texts = at_path(table, self.question)
            chats = chats_of(texts)
            if chats is not None and not (chats.dialogues and self.template != "{question}"):
                return self._of_chats(chats, texts), chats.dialogues
            if not (is_text(texts.type) or pa.types.is_null(texts.type)):
                right = "set `question` to a column of strings or of chat messages (role, content)"
                raise DataError(f"column '{self.question}' is {texts.type}", right)
        texts = texts.cast(pa.string())
        present_N = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)
        filled = fill(self.template, {"{question}": pc.if_else(present_N, texts, None)})
        return [[] if text is None else [("user", text)] for text in filled.to_pylist()], 0

    def _of_chats(self, chats: Chats, questions: pa.Array) -> list[list[_Content]]:
        of = f"column '{self.question}'"

        def refuse(found: str, row: int, right: str) -> NoReturn:
            raise DataError(f"{found}: {shown(questions[row].as_py())}", right)

        if self.template != "{question}":
            raise DataError(f"{of} contains chat messages", "leave out `template`")
        if chats.unseen and self.other_fields == "fail":
            name, row = next(iter(chats.unseen.items()))
            found = f"messages in {of} have a field '{name}', which the policy would not see"
            refuse(found, row, "leave such rows out, or set other_fields: leave_out")
        asked = list[list[_Content]]()
        for row, chat in enumerate(chats.chats):
            is_answered = bool(chat) and chat[-1].role == "assistant"
            if is_answered and self.final_message == "fail":
                found = f"a chat in {of} ends with the assistant's message, which the policy would"
                right = "set final_message: response to leave it out of the prompt"
                refuse(f"{found} not continue", row, right)
            kept = chat[:-1] if is_answered else chat
            messages = [(each.role, each.content) for each in kept if each.role is not None]
            if len(messages) < len(kept):
                right = "give each message a role and its content"
                refuse(f"a message in {of} has no role", row, right)
            says = any(role != "system" and (content or "").strip() for role, content in messages)
            asked.append(messages if says else [])
        return asked

    def _filled(self, text: str, table: pa.Table, options: _OptionsOfRows) -> pa.Array:
        """A text over columns, string[N]; null where their cells are empty, whatever the options
        are."""
        cells = {f"{{{name}}}": self._cells(table, name, options) for name in columns_in(text)}
        pieces = [
            cells.get(part, part[1:-1] if part.startswith("{{") else part)
            for part in _BRACES.split(text)
        ]
        texts = pc.utf8_trim_whitespace(pc.binary_join_element_wise(*pieces, ""))
        asked = [cells[f"{{{name}}}"] for name in self._named_in(text)]
        given = pc.binary_join_element_wise(*(asked or cells.values()), "")
        return pc.if_else(pc.equal(pc.utf8_trim_whitespace(given), ""), None, texts)

    def _cells(self, table: pa.Table, name: str, options: _OptionsOfRows) -> pa.Array:
        if self.choices and name == "choices":
            lines = [each.shown() if isinstance(each, Choices) else "" for each in options]
            return pa.array(lines, pa.string())
        column = at_path(table, name)
        if is_list(column.type) and "struct" not in str(column.type):
            write = partial(json.dumps, ensure_ascii=False, default=str)
            texts = [write(each) if each else "" for each in column.to_pylist()]
            return pa.array(texts, pa.string())
        right = "name columns of strings, numbers or lists of them; a chat is all of `question`"
        return pc.fill_null(_texts(column, name, right), "")

    def _found(self, table: pa.Table) -> list[Any]:
        """The references, empty where a row has none; numbers and lists that name options as is."""
        if self.reference is None:
            return [""] * table.num_rows
        column = at_path(table, self.reference)
        if self.choices and (pa.types.is_integer(column.type) or is_list(column.type)):
            return list(column.to_pylist())
        right = "set `reference` to a column of strings, numbers or lists of them"
        if is_list(column.type):  # Several right answers, as in a text that is such a list.
            lists = with_items(column, _texts(column.flatten(), self.reference, right)).to_pylist()
        else:
            texts = _texts(column, self.reference, right).to_pylist()
            is_whole = self.reference_pattern or self.reference_form == "text"
            lists = [(not is_whole and listed_answers(text or "")) or [text] for text in texts]
        found = [as_text(list(filter(None, map(self._one, each or ())))) for each in lists]
        if self.choices or self.reference_form == "text":
            return found
        return ["" if text.lower() in _ABSENT else text for text in found]  # `none` may be meant.

    def _one(self, text: str | None) -> str:
        """The reference in a text, empty where it has none."""
        if self.reference_pattern is not None:
            matches = list(re.finditer(self.reference_pattern, text or ""))
            text = matches[-1][min(1, matches[-1].re.groups)] if matches else None
        elif self.reference_form != "text" and text is not None and has_box(text):
            text = last_box(text)
        elif self.reference_form == "boxed":
            text = None
        return (text or "").strip()

    def _fail(self, table: pa.Table, row: int, reason: str) -> NoReturn:
        right = "fix the row, or set on_bad_row: drop_row to leave such rows out"
        blamed = self.questions() if reason == "no_question" else (self.reference or "",)
        paths = dict.fromkeys((*blamed, *self.questions(), self.reference, *self.choices))
        values = {path: shown(at_path(table, path)[row].as_py()) for path in paths if path}
        its = (f"its {path}: {value}" for path, value in values.items() if path not in blamed)
        rest = f" ({found})" if (found := ", ".join(its)) else ""
        if reason == "no_question":
            named = "', '".join(blamed)
            raise DataError(f"a row has no text in column '{named}'{rest}", right)
        why = f", {self.reference_pattern!r} not found" if self.reference_pattern else ""
        for options in self.options(table.slice(row, 1)):
            ways = f"text, letter, number (first_choice: {self.first_choice}) or one label 1"
            none = f"which names no option by {ways}, or several where one may be right"
            why += f", {none if isinstance(options, Choices) else options}"
        own = values[blamed[0]]
        if not self.choices and own.strip("' ").lower() in _ABSENT:
            right += ", or reference_form: text where it is the answer"
        raise DataError(f"no reference in column '{blamed[0]}': {own}{why}{rest}", right)


def columns_in(text: str) -> list[str]:
    """The columns that a text over columns names."""
    return [each[1:-1] for each in _BRACES.findall(text) if _NAME.fullmatch(each[1:-1])]


def _texts(column: pa.Array, name: str, right: str) -> pa.Array:
    """A column of texts or numbers as strings; `right` says what else to name."""
    if pa.types.is_nested(column.type):
        raise DataError(f"column '{name}' is {column.type}", right)
    if pa.types.is_floating(column.type):  # NaN is pandas' null, and no answer
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    # A cast, even to what it is, loads pyarrow.compute: a sixth of what `rejuice check` takes.
    try:
        return column if column.type == pa.string() else column.cast(pa.string())
    except pa.ArrowException:  # Bytes that are no text, or a date without a calendar.
        found = f"column '{name}' is {column.type}, and not text"
        raise DataError(found, right) from None
