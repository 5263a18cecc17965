"""The steps of a recipe: operators by name and fields, or as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa
from pydantic import ConfigDict

from ...operators import (
    ALL,
    Change,
    Columns,
    Operator,
    OperatorError,
    PromptTemplateMapper,
    RecipeError,
    RecordedRolloutMapper,
    ResumableOperator,
    build,
    installed,
)
from ...operators.columns import ADVANTAGES, CREDIT
from ...operators.condition import Where, exclude_each_other
from ...operators.config import WeightSchedule
from ...operators.errors import shortened, shown, suggest
from ...operators.mapper.gdpo_advantage_mapper import GdpoAdvantageMapper
from ...operators.mapper.importance_weight_mapper import ImportanceWeightMapper
from ...operators.mapper.reward_sum_mapper import RewardSumMapper
from ...operators.operator import COMMON_FIELDS
from ...operators.registry import find
from ...operators.sampling.rollout import RolloutMapper
from ..data_juicer import catalogue
from ..data_juicer.settings import passed_on
from ..data_juicer.steps import step as foreign_step
from .head import Head, found_file

if TYPE_CHECKING:
    from .train import Train

# --- Stored operator ------------------------------------------------------------------
# A step of a stored recipe whose code is not run: its name, its fields and what it wrote.
#
# Its class is in a file that the recipe names, or in a package that is not installed. To look at
# what it did takes none of it.

SERVED = "mcp"
"""The tool that a server has: to say what the policy can call, it is started or connected to."""


class StoredOperator(Operator):
    """An operator of which only what is on file is known."""

    model_config = ConfigDict(extra="allow")

    stored_name: ClassVar[str]
    samples: ClassVar[bool] = False
    """Whether it is an installed operator that samples, with tools or flows that are not."""
    written: ClassVar[Columns] = ()
    """The columns that it has written in a run, as far as they are known."""

    @classmethod
    def name(cls) -> str:
        return cls.stored_name

    def with_written(self, columns: Sequence[str], reasons: Mapping[str, str]) -> StoredOperator:
        kind = _kind(self.name(), self.samples, tuple(columns), tuple(reasons.items()))
        common = {name: getattr(self, name) for name in COMMON_FIELDS}
        return build(kind, {**(self.model_extra or {}), **common})

    def reads(self) -> Columns:
        return ALL

    def writes(self) -> Columns:
        return self.written

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        from ...operators.agents.trajectory import holds_turns, turn_lines

        turns = (row or {}).get("turns")
        return turn_lines(turns) if turns is not None and holds_turns(turns) else {}

    def cache_key_fields(self) -> Mapping[str, Any]:
        raise self._not_run()

    def apply(self, table: pa.Table) -> Change:
        raise self._not_run()

    def _not_run(self) -> OperatorError:
        return OperatorError(f"the code of {self.name()} is not run to look at what it did")


def stored_operator(
    name: str, fields: Mapping[str, Any], *, samples: bool = False
) -> StoredOperator | None:
    """The operator of a stored step; None where no operator can have this name."""
    return build(_kind(name, samples, (), ()), fields) if name.isidentifier() else None


@cache
def _kind(
    name: str, samples: bool, written: Columns, reasons: tuple[tuple[str, str], ...]
) -> type[StoredOperator]:
    known = {"stored_name": name, "samples": samples, "written": written, "reasons": dict(reasons)}
    types = dict.fromkeys(known, "ClassVar[Any]")
    members = {"__module__": __name__, "__annotations__": types, **known}
    return type("Stored", (StoredOperator,), members)


def serves_tools(fields: Mapping[str, Any]) -> bool:
    """Whether a step has a tool of a server."""
    tools = fields.get("tools")
    entries = tools if isinstance(tools, list | tuple) else ()
    return any(each == SERVED or (isinstance(each, dict) and SERVED in each) for each in entries)


# --- The steps of a recipe: operators by name and fields, or as they are --------------

FILES = "custom_operator_paths"
"""Field of operators that find tools and flows in files: a recipe gives them those of its head."""


class Step(NamedTuple):
    number: int  # its position in the recipe, from 1
    name: str  # the operator's name; a second use of it is `name_2`, a third `name_3`
    operator: Operator  # the operator
    line: int | None = None  # where it begins in the recipe's file

    @property
    def label(self) -> str:
        """`03_pass_rate_filter`: the name of the step's folder; folders sort by number."""
        return f"{self.number:02d}_{self.name}"


def of_files(steps: Sequence[Step]) -> list[Step]:
    """Steps for which the reader adds a column: from what kind of file a row comes."""
    return [step for step in steps if step.operator.name() == "suffix_filter"]


PLACES = {"run": "offline: training skips it", "train": "in training: an offline run skips it"}
"""Where a step exists that does not exist everywhere, by its `on`."""


def place_lines(steps: Sequence[Step]) -> list[str]:
    """A line for each step that exists only offline, or only in training."""
    named = [(step, step.operator.on) for step in steps]
    return [f"step {s.number} {s.name} is only {PLACES[place]}." for s, place in named if place]


def step_names(kinds: list[str]) -> list[str]:
    """Names of steps from their operators: a second use of `x` is `x_2`."""
    return [
        kind if (nth := kinds[: at + 1].count(kind)) == 1 else f"{kind}_{nth}"
        for at, kind in enumerate(kinds)
    ]


def number_steps(found: Iterable[Operator], lines: Sequence[int] = ()) -> tuple[Step, ...]:
    """Steps of a recipe, of which each knows what those before and after it decide for it."""
    steps, operators, sampling = list[Step](), list(found), None
    for at, name in enumerate(step_names([operator.name() for operator in operators])):
        operator = operators[at]
        if isinstance(operator, PromptTemplateMapper):
            operator = _with_what_follows(operator, operators[at + 1 :])
        elif sampling:
            changes = dict[str, Any]()
            if getattr(operator, "response_prefix", "") is None:  # It is not set.
                changes["response_prefix"] = sampling.opened_thought()
            if getattr(operator, "on_unrunnable", "") is None:
                changes["on_unrunnable"] = "wrong"
            operator = operator.model_copy(update=changes)
        if isinstance(operator, RolloutMapper):
            sampling = operator
        steps.append(Step(at + 1, name, operator, lines[at] if lines else None))
    return tuple(steps)


def _with_what_follows(
    operator: PromptTemplateMapper, later: Sequence[Operator]
) -> PromptTemplateMapper:
    """The operator with what the steps after it decide about its prompts.

    Where one of them samples, a chat must not end with a message of the assistant, which the policy
    would not continue. What a tool or a flow reads of the dataset distinguishes prompts.
    """
    changes = dict[str, Any]()
    if operator.final_message == "auto":
        samples = any(isinstance(each, RolloutMapper) for each in later)
        changes["final_message"] = "fail" if samples else "response"
    written, read = set(operator.writes()), list(operator.identity)
    for each in later:
        if each.reads() != ALL:
            read += [n for n in each.reads() if n not in written and each.reader_of(n)]
        written.update(each.writes())
    changes["identity"] = tuple(dict.fromkeys(read))
    return operator.model_copy(update=changes)


def split_entry(entry: object, where: str) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, dict) or len(entry) != 1:
        found = "a step is one operator and its fields"
        raise RecipeError(found, "write `- name: {…}`", where=where)
    ((name, fields),) = entry.items()
    if fields is not None and not isinstance(fields, dict):
        found = f"{shortened(str(name))} has {shown(fields)} for fields"
        raise RecipeError(found, "write `field: value`", where=where)
    named = dict[str, Any]()
    for key, value in (fields or {}).items():
        field = "on" if key is True else key  # In YAML 1.1, a bare `on` is the value true.
        if type(field) is not str:
            found = f"{shortened(str(name))} has {shown(field)} for the name of a field"
            raise RecipeError(found, "write `field: value`", where=where)
        named[field] = value
    return str(name), named


def with_files(
    kind: type[Operator], fields: Mapping[str, Any], files: Sequence[Path]
) -> Mapping[str, Any]:
    """The fields of an operator, with the files of the recipe if it finds classes in them."""
    taken = FILES in kind.model_fields and files and FILES not in fields
    return {**fields, FILES: [str(file.absolute()) for file in files]} if taken else fields


REWARD_FUNCTION = "reward_function_mapper"
"""The operator that runs a function of a file or of a package, whichever the recipe names."""


def function_file(name: str, fields: Mapping[str, Any], folder: Path) -> Path | None:
    """The absolute path of the file whose function a step runs; None: it names no file."""
    function = fields.get("function")
    if name != REWARD_FUNCTION or not isinstance(function, str):
        return None
    file = function.rpartition(":")[0]
    return found_file(folder, Path(file)) if file.endswith(".py") else None


def with_function_file(name: str, fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    file = function_file(name, fields, folder)
    if file is None:
        return fields
    return {**fields, "function": f"{file}:{fields['function'].rpartition(':')[2]}"}


def build_operator(
    name: str,
    fields: Mapping[str, Any],
    custom: Mapping[str, type[Operator]],
    head: Head,
    document: Mapping[str, Any],
) -> Operator:
    """An operator of ours, of a custom file or of Data-Juicer, whose fields `document` may set."""
    operator = find(name, custom)
    if operator is not None:
        if FILES in fields:
            raise RecipeError(f"unknown field '{FILES}'", "give it at the head of the recipe")
        return build(operator, with_files(operator, fields, head.custom_operator_paths))
    if not catalogue.is_installed():
        raise catalogue.not_installed(name, [*installed(), *custom])
    if catalogue.find(name):
        every = {key: v for key, v in passed_on(document).items() if fields.get(key) is None}
        return foreign_step(name, {**fields, **every}, text_key=head.text_key)
    near = suggest(name, [*installed(), *custom, *catalogue.names()])
    raise RecipeError("unknown operator", near or "`rejuice ops` lists them")


def operator_on_file(
    name: str, fields: Mapping[str, Any], head: Head, document: Mapping[str, Any]
) -> Operator:
    """An operator of a stored recipe, for which no file is imported and no program started.

    It is a `StoredOperator` where the operator, or a tool or flow that it uses, is not installed,
    and where it runs a function that the recipe names.
    """
    kind = find(name)
    is_apart = name == REWARD_FUNCTION or (kind is None and not catalogue.find(name))
    if is_apart and (found := stored_operator(name, fields)):
        return found
    without_files = head.model_copy(update={FILES: ()})
    if kind is None or FILES not in kind.model_fields:
        return build_operator(name, fields, {}, without_files, document)
    if not serves_tools(fields):  # To say what they are, it would be started.
        with suppress(RecipeError):  # A tool may need a file or a package that is not here.
            return build_operator(name, fields, {}, without_files, document)
    samples = issubclass(kind, RolloutMapper)
    return stored_operator(name, fields, samples=samples) or build(kind, fields)


def is_sampling(operator: Operator) -> bool:
    """Whether an operator samples responses, as far as that is known of a stored one."""
    if isinstance(operator, StoredOperator):
        return operator.samples
    return isinstance(operator, RolloutMapper)


def gives_responses(operator: Operator) -> bool:
    """Whether an operator samples responses, or reads those of a list in each row."""
    return is_sampling(operator) or isinstance(operator, RecordedRolloutMapper)


# --- Credit ---------------------------------------------------------------------------


def gives_credit(operator: Operator) -> bool:
    return not {*ADVANTAGES}.isdisjoint(operator.writes())


GROUP_OF_ONE = "group_of_one"
"""Why an operator that compares the responses of a group drops one that has nothing beside it."""


def compares_group(operator: Operator) -> bool:
    """Whether a step gives no group of one credit, as it compares all responses of each."""
    # With a condition, it says by itself which of its rows have nothing beside them.
    compares = GROUP_OF_ONE in operator.reasons and bool(operator.estimates)
    return compares and operator.where is None


def credit_step(steps: Sequence[Step]) -> Step | None:
    """The last step that writes the advantage; None: training adds one."""
    found = [step for step in steps if gives_credit(step.operator)]
    return found[-1] if found else None


def adds_credit(steps: Sequence[Step], train: Train | None) -> bool:
    """Whether training adds `grpo_advantage_mapper`: no step writes the advantage of a reward."""
    return train is not None and any(
        credit_step(own) is None and gives_reward(own)
        for own in _credit_parts(steps, train).values()
    )


def credit_line(steps: Sequence[Step], train: Train | None) -> str:
    """Which steps give the rows their credit; empty where nothing is rewarded."""
    lines = (_credit_line(own, of, train) for of, own in _credit_parts(steps, train).items())
    return " ".join(filter(None, lines))


def _credit_parts(steps: Sequence[Step], train: Train | None) -> dict[str, Sequence[Step]]:
    """The steps that give answers their credit, and those that give it to judgements."""
    sampling = [at for at, step in enumerate(steps) if is_sampling(step.operator)]
    if len(sampling) < 2:
        return {"": steps}
    judgements = {" of judgements": steps[sampling[-1] :]}
    if train is not None and train.schedule == "self_verify":
        return judgements
    return {" of answers": steps[: sampling[-1]], **judgements}


def gives_reward(steps: Sequence[Step]) -> bool:
    return any("reward" in step.operator.writes() for step in steps)


def _credit_line(steps: Sequence[Step], whose: str, train: Train | None) -> str:
    written = {name: step for step in steps for name in step.operator.writes()}
    if credit_step(steps) is None:
        if train is None or not gives_reward(steps):
            return ""
        stored = "the stored one is taken, or if there is none, " if train.replay else ""
        line = f"No step writes the advantage{whose}: in training, {stored}"
        line += "grpo_advantage_mapper is added"
    else:
        of_turns, of_row = written.get("turn_advantage"), written.get("advantage")
        named = [f"{step.number} {step.name}" for step in (of_turns, of_row) if step]
        line = f"The advantage{whose} is that of step {', and elsewhere that of step '.join(named)}"
    weights = (name for name in CREDIT if name not in ADVANTAGES and name in written)
    more = [f"{name} that of step {written[name].number} {written[name].name}" for name in weights]
    return ", ".join([line, *more]) + "."


# --- Warnings -------------------------------------------------------------------------

_CHARACTERS = 4  # of a token, about
_BRIEF_TOOLS = {"calculator"}
_OLD = 2  # steps
_CORRECTION = "rollout_correction.rollout_is"  # a key of verl

# GDPO weighs the components by itself, and `reward` stays the sum: two steps have the weights.


def weight_warnings(steps: Sequence[Step], where: Callable[[Step], str]) -> list[str]:
    """A line for each step whose weights or gates are not those of the sums beside it."""
    lines = list[str]()
    for at, step in enumerate(steps):
        if not isinstance(step.operator, GdpoAdvantageMapper):
            continue
        sums = [each for each in steps[:at] if _is_sum_of(each.operator, step.operator.where)]
        own, others = _weighed(step.operator), [_weighed(each.operator) for each in sums]
        differ = []
        for name in dict.fromkeys(chain(own, *others)):
            theirs = sorted({other[name] for other in others if name in other}) or ["none"]
            if theirs != [own.get(name, "none")]:
                differ.append(f"{name} {own.get(name, 'none')}, not {' or '.join(theirs)}")
        if sums and differ:
            total = " and ".join(f"{each.number} {each.name}" for each in sums)
            lines.append(
                f"{where(step)}: the weights are not those of step {total} ({', '.join(differ)}), "
                "so that `reward`, which filters and figures take, is not what trains; give both "
                "the same, unless that is meant"
            )
    return lines


def _is_sum_of(operator: Operator, rows: Where | None) -> bool:
    if not isinstance(operator, RewardSumMapper):
        return False
    of_task = {} if operator.task is None else {"task": operator.task}
    return not exclude_each_other({**(operator.where or {}), **of_task}, rows)


def _weighed(operator: Operator) -> dict[str, str]:
    """What each component counts, in words."""
    assert isinstance(operator, GdpoAdvantageMapper | RewardSumMapper)
    found = dict[str, str]()
    for name, weight in operator.weights.items():
        ends = [weight.from_, weight.to] if isinstance(weight, WeightSchedule) else [weight]
        gate = f" ({operator.gates[name]})" if name in operator.gates else ""
        found[name] = " to ".join(f"{each:g}" for each in ends) + gate
    return found


def age_warnings(steps: Sequence[Step], train: Train) -> list[str]:
    """A line if training samples several steps ahead and has no importance weights.

    By docs/results.md ("Asynchronous training"), the clipped ratio alone then learns less.
    """
    oldest = train.max_age + train.sync_every - 1 if train.samples_ahead else 0
    corrects = any(isinstance(step.operator, ImportanceWeightMapper) for step in steps)
    if oldest < _OLD or corrects or any(_CORRECTION in key for key in train.verl_keys):
        return []
    return [
        f"train.mode: {train.mode} trains on responses by policies of up to {oldest} steps before, "
        "without importance weights: put importance_weight_mapper after the advantage"
    ]


def server_warnings(steps: Sequence[Step], where: Callable[[Step], str]) -> list[str]:
    """A line for each step that ends the run where a judge or a server has given no reward."""
    lines, asked = list[str](), dict[str, str]()
    for step in steps:
        operator = step.operator
        if isinstance(operator, ResumableOperator) or operator.asks_server:
            asked.update(dict.fromkeys(operator.writes(), step.name))
        found = [asked[name] for name in operator.reads() if name in asked]
        if found and getattr(operator, "on_missing", None) == "fail":
            lines.append(
                f"{where(step)}: on_missing: fail ends the run at the first call of {found[0]} "
                "that fails; set on_missing to drop_row or group_mean"
            )
    return lines


def observation_warnings(
    steps: Sequence[Step], where: Callable[[Step], str], train: Train
) -> list[str]:
    """A line where the longest observation of an agent alone is no prompt of training any more."""
    lines = list[str]()
    for step in steps:
        agents: Any = step.operator  # By its method: the module of agents takes long to import.
        if not hasattr(agents, "open_flow") or agents.engine == "recorded":
            continue
        flow, seen = agents.open_flow(), {name for each in agents.tools for name in each}
        fits = min(flow.max_prompt_tokens or train.max_prompt_tokens, train.max_prompt_tokens)
        tokens = flow.max_observation // _CHARACTERS
        if tokens > fits and seen - _BRIEF_TOOLS:
            lines.append(
                f"{where(step)}: max_observation is {flow.max_observation:,} characters, about "
                f"{tokens:,} tokens, and a prompt may have {fits:,}: a long observation ends its "
                f"trajectory; set max_observation to {_CHARACTERS * fits // 2} or less, or raise "
                "train.max_prompt_tokens"
            )
    return lines
