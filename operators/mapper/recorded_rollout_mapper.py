"""Read responses that are already in the dataset, one row each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..chats import (
    Chats,
    answer_two_prompts,
    chats_of,
    is_chat,
    last_of,
    responses_in,
    texts_of_contents,
    without_prompts,
)
from ..columns import (
    ROW_CONTRACT,
    as_numbers,
    at_path,
    content_ids,
    field_at,
    find_path,
    is_list,
    is_text,
)
from ..errors import DataError, shown, suggest
from ..groups import Array, Groups
from ..json_text import list_in
from ..operator import Change, Columns, Operator, Scope, drop

_OWN = ("prompt_id", "response_id", "response")
_OF_TOKENS = ("response_token_ids", "response_logprobs")


def _lists(name: str, texts: pa.Array) -> pa.Array:
    """The lists that texts are; a text that is none is the only item of its own."""
    given = texts.to_pylist()
    lists = [list_in(text) if text else None for text in given]
    pairs = zip(given, lists, strict=True)
    try:
        found = pa.array([[text] if text and items is None else items for text, items in pairs])
    except pa.ArrowException as error:
        wrong = f"the lists in column '{name}' have items of several types ({error})"
        raise DataError(wrong, "leave out lists_as_text") from None
    # Without an item there is no type.
    is_empty = pa.types.is_null(found.type) or pa.types.is_null(found.type.value_type)
    return found.cast(pa.list_(pa.string())) if is_empty else found


def is_text_or_texts(kind: pa.DataType) -> bool:
    """Whether values are texts, or lists of them: responses as they are, also if they are JSON."""
    return is_text(kind) or (is_list(kind) and is_text_or_texts(kind.value_type))


_PAIR = r"""[\[('"]+(?:-[\d.e-]+|-inf|0\.0)['"]?, ['"]?(?i:true|false)[\])'"]*"""
_LIKELIHOODS = re.compile(f"{_PAIR}(?:, {_PAIR})*")
"""What lm-evaluation-harness and lighteval keep in place of responses where a task has choices: the
log-likelihood of each, and whether it is what the model would say."""


_TEXTS = re.compile(r"""\s*[\[(]+["'].*["'],?[\])]+\s*""", re.DOTALL)
"""A list of texts as JSON, or as Python or numpy writes it."""


class RecordedRolloutMapper(Operator):
    """Make one row per recorded response, however the responses of a prompt are stored.

    - Several columns (one per model): each cell is a response; its policy is the column's name.
    - One list column: each item is a response; of lists in lists, too.
    - One column of strings, with one row per response already: only the ids are new.

    Cells and items are strings, chats, or structs with the response in the field `text`. Of a chat,
    a list of messages with a role (also as JSON text, if it begins with another's), the response is
    the last message, if it is the assistant's and says something.

    Where every response to a prompt begins with it, be it a dialogue in one text (`Human: ...
    Assistant: ...`), in the words of a template, or the user's last message alone, that is cut, and
    the note `prompt_cut` counts them: not a message alone of fewer than three words and 20
    characters, such as `Hello!`, or with lines of code, not within a word or sentence, and not
    where there are token ids or log-probabilities. `prompt_alone` counts those that say no more.

    Responses of a prompt keep their order: by row, then by `columns`, then by position in the list.
    A null response counts as a rollout: it keeps its row, with a null `response`.

    The columns that contained the responses are removed, but not those of which only a field did.
    """

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    """Columns with the responses, or fields of theirs, such as `response.body.choices` of the
    results of an OpenAI batch."""
    text: str | None = None
    """Field of the structs that contains the response, such as `message.content`."""
    keep_fields: dict[str, str] = Field({})
    """Other fields of the structs to keep, each with its new column, such as
    `{model: policy, is_correct: is_correct}`. A field that becomes a reward component, such as
    `{score: reward_judge}`, is a number, also as text, or a boolean; it is missing as `no_value` if
    it is null, or a text such as `N/A`."""
    parallel: dict[str, str] = Field({})
    """Columns of lists beside the list of responses, one value for each, and the columns that the
    values become, such as `{finish_reasons: finish_reason, correctness: is_correct}`. They are
    removed; where the list is null, so are the values. A list of another length is refused; where
    it has rewards (`{ratings: reward_judge}`), all of the row's are missing, as `uneven_lists`: set
    `on_missing: drop_row` in `reward_sum_mapper` to leave such rows out."""
    lists_as_text: bool | None = None
    """Whether cells are texts of lists, in JSON or as Python writes them: `"['It is 3.', '4']"` are
    two responses; also those of `parallel`, such as `"[0.5, 1]"`. Null: they are texts, and a
    column whose first rows are all lists as Python writes them is refused."""
    policy: str | None = None
    """Name of the policy of all these responses. Null: the policy of `keep_fields`, else the
    column's name if there are several columns."""

    # Ids contain the index within the group, so the group must be complete.
    scope: ClassVar[Scope] = Scope.GROUP
    gil_bound: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "no_responses": "the list of responses is null or empty",
        "other_prompt": "one of the columns answers the prompt, and another one another prompt",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("columns names a column twice")
        if self.keep_fields and self.text is None:
            raise ValueError("keep_fields needs text, the field that contains the response")
        if self.parallel and len(self.columns) > 1:
            raise ValueError("parallel is for one column of lists")
        targets = self._targets()
        for target in targets:
            if target in _OWN or targets.count(target) > 1:
                raise ValueError(f"keep_fields or parallel writes '{target}' a second time")
        if self.policy is not None and "policy" in targets:
            raise ValueError("policy is given by keep_fields or parallel already")
        return self

    def _targets(self) -> list[str]:
        return [*self.keep_fields.values(), *self.parallel.values()]

    def reads(self) -> Columns:
        return ("prompt_id", *super().reads())

    def optional_reads(self) -> Mapping[str, str]:
        return {name: name for name in ("prompt", *_OF_TOKENS)}

    def paths(self) -> Columns:
        return (*self.columns, *self.parallel)

    def writes(self) -> Columns:
        named = self.policy is not None or len(self.columns) > 1
        targets = self._targets()
        policy = ["policy"] if named and "policy" not in targets else []
        missing = [f"{name}_missing" for name in self._rewards()]
        return ("response_id", "response", *policy, *targets, *missing)

    def _rewards(self) -> list[str]:
        """Kept fields that are reward components, each of which needs a `_missing` column."""
        targets = self._targets()
        named = [t for t in targets if t.startswith("reward_") and not t.endswith("_missing")]
        return [name for name in named if f"{name}_missing" not in targets]

    def removes(self) -> Columns:
        kept = self.writes()
        return tuple(name for name in self.paths() if name not in kept and "." not in name)

    def apply(self, table: pa.Table) -> Change:
        prompts = table["prompt"] if "prompt" in table.column_names else pa.nulls(table.num_rows)
        mixed_N = answer_two_prompts(prompts, [at_path(table, name) for name in self.columns])
        found = self._found(table)
        found = found.filter(pa.array(~mixed_N).take(found["row"]))
        parents = np.asarray(found["row"]).astype(np.int64)
        ids = table["prompt_id"].take(pa.array(parents))
        groups, notes = Groups.of_column(ids), Counter[str]()
        written = {name: found[name].combine_chunks() for name in found.column_names[1:]}
        has_tokens = any(name in written or name in table.column_names for name in _OF_TOKENS)
        if is_chat(prompts.type) and not has_tokens:
            asked = prompts.take(pa.array(parents[groups.starts_G]))
            written["response"], notes = without_prompts(written["response"], asked, groups)
        texts, places = written["response"].to_pylist(), map(str, groups.position())
        written["response_id"] = content_ids(zip(ids.to_pylist(), places, texts, strict=True))
        childless_N = np.bincount(parents, minlength=table.num_rows) == 0
        reasons = drop({"other_prompt": mixed_N, "no_responses": childless_N})
        return Change(written, reasons, parents, without=self.removes(), notes=notes)

    def lines_about(self, first_rows: pa.Table) -> Iterator[str]:
        """What columns have that may be no responses.

        Raises:
            DataError: a column has nothing but log-likelihoods, or lists as Python writes them.
        """
        for name in self.columns:
            column = find_path(first_rows, name)
            cells = [] if column is None else column.to_pylist()
            cells = [cell for cell in cells if cell not in (None, "", [], "[]")]
            found = f"column '{name}' has log-likelihoods of choices"
            n = sum(_LIKELIHOODS.fullmatch(str(cell)) is not None for cell in cells)
            if cells and n == len(cells):
                right = "name a column of texts; such a task samples no responses"
                raise DataError(f"{found}: {shown(str(cells[0]))}", right)
            if n:
                yield f"{found} in {n:,} rows of the first"
            lists = [cell for cell in cells if isinstance(cell, str) and _TEXTS.fullmatch(cell)]
            if 2 * len(lists) < len(cells) or not lists or self.lists_as_text is not None:
                continue
            found = f"column '{name}' has lists as text in {len(lists):,} rows of the first"
            found, right = f"{found}: {shown(lists[0])}", "set lists_as_text: true"
            if len(lists) == len(cells) and all(each.lstrip()[:2] == "['" for each in lists):
                raise DataError(found, f"{right} if their items are responses, or false")
            yield f"{found}; {right} if their items are responses"

    def _found(self, table: pa.Table) -> pa.Table:
        """One row per response, in order: `row`, the input row, and the columns of `writes`."""
        parts = [self._of_column(name, table) for name in self.columns]
        try:
            found = pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise DataError(
                f"columns {', '.join(self.columns)} differ in type: {error}",
                "leave the field out of keep_fields",
            ) from None
        # Stable: within a row, by column and then by position in the list.
        return found.take(pa.array(np.argsort(np.asarray(found["row"]), kind="stable")))

    def _of_column(self, name: str, table: pa.Table) -> pa.Table:
        cells = at_path(table, name)
        if is_text(cells.type) and self.lists_as_text:
            cells = _lists(name, cells)
        rows = pa.array(np.arange(len(cells)))
        chats = self._chats(cells)
        while chats is None and is_list(cells.type):
            rows = rows.take(pc.list_parent_indices(cells))
            cells = pc.list_flatten(cells)
            chats = self._chats(cells)
        if chats is not None:
            given = [last_of(chat, "assistant") for chat in chats.chats]
            columns = {"row": rows, "response": pa.array(given, pa.string())}
            cells = pa.nulls(len(cells))
        else:
            columns = {"row": rows, "response": self._text(name, cells)}
        uneven = dict[str, Array]()
        for field, target in self.keep_fields.items():
            columns[target] = self._typed(name, field, target, self._field(name, cells, field))
        for other, target in self.parallel.items():
            values, uneven[target] = self._beside(other, name, table, rows)
            columns[target] = self._typed(other, other, target, values)
        for target in self._rewards():
            columns[target] = as_numbers(columns[target], f"column '{target}'")
            absent = {"uneven_lists": uneven[target]} if target in uneven else {}
            columns[f"{target}_missing"] = drop({**absent, "no_value": columns[target].is_null()})
        if "policy" in self.writes() and "policy" not in columns:
            columns["policy"] = pa.repeat(pa.scalar(self.policy or name), len(cells))
        return pa.table(columns)

    def _chats(self, cells: pa.Array) -> Chats | None:
        """The chats of cells, if each is one: then `text` can only be their content. A DataError
        where all messages are the assistant's: they may be responses as well."""
        if self.keep_fields or self.text not in (None, "content", "value"):
            return None
        chats = None if is_text_or_texts(cells.type) else chats_of(cells)
        if chats is None or any(m.role != "assistant" for chat in chats.chats for m in chat):
            return chats
        if self.text is not None:
            return None
        if any(len(chat) > 1 for chat in chats.chats):
            found = "a list of messages that are all the assistant's is one response or several"
            raise DataError(found, "set text: content if each message is a response")
        return chats

    def _beside(
        self, other: str, name: str, table: pa.Table, rows: pa.Array
    ) -> tuple[pa.Array, Array]:
        """The items of the lists in another column, one for each response, and where they are null
        as a list has more or fewer; a DataError if they are no rewards."""
        lists = at_path(table, other)
        if is_text(lists.type) and self.lists_as_text:
            lists = _lists(other, lists)
        if pa.types.is_null(lists.type):
            return pa.nulls(len(rows)), np.zeros(len(rows), bool)
        if not is_list(lists.type):
            found = f"column '{other}' is {lists.type}, and parallel is for lists beside '{name}'"
            wanted = "set lists_as_text: true if its texts are lists"
            raise DataError(found, wanted if is_text(lists.type) else "name a column of lists")
        wanted_N = np.bincount(np.asarray(rows, np.int64), minlength=table.num_rows)
        sizes_N = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
        absent_N = np.asarray(lists.is_null())
        uneven_N = (sizes_N != wanted_N) & ~absent_N
        if uneven_N.any() and self.parallel[other] not in self._rewards():
            row = int(np.flatnonzero(uneven_N)[0])
            excerpt = repr(lists[row].as_py())[:60]
            found = f"column '{other}' has {sizes_N[row]} items for {wanted_N[row]} responses"
            right = "give one for each response, or null"
            raise DataError(f"{found} in column '{name}': {excerpt}", right)
        # The first item of each row; of a null list there is none.
        starts_N = np.cumsum(sizes_N) - sizes_N
        parents = np.asarray(rows, np.int64)
        within = np.arange(len(parents)) - (np.cumsum(wanted_N) - wanted_N)[parents]
        taken = pa.array(starts_N[parents] + within, mask=(absent_N | uneven_N)[parents])
        return lists.flatten().take(taken), uneven_N[parents]

    def _text(self, name: str, cells: pa.Array) -> pa.Array:
        if pa.types.is_struct(cells.type):
            if self.text is None:
                fields = ", ".join(field.name for field in cells.type)
                raise DataError(
                    f"column '{name}' contains structs of {fields}",
                    "set `text` to the field that contains the response",
                )
            cells = self._field(name, cells, self.text)
        elif self.text is not None and not pa.types.is_null(cells.type):
            raise DataError(
                f"column '{name}' has no fields, it is {cells.type}", "leave out `text`"
            )
        texts = texts_of_contents(cells)
        if texts is None:
            found = f"responses in column '{name}' are {cells.type}"
            raise DataError(found, "name columns or a field of strings")
        return responses_in(texts) if is_text(cells.type) else texts

    def _field(self, name: str, cells: pa.Array, field: str) -> pa.Array:
        if pa.types.is_null(cells.type):
            return cells
        found = field_at(cells, field)
        if found is None:
            known = [each.name for each in cells.type]
            right = suggest(field, known) or f"its fields are: {', '.join(known)}"
            raise DataError(f"column '{name}' has no field '{field}'", right)
        return found

    def _typed(self, name: str, field: str, target: str, values: pa.Array) -> pa.Array:
        wanted = ROW_CONTRACT.get(target, values.type)
        try:
            return values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"field '{field}' of column '{name}' is {values.type}",
                f"'{target}' is {wanted}: give the column another name",
            ) from None
