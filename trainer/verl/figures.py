"""What is recorded of a training step: figures, a table of samples, and files."""

from __future__ import annotations

import string
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...operators.agents.trajectory import FAILURES, TOOL, TOOL_SECONDS
from ...operators.arrow_compute import pc
from ...operators.columns import RIGHT, WRONG, flat, numbers, right_and_wrong
from ...operators.groups import Array, Groups, hash_each
from ...operators.importance import REPLAYED_FROM
from ...operators.logs import redact, visible
from ...pipelines.analysis.figures import few_sources
from ...pipelines.dataset.write import filled, mark_written
from ...pipelines.recipe.steps import Step
from ...pipelines.recipe.train import ONE_SET
from ..run import TrainingRun
from .credit import has_signal, row_advantages
from .curation import Curated, missing_figures

if TYPE_CHECKING:
    from .groups import StepPart


def response_figures(
    curated: Curated, rollouts: pa.Table, values: pa.Table, steps: Sequence[Step]
) -> dict[str, float]:
    table, found = curated.table, dict[str, float]()
    for name in sorted({name for step in steps for name in step.operator.writes()}):
        if name == "reward" or (name.startswith(_REWARD) and not name.endswith(_MISSING)):
            # After a step that makes rows, only what is left has a reward.
            mean = _mean(values if name in values.column_names else table, name)
            if mean is not None:
                found[name] = mean
    # Failures to grade are neither right nor wrong.
    if graded := sum(curated.verdicts.get(verdict, 0) for verdict in (RIGHT, *WRONG)):
        found["pass_rate"] = curated.verdicts.get(RIGHT, 0) / graded
    formulas = sum(n for name, n in curated.notes.items() if name.endswith("/not_worked_out"))
    if formulas and curated.verdicts.get(RIGHT, 0):
        found["not_worked_out"] = formulas / curated.verdicts[RIGHT]
    if curated.verdicts and table.num_rows:
        right_N, wrong_N = right_and_wrong(table["verdict"])
        groups = Groups.of(table)
        mixed_G = (groups.sum(right_N) > 0) & (groups.sum(wrong_N) > 0)
        found["mixed_groups"] = float(mixed_G.mean())
    lengths = pc.list_value_length(rollouts["response_token_ids"])
    found["response_tokens"] = float(pc.mean(lengths).as_py() or 0.0)
    if "finish_reason" in rollouts.column_names and rollouts.num_rows:
        cut_N = np.asarray(pc.equal(rollouts["finish_reason"], "length").fill_null(False))
        found["truncated"] = float(cut_N.mean())
    found["rows_sampled"] = rollouts.num_rows
    found["rows_trained"] = table.num_rows
    found.update(missing_figures(values))
    return found | curated.figures | source_figures(rollouts, values)


def _mean(table: pa.Table, name: str) -> float | None:
    """The mean of numbers, or of true and false, over the rows that have one."""
    if name not in table.column_names:
        return None
    value_N = np.asarray(flat(table[name]).cast(pa.float64(), safe=False))
    value_N = value_N[np.isfinite(value_N)]
    return float(value_N.mean()) if len(value_N) else None


def source_figures(rollouts: pa.Table, values: pa.Table) -> dict[str, float]:
    """`source/NAME/pass_rate` and `source/NAME/reward` of each `data_source` of the prompts.

    They are those of the responses as sampled, as far as they were graded and have a reward. There
    are none where the prompts have no such column, or not some few values in it.
    """
    found = dict[str, float]()
    for name, is_own in few_sources(rollouts).items():
        own = values.filter(is_own)
        if "verdict" in own.column_names:
            right_N, wrong_N = right_and_wrong(own["verdict"])
            if graded := int(right_N.sum() + wrong_N.sum()):
                found[f"source/{name}/pass_rate"] = int(right_N.sum()) / graded
        if (mean := _mean(own, "reward")) is not None:
            found[f"source/{name}/reward"] = mean
    return found


def agent_figures(rollouts: pa.Table) -> dict[str, float]:
    """Trajectories as they were sampled, for `rejuice/agent/...`.

    `tool_errors` is the share of calls that did not work, malformed actions included; `finish/*`
    and `failed/*` count by `finish_reason`, which is the policy's doing or not.
    """
    found: dict[str, float] = {
        "agent/trajectories": float(rollouts.num_rows),
        "agent/turns": float(np.asarray(rollouts["turn_count"]).mean()),
        "agent/tool_calls": float(np.asarray(rollouts["tool_calls"]).mean()),
    }
    if (seconds := _mean(rollouts, TOOL_SECONDS)) is not None:
        found["agent/tool_seconds"] = seconds
    roles = pc.struct_field(pc.list_flatten(rollouts["turns"]), "role")
    if tried := pc.sum(pc.equal(roles, TOOL)).as_py():  # Calls, and malformed actions.
        found["agent/tool_errors"] = pc.sum(rollouts["tool_errors"]).as_py() / tried
    for count in rollouts["finish_reason"].value_counts().to_pylist():
        kind = "failed" if count["values"] in FAILURES else "finish"
        found[f"agent/{kind}/{count['values']}"] = float(count["counts"])
    return found


# --- Groups without signal, and missing reward components -----------------------------

_REWARD, _MISSING = "reward_", "_missing"


def signal_figures(parts: Mapping[str, StepPart]) -> dict[str, float]:
    """The share of the groups sampled that have no signal, for each part that trains.

    All advantages of such a group are 0, or none of its rows is left to train on.
    """
    found = dict[str, float]()
    for name, part in parts.items():
        if not (part.trains and part.rollouts.num_rows):
            continue
        table = part.curated.table
        signal = pa.array(has_signal(table))
        left = pc.count_distinct(table["prompt_id"].filter(signal)).as_py()
        sampled = pc.count_distinct(part.rollouts["prompt_id"]).as_py()
        found[figure_name(name, "groups_without_signal")] = 1 - left / sampled
    return found


def figure_name(part: str, name: str) -> str:
    """As `rejuice/samples` and `rejuice/verify/samples`."""
    return "/".join(filter(None, ("rejuice", part, name)))


# --- Sample table ---------------------------------------------------------------------
# A table of samples for W&B and TensorBoard: some responses of a training step, best to worst.
#
# verl's own table of generations has the input, output and score of validation prompts only, and
# puts texts into TensorBoard's Markdown as they are. Here are responses that were trained on or
# dropped, with rewards, advantages and fates, through the loggers that verl has opened. A response
# is hostile text: W&B gets it with control and bidirectional characters as escapes, and TensorBoard
# with every punctuation mark as an HTML entity, so that none of it is markup.

GROUPS, ROWS = 4, 4
"""How many groups are in the table, and how many rows of each."""
LONGEST = 4000
"""Characters of a text; of a longer one, the middle is left out."""
_ENTITIES = str.maketrans({each: f"&#{ord(each)};" for each in string.punctuation})


class SampleRow(NamedTuple):
    step: int  # of training
    prompt: str  # its messages, `role: content`
    response: str  # its text
    reference: str  # the right answer; of a judgement, the right judgement
    verdict: str  # on the response; of a judgement, the judgement
    components: str  # each with its value before the weight, or why it is missing
    reward: float | None  # None if it has none
    advantage: float | None  # that it trains with; None if it does not train
    fate: str  # `kept`, or the step that dropped it, and the reason


class SampleTables:
    """Logs samples at each step that is validated, and at the last one."""

    def __init__(self, run: TrainingRun) -> None:
        self._last = run.config.steps
        self._every = (run.config.validate_every or self._last) if run.held_out else self._last
        self._failed = set[str]()

    def log(
        self, step: int, parts: Mapping[str, StepPart], trainer: Any, *, last: bool = False
    ) -> None:
        """Log those of a step that is due to verl's loggers; one that fails is reported once."""
        if step % self._every and step < self._last and not last:
            return
        for tracker, send in (("wandb", self._to_wandb), ("tensorboard", self._to_tensorboard)):
            try:
                tracking = trainer.tracking
                if tracker in tracking.logger:
                    for name, part in parts.items():
                        if rows := sample_rows(step, part):
                            send(figure_name(name, "samples"), rows, step, tracking)
            except Exception as error:  # Of a tracker, its network or its disk: not training's.
                if tracker not in self._failed:
                    found = f"{tracker} got no table of samples: {redact(repr(error))}"
                    print(f"step {step}: warning: {found}")
                self._failed.add(tracker)

    def _to_wandb(self, name: str, rows: Sequence[SampleRow], step: int, tracking: Any) -> None:
        # A new one each time: W&B does not upload a table again that has grown.
        data = list(map(list, rows))
        table = tracking.logger["wandb"].Table(columns=list(SampleRow._fields), data=data)
        tracking.log({name: table}, step, backend=["wandb"])

    def _to_tensorboard(
        self, name: str, rows: Sequence[SampleRow], step: int, tracking: Any
    ) -> None:
        tracking.logger["tensorboard"].writer.add_text(name, as_markdown(rows), step)


def sample_rows(step: int, part: StepPart) -> list[SampleRow]:
    """Rows of some groups, from the greatest spread of rewards to the least.

    Groups are at equal distances in that order, which is seeded where spreads are equal; a group
    without rewards comes last. So are the rows of a group, from the best to the worst reward.
    """
    rollouts = part.rollouts
    if not rollouts.num_rows:
        return []
    values, reward_N = _with_graded(part), np.full(rollouts.num_rows, np.nan)
    if "reward" in values.column_names:
        reward_N = numbers(values, "reward")
    chosen = pa.array(_chosen(rollouts, reward_N, step))
    read = [name for name in _READ if name in rollouts.column_names]
    sampled, written = (table.take(chosen).to_pylist() for table in (rollouts.select(read), values))
    dropped, advantage_of = part.curated.decisions.to_pylist(), _advantages(part)
    fate_of = {each["row_id"]: f"{each['step']}: {each['reason']}" for each in dropped}
    return [
        _row(step, each, wrote, advantage_of.get(each["response_id"]), fate_of)
        for each, wrote in zip(sampled, written, strict=True)
    ]


def _with_graded(part: StepPart) -> pa.Table:
    """What the steps wrote, and of replayed rows what earlier steps had written."""
    values, rollouts = part.values, part.rollouts
    for name in rollouts.column_names if REPLAYED_FROM in rollouts.column_names else ():
        is_grade = name in ("verdict", "reward") or name.startswith(_REWARD)
        if is_grade and name not in values.column_names:
            values = values.append_column(name, rollouts[name])
    return values


_READ = ("response_id", "prompt", "response", "reference", "label")


def _chosen(rollouts: pa.Table, reward_N: Array, step: int) -> Array:
    groups = Groups.of(rollouts)
    spread_G = groups.std(reward_N, np.isfinite(reward_N))
    tie_G = hash_each(rollouts["prompt_id"].take(pa.array(groups.starts_G)), seed=step)
    order_G = np.lexsort((tie_G, -np.nan_to_num(spread_G, nan=-1.0)))
    rows = []
    for group in order_G[_spaced(len(order_G), GROUPS)]:
        start = int(groups.starts_G[group])
        best = np.argsort(-reward_N[start : start + int(groups.sizes_G[group])], kind="stable")
        rows.append(start + best[_spaced(len(best), ROWS)])
    return np.concatenate(rows)


def _spaced(n: int, wanted: int) -> Array:
    """Places from the first to the last of n, at equal distances: all where n is no more."""
    return np.unique(np.linspace(0, n - 1, min(n, wanted)).round().astype(np.int64))


def _advantages(part: StepPart) -> dict[str, float]:
    if not part.trains:
        return {}
    table = part.curated.table
    ids = table["response_id"].to_pylist() if table.num_rows else []
    return dict(zip(ids, row_advantages(table).tolist(), strict=True))


def _row(
    step: int,
    sampled: Mapping[str, Any],
    written: Mapping[str, Any],
    advantage: float | None,
    fate_of: Mapping[str, str],
) -> SampleRow:
    judged = "judgement" in written
    messages = [f"{each['role']}: {each['content']}" for each in sampled.get("prompt") or ()]
    reward = written.get("reward")
    return SampleRow(
        step,
        _shown("\n".join(messages)),
        _shown(sampled.get("response")),
        _shown(sampled.get("label" if judged else "reference")),
        _shown(written.get("judgement" if judged else "verdict")),
        _shown(", ".join(_components(written))),
        None if reward is None else float(reward),
        advantage,
        _shown(fate_of.get(sampled["response_id"], "kept")),
    )


def _components(written: Mapping[str, Any]) -> Iterator[str]:
    for name, value in written.items():
        if name.startswith(_REWARD) and f"{name}{_MISSING}" in written:
            why = written[f"{name}{_MISSING}"]
            known = f"{value:.4g}" if isinstance(value, (int, float)) else "null"
            yield f"{name.removeprefix(_REWARD)} {f'missing: {why}' if why else known}"


def _shown(text: str | None) -> str:
    """A text of whomever, not longer than is looked at, with what cannot be seen as escapes."""
    text = text or ""
    if len(text) > LONGEST:
        half, left_out = LONGEST // 2, len(text) - LONGEST
        text = f"{text[:half]} [{left_out:,} characters left out] {text[-half:]}"
    return visible(text)


def as_markdown(rows: Sequence[SampleRow]) -> str:
    """The table for TensorBoard, whose Markdown knows tables, links and images."""
    head = f"| {' | '.join(SampleRow._fields)} |"
    lines = (f"| {' | '.join(map(_cell, row))} |" for row in rows)
    return "\n".join([head, "|---" * len(SampleRow._fields) + "|", *lines])


def _cell(value: str | float | None) -> str:
    if not isinstance(value, str):
        return "" if value is None else f"{value:.4g}"
    return visible(value, one_line=True).translate(_ENTITIES)


# --- Step files -----------------------------------------------------------------------
# They are written while the policy is updated.


class Clock:
    def __init__(self) -> None:
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, on: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self._spent[on] = self._spent.get(on, 0.0) + time.thread_time() - start

    def add(self, other: Clock) -> None:
        for name, seconds in other.read().items():
            self._spent[name] = self._spent.get(name, 0.0) + seconds

    def read(self) -> dict[str, float]:
        """What was spent since the last reading."""
        spent, self._spent = self._spent, {}
        return spent


class UsedCores:
    """Counts the cores that the processes of a run use.

    Of a process that begins and ends between two readings, such as a sandbox, it knows nothing.
    """

    def __init__(self) -> None:
        self._at, self._spent_of = time.perf_counter(), self._spent()

    def read(self) -> float:
        """How many were used, on average, since the last reading."""
        at, spent_of = time.perf_counter(), self._spent()
        spent = sum(spent - self._spent_of.get(pid, 0.0) for pid, spent in spent_of.items())
        seconds, self._at, self._spent_of = at - self._at, at, spent_of
        return spent / seconds

    @staticmethod
    def _spent() -> dict[int, float]:
        """The processor seconds of each process so far."""
        import psutil

        found = dict[int, float]()
        # The fork server has forked this process and all others of the run, and of other runs that
        # share it; where there is none, Ray's node has started it.
        parent = psutil.Process().parent()
        for each in [parent, *parent.children(recursive=True)] if parent else ():
            try:
                times = each.cpu_times()
            except psutil.Error:
                continue  # It has ended.
            found[each.pid] = times.user + times.system
        return found


class StepFiles:
    """Rollouts, decisions and rewards of each step, written while the policy is updated."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rejuice-step-files")
        self._written: Future[None] | None = None

    def keep(self, step: int, part: str, tables: Mapping[str, pa.Table], recipe: str) -> None:
        """A step that is done again after a resume replaces its folder."""
        if not self._run.config.keep_rollouts:
            return
        self.wait()
        folder = self._run.step_folder(step) / part
        # A replay of the step computes again what other steps of the recipe have written.
        names = [name for each in self._run.recipe.steps for name in each.operator.writes()]
        marked = {name: _marked(self._kept(name, table), names) for name, table in tables.items()}
        self._written = self._writer.submit(_write, folder, marked, recipe)

    def wait(self) -> None:
        """Wait until the last step is written; what failed is raised."""
        if self._written:
            self._written.result()

    def validate(self, step: int, name: str, table: pa.Table) -> None:
        folder = self._run.folder / "validations"
        folder = folder if name == ONE_SET else folder / name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self._kept("", table), folder / f"{step:06d}.parquet")

    def _kept(self, name: str, table: pa.Table) -> pa.Table:
        """With helper columns where an export has them.

        Rollouts are what the step's recipe begins with, and keep those of their prompts; values
        are read by what repeats the steps.
        """
        if name in ("rollouts", "values", "choice"):
            return table
        return filled(table.select(self._run.recipe.head.exported(table.column_names)))


def _marked(table: pa.Table, written: Sequence[str]) -> pa.Table:
    return table.replace_schema_metadata(mark_written(table.schema, written).metadata)


def _write(folder: Path, tables: Mapping[str, pa.Table], recipe: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "recipe.yaml").write_text(recipe, "utf-8")
