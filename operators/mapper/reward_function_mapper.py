"""Reward responses by a function of the user's, as verl or TRL calls it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import RIGHT, component, component_columns, find_path, is_text
from ..errors import DataError, FirstFailures, shortened, suggest
from ..functions.pool import FunctionSetup, shared_pool, signature_of
from ..functions.process import RowOutcome
from ..functions.target import FunctionSignature, FunctionStyle, FunctionTarget
from ..logs import logger
from ..operator import Columns, Mapper

_log = logger(__name__)
_failures = FirstFailures(_log.warning)
_NAME = re.compile(r"[A-Za-z_]\w*")
_TRUTH = "reward_model.ground_truth"
# What TRL's trainer passes beside the columns of the dataset, and which no column is.
_OF_TRL = ("prompts", "completions", "completion_ids")
_OF_TRAINER = frozenset({"trainer_state", "log_extra", "log_metric", "environments"})


class RewardFunctionMapper(Mapper):
    """Write a reward component by a Python function of yours, unchanged.

    - verl's: `compute_score(data_source, solution_str, ground_truth, extra_info)`. `ground_truth`
      is `reward_model.ground_truth` of the dataset where it has that, else `reference`;
      `data_source` and `extra_info` are columns, else an empty text and an empty dict. Of these, a
      function gets the ones that it takes.
    - TRL's: `f(prompts, completions, **columns)`, with lists of one, as each response is graded by
      itself: `completions` are texts where the column `prompt` has texts, else lists of one
      message, and `completion_ids` are the token ids. It gets each column that it has a parameter
      for, or looks up in its `**kwargs` by name. What only TRL's trainer knows, such as
      `trainer_state`, is None.
    - Any function of columns: `def f(response, reference)`. A parameter with a default is a column
      that may be missing.

    Functions may be async. They run in processes of their own, one for each core; what they print
    is not shown. Files beside that of the function can be imported.

    A function returns a number, a bool or None; or a dict with the number `score`, as for verl,
    of which `keys` are components of their own, `NAME_KEY`. The function of TRL returns a list of
    one. What is no number is never 0, but missing, and the first message of each kind is logged:

    - `no_value`: None, or no such key in the dict. It is no failure: TRL's functions return it for
      rows that they are not meant for.
    - `not_a_number`: NaN, an infinite number, or something else than a number.
    - `function_failed`, `timeout`: an exception, the end of the process, or more than `timeout_s`.
    - `no_response`, `no_reference`: the response, or verl's `ground_truth`, is null.

    With `correct_above`, it writes `verdict`, too, so that pass rates, gates and other steps that
    need right and wrong work: `correct` or `wrong_answer`, null where the reward is missing.
    """

    function: str
    """`FILE.py:FUNCTION`, where the file is relative to the recipe's folder or, where it has none
    of that name, to the working directory; or `package.module:FUNCTION` of an installed package."""
    style: Literal["auto", "verl", "trl", "columns"] = "auto"
    """How the function is called. `auto`: as by verl where it has a parameter `solution_str`, as by
    TRL where it has a parameter `completions`, else with columns."""
    component: str = "function"
    """The component: the reward is `reward_NAME`."""
    keys: tuple[str, ...] = ()
    """Keys of the dict that the function returns, beside `score`, that are components, too."""
    reward_kwargs: dict[str, Any] = Field({})
    """Further arguments, which take the place of columns, such as `{data_source: openai/gsm8k}`."""
    correct_above: float | None = Field(None, allow_inf_nan=False)
    """A response is right if its reward is above this number, such as 0.5 for rewards of 0 and 1,
    and `verdict` says so. Null: no `verdict` is written."""
    timeout_s: float = Field(30.0, gt=0)
    """Seconds that the function may take for a row; a process that takes longer is killed. An
    import that it makes at its first call is a part of them."""

    # What the file is when the operator is made: it may be edited while a run goes on.
    _signature: FunctionSignature = PrivateAttr(FunctionSignature((), (), takes_any=False))
    _digest: str = PrivateAttr()

    retryable: ClassVar[frozenset[str] | None] = frozenset({"timeout", "function_failed"})
    missing: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null",
        "no_reference": "a function of verl's takes `ground_truth`, which is null",
        "no_value": "the function returned None, or a dict without the key",
        "not_a_number": "it returned NaN, an infinite number, or something else than a number",
        "function_failed": "it raised an exception, or its process ended",
        "timeout": "it took longer than `timeout_s`",
    }
    """Why the reward may be missing."""
    not_failures: ClassVar[frozenset[str]] = frozenset({"no_value", "no_reference"})

    @field_validator("function")
    @classmethod
    def _check_function(cls, value: str) -> str:
        return str(FunctionTarget.parse(value))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in (self.component, *self.keys):
            if not _NAME.fullmatch(name):
                raise ValueError(f"'{name}' cannot be a part of a column's name, such as accuracy")
        names = [self.component, *self._further()]
        if len(set(names)) < len(names) or "missing" in self.keys or "score" in self.keys:
            raise ValueError("keys: each once, and neither `score` nor `missing`")
        target = FunctionTarget.parse(self.function)
        self._signature, self._digest = signature_of(target), target.digest()
        signature = self._signature
        if not signature.gives:
            found = f"function: {target.name} ({signature.place}) returns nothing"
            raise ValueError(f"{found}; end it with `return` and a number or a dict with 'score'")
        takes = {*signature.required, *signature.optional}
        for name in self.reward_kwargs:
            if not signature.takes(name):
                has = ", ".join(sorted(takes)) or "none"
                raise ValueError(
                    f"reward_kwargs: the function has no parameter {name}; it has: {has}"
                )
        return self

    def preflight(self) -> None:
        shared_pool(self._setup()).check()

    def reads(self) -> Columns:
        return self._columns()[0]

    def optional_reads(self) -> Mapping[str, str]:
        return {name: name for name in self._columns()[1]}

    def writes(self) -> Columns:
        names = (self.component, *self._further())
        columns = tuple(column for name in names for column in component_columns(name))
        return columns if self.correct_above is None else (*columns, "verdict")

    def replaces(self) -> Columns:
        return ()

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = self.model_dump(mode="json", exclude={"function"})
        return {**fields, "function": self._target().name, "code": self._digest}

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        rows, missing = self._arguments(table)
        at = [number for number, reason in enumerate(missing) if reason is None]
        outcomes = shared_pool(self._setup()).run([rows[number] for number in at]) if at else []
        names = (self.component, *self._further())
        graded: list[RowOutcome] = [RowOutcome([(None, reason)] * len(names)) for reason in missing]
        for number, outcome in zip(at, outcomes, strict=True):
            graded[number] = outcome
            self._report(outcome)
        self._report_none(outcomes)
        columns = dict[str, pa.Array]()
        for which, name in enumerate(names):
            values = [each.values[which] for each in graded]
            numbers_N = np.array([0.0 if v is None else v for v, _ in values], np.float64)
            reasons = pa.array([reason for _, reason in values], pa.string())
            columns |= component(name, numbers_N, reasons)
        if self.correct_above is not None:
            reward = columns[component_columns(self.component)[0]]
            right = pc.greater(reward, self.correct_above)
            columns["verdict"] = pc.if_else(right, RIGHT, "wrong_answer")
        return columns

    def _report(self, outcome: RowOutcome) -> None:
        reasons = (reason for _, reason in outcome.values if reason not in (None, "no_value"))
        if (reason := next(reasons, None)) is not None:
            _failures.report(
                f"{self.function} {reason}",
                f"{self.function} gave no reward to a response ({reason}): {outcome.error}",
            )

    def _report_none(self, outcomes: Sequence[RowOutcome]) -> None:
        """Say of several responses that all have no reward, or none of a key: a likely mistake.

        It is none that a function of TRL's gives no reward: these may be rows of another task.
        """
        all_none = {outcome.values[0][1] for outcome in outcomes} == {"no_value"}
        if len(outcomes) < 2 or (all_none and self._style() == "trl"):
            return
        place = self._signature.place
        named = f"{self.function} ({place})" if place else self.function
        if all_none:  # A line for each key would say the same.
            found = f"{named} returned None for all {len(outcomes):,} responses that it was given"
            _failures.report(f"{self.function} score no_value", found)
            return
        for which, key in enumerate(self.keys, 1):
            if {outcome.values[which][1] for outcome in outcomes} == {"no_value"}:
                found = f"{named} gave none of {len(outcomes):,} responses the key '{key}'"
                _failures.report(f"{self.function} {key} no_value", found + _hint(key, outcomes))

    def _further(self) -> list[str]:
        return [f"{self.component}_{key}" for key in self.keys]

    # --- the function -----------------------------------------------------------------

    def _target(self) -> FunctionTarget:
        return FunctionTarget.parse(self.function)

    def _style(self) -> FunctionStyle:
        return self._signature.style() if self.style == "auto" else self.style

    def _setup(self) -> FunctionSetup:
        listed = self._style() == "trl"
        return FunctionSetup(
            self._target(), self._digest, self.reward_kwargs, self.keys, listed, self.timeout_s
        )

    def _columns(self) -> tuple[Columns, Columns]:
        """The columns that it needs, and those that it takes where they are."""
        signature, style = self._signature, self._style()
        needed, optional = list(signature.required), list(signature.optional)
        if style == "verl":
            needed, optional = ["response"], []
            if self._takes("ground_truth"):
                optional += ["reference", "reward_model"]
            optional += [n for n in ("data_source", "extra_info") if self._takes(n)]
        elif style == "trl":
            own = {*_OF_TRL, *_OF_TRAINER}
            ids = ["response_token_ids"] if "completion_ids" in (*needed, *optional) else []
            asks = ["prompt"] if "prompts" in needed else []
            needed = ["response", *asks, *(name for name in needed if name not in own), *ids]
            optional = ["prompt", *(n for n in optional if n not in own), *signature.looked_up]
        else:
            needed = ["response", *needed]
        needed = [name for name in needed if name not in self.reward_kwargs or name == "response"]
        optional = [
            name for name in optional if name not in self.reward_kwargs and name not in needed
        ]
        return tuple(dict.fromkeys(needed)), tuple(dict.fromkeys(optional))

    def _takes(self, name: str) -> bool:
        return self._signature.takes(name) and name not in self.reward_kwargs

    # --- its arguments ----------------------------------------------------------------

    def _arguments(self, table: pa.Table) -> tuple[list[dict[str, Any]], list[str | None]]:
        """The arguments of each row, and why it is not graded at all."""
        signature = self._signature
        responses = table["response"].to_pylist()
        missing = [None if text is not None else "no_response" for text in responses]
        match self._style():
            case "verl":
                given, truths = self._of_verl(table)
                for at, truth in enumerate(truths):
                    if truth is None and missing[at] is None:
                        missing[at] = "no_reference"
            case "trl":
                given = self._of_trl(table)
            case "columns":
                named = (*signature.required, *signature.optional)
                given = {n: table[n].to_pylist() for n in named if n in table.column_names}
        return [dict(zip(given, row, strict=True)) for row in _rows(given, len(responses))], missing

    def _of_verl(self, table: pa.Table) -> tuple[dict[str, list[Any]], list[Any]]:
        """verl's four arguments, as far as it takes them, and the references."""
        given: dict[str, list[Any]] = {"solution_str": table["response"].to_pylist()}
        there, n = set(table.column_names), table.num_rows
        for name, none in (("data_source", ""), ("extra_info", {})):
            if self._takes(name):
                values = table[name].to_pylist() if name in there else [None] * n
                given[name] = [none if value is None else value for value in values]
        if not self._takes("ground_truth"):
            return given, []
        truths = table["reference"].to_pylist() if "reference" in there else [None] * n
        stored = find_path(table, _TRUTH) if "reward_model" in there else None
        if stored is not None:
            pairs = zip(stored.to_pylist(), truths, strict=True)
            truths = [reference if truth is None else truth for truth, reference in pairs]
        elif "reference" not in there and "ground_truth" in self._signature.required:
            found = "there is neither a column 'reference' nor 'reward_model' with a ground_truth"
            raise DataError(found, "let prompt_template_mapper write `reference`")
        return {**given, "ground_truth": truths}, truths

    def _of_trl(self, table: pa.Table) -> dict[str, list[Any]]:
        """TRL's arguments, each a list of one, as far as it takes them."""
        signature, there = self._signature, set(table.column_names)
        plain = "prompt" in there and is_text(table["prompt"].type)
        texts = table["response"].to_pylist()
        messages = texts if plain else [[{"role": "assistant", "content": text}] for text in texts]
        given: dict[str, list[Any]] = {"completions": messages}
        columns = {"prompts": "prompt", "completion_ids": "response_token_ids"}
        named = (*signature.required, *signature.optional, *signature.looked_up)
        columns |= {name: name for name in named if name not in (*_OF_TRL, *_OF_TRAINER)}
        given |= {name: table[of].to_pylist() for name, of in columns.items() if of in there}
        listed = {
            name: [[value] for value in values]
            for name, values in given.items()
            if self._takes(name)
        }
        none: Any = None
        for name in _OF_TRAINER.intersection(signature.required).difference(self.reward_kwargs):
            listed[name] = [none] * table.num_rows
        return listed


def _rows(given: Mapping[str, Sequence[Any]], n: int) -> list[tuple[Any, ...]]:
    return list(zip(*given.values(), strict=True)) if given else [()] * n


def _hint(key: str, outcomes: Sequence[RowOutcome]) -> str:
    """Which key of a dict without this one may be meant, else which it has."""
    has = next((each.keys for each in outcomes if each.keys and key not in each.keys), ())
    if not has:
        return "; it returned no dict, or None in it"
    return f"; {suggest(key, has) or shortened('its dict has ' + ', '.join(has))}"
