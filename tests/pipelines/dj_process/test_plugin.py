"""Our operators inside Data-Juicer; the slow tests run `dj-process` itself."""

import inspect
import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Optional

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dj_processes import OFFLINE, DjEnded
from each import check_each
from pydantic import Field

from rejuice.operators import Filter, RecipeError, RejuiceError, build, drop, get, installed
from rejuice.pipelines import recipe
from rejuice.pipelines.engine.report import DECISIONS
from rejuice.pipelines.engine.steps import run_in_memory

pytest.importorskip("data_juicer")
from data_juicer.core.data import NestedDataset
from data_juicer.core.preflight import (
    PipelineConfigError,
    PipelineRuntimeError,
    post_instantiation_check,
    pre_instantiation_check,
)
from data_juicer.utils.registry import Registry
from datasets import Dataset

from rejuice.pipelines.data_juicer import tables
from rejuice.pipelines.dj_process import plugin

pytestmark = pytest.mark.slow

OPERATORS: Registry = plugin.OPERATORS


OURS = [
    {"pass_rate_filter": {"min": 0.01}},
    {"grpo_advantage_mapper": {}},
    {"self_verification_mapper": {}},
    {"label_balance_selector": {"max_per_prompt": 2}},
    {"exact_deduplicator": {}},
]


def rollouts(groups: int = 60) -> pa.Table:
    draw = random.Random(5)
    rows = []
    for group in range(groups):
        for index in range(draw.choice([1, 2, 4, 7])):
            text = draw.choice(
                ["  so \\boxed{1} ", "<answer>2</answer>", "three", " \u3000x\u00a0y "]
            )
            rows.append(
                {
                    "text": f"question {group}",
                    "prompt_id": f"p{group}",
                    "response_id": f"p{group}-{index}",
                    "prompt": [{"role": "user", "content": f"question {group}?"}],
                    "reference": "1",
                    "response": text,
                    "extracted_answer": draw.choice(["1", "2", None]),
                    "verdict": draw.choice(["correct", "wrong_answer", "timeout", None]),
                    "reward": draw.choice([0.1, 1 / 3, 1.0, None]),
                    "response_token_ids": [draw.randrange(99) for _ in range(draw.randrange(4))],
                    "response_logprobs": [-draw.random() for _ in range(2)],
                    "mine": {"a": draw.choice([1, None]), "b": ["x"]},
                }
            )
    table = pa.Table.from_pylist(rows)
    for name, kind in [("response_token_ids", pa.int32()), ("response_logprobs", pa.float32())]:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.list_(kind)))
    return table


# Registration


def test_every_installed_operator_is_known_to_data_juicer():
    assert set(installed()) <= set(OPERATORS.modules)


def test_discovery_finds_the_plugin_by_its_entry_point():
    code = "from data_juicer.ops import OPERATORS; print(*OPERATORS.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    )
    assert set(installed()) <= set(out.stdout.split())
    assert "is not available" not in out.stderr


def test_a_broken_operator_does_not_take_the_others_with_it(monkeypatch):
    seen = []
    monkeypatch.setattr(plugin, "installed", lambda: {"a": 0, "broken": 0, "z": 0})
    monkeypatch.setattr(plugin, "register", seen.append)

    def load(name):
        if name == "broken":
            raise ImportError("no such module")
        return name

    monkeypatch.setattr(plugin, "get", load)
    plugin.register_installed()
    assert seen == ["a", "z"]


class ManyTypesFilter(Filter):
    """A filter."""

    needed: int
    """How many."""
    share: float = 0.5
    flag: bool = True
    mode: Literal["a", "b"] = "a"
    maybe: float | None = None
    weights: dict[str, float] = Field(default_factory=lambda: {"a": 1.0})
    names: tuple[str, ...] = ("x",)

    def decide(self, table):
        return drop({})


def test_signature_is_made_from_the_fields():
    juicer = plugin.OPERATORS.modules[ManyTypesFilter.name()]
    parameters = inspect.signature(juicer.__init__).parameters
    types = {name: p.annotation for name, p in parameters.items()}
    assert types["needed"] == Optional[int]  # noqa: UP045
    assert types["share"] is float
    assert types["flag"] is bool
    assert types["mode"] == Literal["a", "b"]
    assert types["maybe"] == Optional[float]  # noqa: UP045
    assert types["weights"] is Any
    assert parameters["names"].default == ["x"]
    assert ":param needed: How many." in juicer.__init__.__doc__


def test_defaults_of_the_signature_build_the_default_operator():
    def check(name):
        kind = get(name)
        parameters = inspect.signature(OPERATORS.modules[name].__init__).parameters
        given = {n: p.default for n, p in parameters.items() if n in kind.model_fields}

        def make():
            return OPERATORS.modules[name](**given, text_key="text", num_proc=2)

        with suppress(RecipeError):
            expected = build(kind, {})
            assert make().operator == expected
            return
        with pytest.raises(RecipeError) as needs_fields:
            build(kind, {})
        assert message_of(make) == f"{name}: {needs_fields.value}"

    check_each(sorted(installed()), check)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mni": 0.5}, r"Unknown parameter 'mni' \(did you mean: min"),
        ({"min": "half"}, r"Parameter 'min' expects type 'float', got 'str'"),
    ],
)
def test_preflight_knows_the_fields(fields, message):
    with pytest.raises(PipelineConfigError, match=message):
        pre_instantiation_check([{"pass_rate_filter": fields}])


def test_preflight_refuses_the_executor_that_tears_groups_apart():
    operator = OPERATORS.modules["pass_rate_filter"]()
    post_instantiation_check([operator], None, SimpleNamespace(executor_type="ray"))
    with pytest.raises(PipelineRuntimeError, match="does not support executor mode"):
        post_instantiation_check([operator], None, SimpleNamespace(executor_type="ray_partitioned"))


def message_of(action):
    with pytest.raises(RejuiceError) as stopped:
        action()
    return str(stopped.value)


def test_a_bad_value_is_one_line():
    message = message_of(lambda: OPERATORS.modules["pass_rate_filter"](min=0.9, max=0.1))
    assert message == "pass_rate_filter: min 0.9 is above max 0.1"


# On a dataset, in this process


def dataset(table):
    return NestedDataset(Dataset(table))


def run(name, table, **fields):
    return OPERATORS.modules[name](skip_op_error=True, **fields).run(table)


def test_rows_that_were_filtered_before_stay_away():
    table = rollouts().drop_columns(["mine"])
    before = dataset(table).filter(lambda row: row["response"] != "three")
    assert before._indices is not None
    kept = table.filter(pa.compute.not_equal(table["response"], "three"))
    operator = get("pass_rate_filter")(min=0.3, max=0.9)
    out = run("pass_rate_filter", before, min=0.3, max=0.9)
    assert out.to_list() == run_in_memory([operator], kept).to_pylist()
    assert 0 < len(out) < len(before) < table.num_rows


@pytest.mark.parametrize("rows_of_a_piece", [1, 7, 50])
@pytest.mark.parametrize("name", [next(iter(step)) for step in OURS])
def test_pieces_do_not_show(monkeypatch, name, rows_of_a_piece):
    monkeypatch.setattr(plugin, "default_chunk_rows", lambda _: rows_of_a_piece)
    table = rollouts()
    before = dataset(table).filter(lambda row: row["response"] != "three")
    kept = table.filter(pa.compute.not_equal(table["response"], "three"))
    frames = [piece.frame for piece in plugin.pieces(before, rows_of_a_piece)]
    assert sum(frame.num_rows for frame in frames) == kept.num_rows
    assert len(frames) > kept.num_rows / (rows_of_a_piece + 7)
    out = run(name, before)
    assert out.to_list() == run_in_memory([get(name)()], kept).to_pylist()


def test_large_types_come_in_plain_and_go_out_as_they_were():
    large = pa.table(
        {
            "prompt_id": pa.array(["a", "a"], pa.large_string()),
            "verdict": pa.array(["correct", "wrong_answer"], pa.large_string()),
            "kept": pa.array([["x"], []], pa.large_list(pa.large_string())),
        }
    )
    assert tables.plain(large).schema.types == [pa.string()] * 2 + [pa.list_(pa.string())]
    out = run("pass_rate_filter", dataset(large))
    assert out.features == dataset(large).features
    assert out.to_list() == large.to_pylist()


def test_a_step_that_leaves_no_row_warns_and_the_run_goes_on():
    """Data-Juicer's own steps do so, too; to stop would lose what earlier steps have made."""
    lines = []
    sink = plugin.logger.add(lines.append, format="{level} {message}")
    try:
        out = run("group_size_filter", dataset(rollouts()), min=1000)
    finally:
        plugin.logger.remove(sink)
    assert len(out) == 0
    n = rollouts().num_rows
    assert lines == [
        "WARNING step 1 group_size_filter: no row is left: it dropped the last "
        f"{n} rows: group_too_small {n}\n"
    ]


def test_a_condition_that_matches_no_row_is_named():
    lines = []
    sink = plugin.logger.add(lines.append, format="{level} {message}")
    try:
        run("group_size_filter", dataset(rollouts()), min=1, where={"prompt_id": "no such"})
    finally:
        plugin.logger.remove(sink)
    (line,) = lines
    n = rollouts().num_rows
    begin = f"WARNING step 1 group_size_filter: `where` matches none of {n} rows: prompt_id is no"
    assert line.startswith(begin)


def test_the_fingerprint_tells_configs_apart():
    table = dataset(rollouts())
    marks = [run("pass_rate_filter", table, min=x)._fingerprint for x in (0.1, 0.1, 0.2)]
    assert marks[0] == marks[1] != marks[2]


def test_a_failure_is_never_skipped():
    rows = pa.table({"prompt_id": ["a"], "verdict": [1]})
    message = message_of(lambda: run("grpo_advantage_mapper", dataset(rows)))
    assert message.startswith("step 1 grpo_advantage_mapper: column 'reward' is missing; there")


def test_a_prompt_that_comes_up_again_is_an_error():
    rows = pa.table({"prompt_id": ["a", "b", "a"], "verdict": ["correct"] * 3})
    message = message_of(lambda: run("pass_rate_filter", dataset(rows)))
    assert message == (
        "step 1 pass_rate_filter: rows 1 and 3 have the same prompt but are not next to each "
        "other; sort the dataset by prompt, see docs/recipes.md"
    )


def test_a_row_has_its_number_after_a_filter_of_theirs():
    prompts = ["a", "filtered", "b", "a"]
    rows = dataset(pa.table({"prompt_id": prompts, "verdict": ["correct"] * 4}))
    left = rows.filter(lambda row: row["prompt_id"] != "filtered")
    message = message_of(lambda: run("pass_rate_filter", left))
    assert "rows 1 and 4 have the same prompt" in message


# dj-process itself


@pytest.fixture(scope="module")
def dj_process(dj_process_of):
    """`dj-process` on rollouts, in a process that others have used; for what only a new one shows,
    there is `new_dj_process`.
    """

    def run(folder, process, *overrides, table=None, executor="default", **head):
        path, table = write_run(folder, process, table, executor, head)
        return dj_process_of(executor)(folder, "--config", str(path), *overrides), path, table

    return run


def new_dj_process(folder, process, *overrides, table=None, executor="default", **head):
    """The command itself."""
    path, table = write_run(folder, process, table, executor, head)
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("dj-process")), "--config", str(path), *overrides],
        cwd=folder,
        env={**os.environ, **OFFLINE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return DjEnded(ran.returncode, ran.stdout), path, table


def write_run(folder, process, table, executor, head):
    """Write a recipe and its data."""
    # Under Ray in several files, cut within groups. The default executor reads files in no order.
    files = 3 if executor == "ray" else 1
    data = folder / "data"
    data.mkdir()
    table = rollouts() if table is None else table
    cuts = [table.num_rows * i // files for i in range(files + 1)]
    for i, (start, stop) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(start, stop - start), data / f"part-{i}.parquet")
    document = {
        "dataset_path": str(data),
        "export_path": str(folder / "out" / "curated.parquet"),
        "np": 1,
        "skip_op_error": True,
        "executor_type": executor,
        "ray_address": "local",
        "ds_cache_dir": str(folder / "cache"),
        **head,
        "process": process,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path, table


def exported_with(folder):
    """The export, with what Data-Juicer keeps beside the rows."""
    path = folder / "out" / "curated.parquet"
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return pa.concat_tables([pq.read_table(file) for file in files], promote_options="permissive")


def exported(folder):
    table = exported_with(folder)
    return table.drop_columns([name for name in table.column_names if name.startswith("__dj__")])


def audit_logs(folder):
    files = sorted((folder / "out" / "curated.run").glob("*/decisions.parquet"))
    return {file.parent.name: pq.read_table(file) for file in files}


def check_same(folder, path, table):
    expected = run_in_memory([step.operator for step in recipe.load(path).steps], table)
    found = exported(folder)
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert 0 < expected.num_rows < table.num_rows * 2


def test_default_executor_gives_the_rows_of_the_reference(tmp_path):
    theirs = [{"whitespace_normalization_mapper": {"text_key": "response"}}]
    more = [{"text_length_filter": {"text_key": "response", "min_len": 4}}]
    dedup = [{"document_deduplicator": {"text_key": "response_id"}}]
    process = theirs + OURS[:2] + more + OURS[2:] + OURS[:1] + dedup
    ran, path, table = new_dj_process(tmp_path, process)
    assert ran.returncode == 0, ran.log
    check_same(tmp_path, path, table)
    decisions = audit_logs(tmp_path)
    assert list(decisions) == [
        "02_pass_rate_filter",
        "03_grpo_advantage_mapper",
        "05_self_verification_mapper",
        "06_label_balance_selector",
        "07_exact_deduplicator",
        "08_pass_rate_filter_2",
    ]
    first = decisions["02_pass_rate_filter"]
    assert first.schema == DECISIONS
    rates = get("pass_rate_filter")(min=0.01).apply(table)
    dropped = table.filter(rates.reasons.is_valid())["response_id"].to_pylist()
    assert first["row_id"].to_pylist() == dropped
    assert set(first["step"].to_pylist()) == {"pass_rate_filter"}


def test_ray_executor_keeps_the_rows_that_no_condition_matches(dj_process, tmp_path):
    some = {"verdict": "correct"}
    process = [
        {"length_filter": {"min": 5, "unit": "characters", "where": some}},
        {"exact_deduplicator": {"within": "all", "where": {"verdict": ["wrong_answer", None]}}},
        {"format_reward_mapper": {"where": some}},
        {"grpo_advantage_mapper": {"where": some}},
        {"pass_rate_filter": {"min": 1.0, "on": "train"}},
    ]
    ran, path, table = dj_process(tmp_path, process, executor="ray")
    assert ran.returncode == 0, ran.log
    kept = recipe.load(path).offline()
    expected = run_in_memory([step.operator for step in kept.steps], table)
    found = exported(tmp_path)
    assert found.select(expected.column_names).to_pylist() == expected.to_pylist()
    assert 0 < expected.num_rows < table.num_rows


def test_ray_executor_gives_the_rows_of_the_reference(dj_process, tmp_path):
    theirs = [{"whitespace_normalization_mapper": {"text_key": "response"}}]
    more = [{"text_length_filter": {"text_key": "response", "min_len": 4}}]
    ran, path, table = dj_process(tmp_path, theirs + OURS[:2] + more + OURS[2:], executor="ray")
    assert ran.returncode == 0, ran.log
    check_same(tmp_path, path, table)
    first = audit_logs(tmp_path)["02_pass_rate_filter"]
    rates = get("pass_rate_filter")(min=0.01).apply(table)
    assert first["row_id"].to_pylist() == (
        table.filter(rates.reasons.is_valid())["response_id"].to_pylist()
    )


@pytest.mark.parametrize("executor", ["default", "ray"])
def test_a_bad_row_stops_the_run_whatever_skip_op_error_is(tmp_path, executor):
    questions = [f"question {row}" for row in range(rollouts().num_rows)]
    questions[17] = ""
    table = rollouts().append_column("question", pa.array(questions))
    table = table.drop_columns(["prompt_id", "prompt", "reference"])
    process = [{"prompt_template_mapper": {"question": "question", "reference": None}}]
    ran, _, _ = new_dj_process(tmp_path, process, table=table, executor=executor)
    assert ran.returncode == 1
    log = ran.log
    line = "step 1 prompt_template_mapper: a row has no text in column 'question'"
    assert log.count(line) == 1
    # Ray's own workers, which are cut off in their work, say so under their name and number.
    ours = [text for text in log.splitlines() if "pid=" not in text]
    assert not [text for text in ours if "Traceback" in text]
    assert not (tmp_path / "out" / "curated.parquet").exists()


@pytest.mark.parametrize("executor", ["default", "ray"])
def test_a_column_of_the_dataset_is_not_replaced(dj_process, tmp_path, executor):
    """The run ends before its first step of ours."""
    theirs = {"whitespace_normalization_mapper": {"text_key": "response"}}
    verify = {"math_verify_mapper": {}}
    process = [theirs, {"length_filter": {"min": 1}}, verify]
    ran, path, _ = dj_process(tmp_path, process, executor=executor)
    assert ran.returncode == 1
    line = path.read_text().split("\n").index("- math_verify_mapper: {}") + 1
    message = (
        f"{path}, line {line}, step 3 math_verify_mapper: would replace columns 'verdict', "
        "'extracted_answer' of the dataset; rename them there, or drop them there to have them "
        "computed again"
    )
    assert ran.log.count(message) == 1
    assert not (tmp_path / "out" / "curated.run").exists()


def test_an_export_of_dj_process_is_computed_again(dj_process, tmp_path):
    """The report beside it says what the steps have written."""
    table = rollouts().drop_columns(["verdict", "extracted_answer"])
    (tmp_path / "first").mkdir()
    ran, _, _ = dj_process(tmp_path / "first", [{"math_verify_mapper": {}}], table=table)
    assert ran.returncode == 0, ran.log
    (tmp_path / "again").mkdir()
    head = {"dataset_path": str(tmp_path / "first" / "out" / "curated.parquet")}
    ran, _, _ = dj_process(tmp_path / "again", [{"math_verify_mapper": {"timeout": 4}}], **head)
    assert ran.returncode == 0, ran.log
    first, again = exported(tmp_path / "first"), exported(tmp_path / "again")
    assert again["verdict"].to_pylist() == first["verdict"].to_pylist()


@pytest.mark.parametrize("executor", ["default", "ray"])
def test_statistics_and_tags_are_in_the_export_where_they_are_kept(dj_process, tmp_path, executor):
    """Under Ray they stay in any case: its exporter looks at the columns of the dataset."""
    process = [
        {"text_length_filter": {"text_key": "response", "min_len": 1}},
        {"usage_counter_mapper": {}},
        *OURS[:3],
        {"words_num_filter": {"text_key": "prompt_id", "min_num": 0}},
    ]
    keep = {"keep_stats_in_res_ds": executor == "default"}
    ran, path, table = dj_process(tmp_path, process, executor=executor, **keep)
    assert ran.returncode == 0, ran.log
    operators = [step.operator for step in recipe.load(path).steps]
    expected, found = run_in_memory(operators, table, keep_stats=True), exported_with(tmp_path)
    assert found["response_id"].equals(expected["response_id"])
    for name in ("__dj__stats__", "__dj__meta__"):
        assert known(found[name]) == known(expected[name])
    assert {"num_words": 1} in known(found["__dj__stats__"])  # A row that a step of ours has added.


def known(column):
    """What a column of statistics or tags has of each row, as JSON or, under Ray, as a struct."""
    rows = [json.loads(x) if isinstance(x, str) else x for x in column.to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_ray_goes_on_when_no_row_is_left(dj_process, tmp_path):
    process = [
        {"length_filter": {"min": 10_000}},
        {"text_length_filter": {"text_key": "response"}},
        {"grpo_advantage_mapper": {}},
        {"exact_deduplicator": {}},
    ]
    ran, _, table = dj_process(tmp_path, process, executor="ray")
    assert ran.returncode == 0, ran.log
    assert [part.num_rows for part in audit_logs(tmp_path).values()] == [table.num_rows, 0, 0]


CUSTOM = """
import sys
import pyarrow.compute as pc
from rejuice.operators import Filter, drop

class ShortAnswerFilter(Filter):
    most: int
    def reads(self):
        return ("response",)
    def decide(self, table):
        return drop({"too_long": pc.greater(pc.utf8_length(table["response"]), self.most)})

"""


def test_an_operator_on_disk_is_known(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(CUSTOM)
    process = [{"short_answer_filter": {"most": 5}}]
    ran, path, table = new_dj_process(tmp_path, process, custom_operator_paths=[str(file)])
    assert ran.returncode == 0, ran.log
    check_same(tmp_path, path, table)
    assert exported(tmp_path).num_rows < table.num_rows
