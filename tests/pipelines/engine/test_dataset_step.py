"""A step of dataset scope gives the same in any shards, and is resumed at the missing ones."""

import io
import random
import weakref

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from rejuice.operators import OperatorError
from rejuice.pipelines.dataset import files
from rejuice.pipelines.dataset.files import read_checked
from rejuice.pipelines.engine import dataset_step
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.dataset_step import (
    commit_decisions,
    count_shards,
    decide_shard,
    read_digests,
    write_digest,
)
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.engine.plan import load as load_commit
from rejuice.pipelines.engine.progress import Progress
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

COUNTED = """
from typing import ClassVar
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rejuice.operators import Change, Operator, Scope, drop
from rejuice.operators.groups import hash_each

class CountedMapper(Operator):
    \"\"\"How often each text occurs; a text that occurs `most` times or more is dropped.\"\"\"

    most: int = 4
    makes_rows: bool = False
    scope: ClassVar = Scope.DATASET
    reasons: ClassVar = {"frequent": "the text is too frequent"}

    def reads(self):
        return ("response",)

    def writes(self):
        return ("times",)

    def shard(self, digest):
        return hash_each(digest["response"])

    def apply(self, table):
        texts = table["response"].combine_chunks().dictionary_encode()
        codes_N = np.asarray(texts.indices.fill_null(len(texts.dictionary)))
        times_N = np.bincount(codes_N)[codes_N] if len(codes_N) else np.zeros(0, np.int64)
        return Change(
            {"times": pa.array(times_N)},
            drop({"frequent": times_N >= self.most}),
            parents=np.arange(table.num_rows) if self.makes_rows else None,
            notes={"rows": float(table.num_rows), "frequent": float((times_N >= self.most).sum())},
            logged={"an odd text": int((times_N == 1).sum())},
            failed=np.flatnonzero(times_N == 2),
        )
"""
STEPS = [
    {"exact_deduplicator": {}},
    {"exact_deduplicator": {"within": "all"}},
    {"exact_deduplicator": {"unit": "prompt"}},
    {"minhash_deduplicator": {"ngram": 1, "threshold": 0.5}},
    {"minhash_deduplicator": {"ngram": 1, "threshold": 0.5, "within": "all"}},
    {"minhash_deduplicator": {"unit": "prompt", "ngram": 1, "threshold": 0.5}},
    {"counted_mapper": {}},
]
TEXTS = st.none() | st.text(st.sampled_from("ab 12"), min_size=1, max_size=9)


@st.composite
def responses(draw):
    """Groups of rows with few different texts, so that many repeat."""
    texts = st.sampled_from(draw(st.lists(TEXTS, min_size=1, max_size=6)))
    groups = draw(st.lists(st.lists(texts, min_size=1, max_size=4), min_size=1, max_size=12))
    prompts = draw(st.lists(texts, min_size=len(groups), max_size=len(groups)))
    return [
        {"prompt_id": f"p{g}", "prompt": prompt, "response": text}
        for g, (group, prompt) in enumerate(zip(groups, prompts, strict=True))
        for text in group
    ]


@pytest.fixture
def opened(recipe_file, tmp_path):
    """A factory of plans of one step over rows in chunks."""

    def make(step, rows, chunk_rows=3, **head):
        (tmp_path / "counted.py").write_text(COUNTED)
        data = tmp_path / "rows.parquet"
        names = ("prompt_id", "prompt", "response")
        pq.write_table(
            pa.Table.from_pylist(rows, pa.schema([(n, pa.string()) for n in names])), data
        )
        files = [str(tmp_path / "counted.py")]
        path = recipe_file([step], dataset_path=str(data), custom_operator_paths=files, **head)
        return Plan.open(load(path), tmp_path / "cache", chunk_rows)

    return make


def write_digests(plan):
    for chunk in range(len(plan.source.rows)):
        write_digest(plan, plan.steps[0], plan.source_frame(chunk), chunk)


def commits(plan, count=1):
    """Each chunk's commit, as bytes and as read, where a step is decided in so many shards."""
    (step,) = plan.steps
    write_digests(plan)
    for number in random.Random(0).sample(range(count), count):
        decide_shard(plan, step, count, number)
    decided = sorted(plan.folder(step).glob("decided-*"))
    commit_decisions(plan, step, read_digests(plan, step), list(map(load_commit, decided)))
    paths = [plan.path(step, chunk) for chunk in range(len(plan.source.rows))]
    assert sorted(paths[0].parent.iterdir()) == paths  # Digests and decisions are cleared away.
    return [path.read_bytes() for path in paths], [
        load_commit(path, mapped=False) for path in paths
    ]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step.items())))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=responses(), chunk_rows=st.integers(2, 12))
def test_any_shards_give_the_same_commits(opened, step, rows, chunk_rows):
    plan = opened(step, rows, chunk_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_step.time, "perf_counter", lambda: 0.0)  # Commits have seconds.
        patch.setattr(files, "sync", lambda path: None)  # Hundreds of files: power does not fail.
        texts, results = commits(plan)
        for count in (2, 7):
            assert commits(plan, count)[0] == texts
    whole = run_in_memory([plan.steps[0].operator], pa.Table.from_pylist(rows))
    kept = [result.change for result in results]
    dropped = sum(0 if c.reasons is None else len(c.reasons.drop_null()) for c in kept)
    assert len(rows) - dropped == whole.num_rows


def test_figures_of_shards_add_up(opened):
    rows = [{"prompt_id": f"p{i}", "response": text} for i, text in enumerate("abcabdaaef")]
    plan = opened({"counted_mapper": {}}, rows)
    _, results = commits(plan, 7)
    changes = [result.change for result in results]
    times = [each for change in changes for each in change.columns["times"].to_pylist()]
    assert times == [4, 2, 1, 4, 2, 1, 4, 4, 1, 1]
    assert changes[0].notes == {"rows": 10.0, "frequent": 4.0}
    assert sum(sum(change.logged.values()) for change in changes) == 4
    assert [change.failed.tolist() for change in changes] == [[1], [1], [], []]
    assert results[0].seconds > 0


def test_a_shard_has_about_as_many_rows_as_fit(opened, monkeypatch):
    rows = [{"prompt_id": f"p{i}", "response": f"text {i}"} for i in range(500)]
    for most, count in ((dataset_step.SHARD_BYTES, 1), (12_000, 4)):
        monkeypatch.setattr(dataset_step, "SHARD_BYTES", most)
        plan = opened({"exact_deduplicator": {"within": "all"}}, rows, chunk_rows=200)
        write_digests(plan)
        assert count_shards(plan, plan.steps[0], Progress(quiet=True)) == count
        for path in plan.folder(plan.steps[0]).iterdir():
            path.unlink()


def test_a_digest_without_shards_beside_one_with_them(opened, monkeypatch):
    rows = [{"prompt_id": f"p{i}", "response": f"text {i // 2}"} for i in range(500)]
    plan = opened({"exact_deduplicator": {"within": "all"}}, rows, chunk_rows=200)
    write_digests(plan)
    *_, last = sorted(plan.folder(plan.steps[0]).glob("digest-*"))
    files.write_checked(last, read_checked(last).drop_columns(["__shard__"]))
    monkeypatch.setattr(dataset_step, "SHARD_BYTES", 12_000)
    assert count_shards(plan, plan.steps[0], Progress(quiet=True)) == 1
    commits(plan)


def test_few_digests_are_in_memory_at_a_time(opened, monkeypatch):
    rows = [{"prompt_id": f"p{i}", "response": f"text {i % 7}"} for i in range(40)]
    plan = opened({"counted_mapper": {}}, rows, chunk_rows=2)
    write_digests(plan)
    alive, most = set(), []

    def read(path):
        table = read_checked(path)
        alive.add(path)
        weakref.finalize(table, alive.discard, path)
        most.append(len(alive))
        return table

    monkeypatch.setattr(dataset_step, "read_checked", read)
    monkeypatch.setattr(dataset_step, "_REQUESTS", 2)
    commits(plan, 3)
    assert len(most) > 3 * len(plan.source.rows)
    assert max(most) <= 4


@pytest.mark.slow
def test_a_run_in_shards_by_two_workers_is_a_run_in_one(
    recipe_file, rollouts, tmp_path, monkeypatch
):
    process = [{"minhash_deduplicator": {"within": "all"}}, {"label_balance_selector": {}}]
    recipe = load(recipe_file(process, rollouts(60).to_pylist()))
    engine.run(recipe, chunk_rows=20, cache=tmp_path / "one")
    one = recipe.head.export_path.read_bytes()
    monkeypatch.setattr(dataset_step, "SHARD_BYTES", 2_000)
    decided = []
    original = dataset_step._decide
    monkeypatch.setattr(
        dataset_step,
        "_decide",
        lambda plan, *of: (decided.append(of[2:] or (1, 0)), original(plan, *of))[1],
    )
    for workers in ("1", "2"):
        recipe = load(recipe.path, {"np": workers})
        engine.run(recipe, chunk_rows=20, cache=tmp_path / workers)
        assert recipe.head.export_path.read_bytes() == one
    assert decided.count((1, 0)) == 2  # The selector needs all rows together.
    assert len(decided) > 10


def test_a_run_that_was_stopped_decides_the_missing_shards_only(recipe_file, rollouts, monkeypatch):
    recipe = load(recipe_file([{"exact_deduplicator": {}}], rollouts(60).to_pylist()))
    whole = engine.run(recipe, chunk_rows=20)
    one = recipe.head.export_path.read_bytes()
    cache = recipe.head.export_path.parent / ".rejuice"
    (folder,) = cache.glob("exact_deduplicator-*")
    for path in folder.iterdir():
        path.unlink()
    monkeypatch.setattr(dataset_step, "SHARD_BYTES", 2_000)
    decided, original = [], dataset_step._decide

    def stop_at_the_third(plan, step, digests, *shard):
        decided.append(shard)
        if len(decided) == 3:
            raise KeyboardInterrupt
        return original(plan, step, digests, *shard)

    monkeypatch.setattr(dataset_step, "_decide", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        engine.run(recipe, chunk_rows=20)
    assert len(list(folder.glob("decided-*"))) == 2
    report = engine.run(recipe, chunk_rows=20)
    assert decided[3] == decided[2]
    assert len(set(decided)) == len(decided) - 1
    assert report.steps[0].dropped == whole.steps[0].dropped
    assert recipe.head.export_path.read_bytes() == one
    assert not [*folder.glob("decided-*"), *folder.glob("digest-*")]


DRAWN = """
import pyarrow as pa
from rejuice.operators import Mapper

class DrawMapper(Mapper):
    file: str
    @property
    def asks_server(self): return True
    def reads(self): return ("response_id",)
    def writes(self): return ("draw",)
    def map(self, table):
        with open(self.file) as file:
            drawn = file.read()
        ids = table["response_id"].to_pylist()
        return {"draw": pa.array([drawn or each for each in ids])}
"""


def test_decisions_about_other_answers_are_forgotten(recipe_file, rollouts, monkeypatch, tmp_path):
    (tmp_path / "drawn.py").write_text(DRAWN)
    file = tmp_path / "draw"
    file.write_text("the same")
    steps = [
        {"draw_mapper": {"file": str(file)}},
        {"exact_deduplicator": {"column": "draw", "within": "all"}},
    ]
    rows, own = rollouts(60).to_pylist(), [str(tmp_path / "drawn.py")]
    recipe = load(recipe_file(steps, rows, custom_operator_paths=own))
    monkeypatch.setattr(dataset_step, "SHARD_BYTES", 2_000)
    with monkeypatch.context() as patch:
        patch.setattr(dataset_step, "commit_decisions", stopped)
        with pytest.raises(KeyboardInterrupt):
            engine.run(recipe, chunk_rows=20)
    cache = recipe.head.export_path.parent / ".rejuice"
    (lost,) = cache.glob("draw_mapper-*/000000.arrow")
    lost.unlink()
    file.write_text("")
    engine.run(recipe, chunk_rows=20)
    draws = pq.read_table(recipe.head.export_path)["draw"].to_pylist()
    assert len(set(draws)) == len(draws) > 2
    assert draws[-1] == "the same"


def stopped(*_):
    raise KeyboardInterrupt


def test_a_commit_that_is_missing_is_decided_again(recipe_file, rollouts):
    recipe = load(recipe_file([{"exact_deduplicator": {}}], rollouts(60).to_pylist()))
    engine.run(recipe, chunk_rows=20)
    one = recipe.head.export_path.read_bytes()
    (lost,) = recipe.head.export_path.parent.glob(".rejuice/exact_deduplicator-*/000002.arrow")
    lost.unlink()
    engine.run(recipe, chunk_rows=20)
    assert recipe.head.export_path.read_bytes() == one
    assert lost.exists()


def test_much_memory_is_reported_first(recipe_file, rollouts, monkeypatch):
    monkeypatch.setattr(dataset_step, "_MUCH_BYTES", 1)
    shown = io.StringIO()
    recipe = load(recipe_file([{"label_balance_selector": {}}], rollouts(20).to_pylist()))
    engine.run(recipe, progress=Progress(Console(file=shown, width=200)))
    line = "step 1 label_balance_selector decides about all 60 rows together: it needs at least"
    assert f"{line} 0.0 GiB of memory" in shown.getvalue().splitlines()


def test_a_step_that_makes_rows_has_no_shards(opened):
    plan = opened({"counted_mapper": {"makes_rows": True, "most": 99}}, [{"prompt_id": "p"}])
    write_digests(plan)
    with pytest.raises(OperatorError) as caught:
        decide_shard(plan, plan.steps[0], 2, 0)
    assert str(caught.value) == (
        f"{plan.recipe.path}, line 4, step 1 counted_mapper: counted_mapper makes rows, so that "
        "shard() must return None; see CONTRIBUTING.md, the operator contract"
    )


@pytest.mark.slow
def test_chunks_that_lost_all_rows(recipe_file, rollouts):
    steps = [{"pass_rate_filter": {"min": 0.99}}, {"exact_deduplicator": {"within": "all"}}]
    steps += [{"minhash_deduplicator": {"unit": "prompt", "column": "verdict"}}]
    rows = rollouts(30).to_pylist()
    recipe = load(recipe_file(steps, rows))
    report = engine.run(recipe, chunk_rows=2)
    expected = run_in_memory([step.operator for step in recipe.steps], rollouts(30))
    assert 0 < report.rows_out == expected.num_rows
    assert pq.read_table(recipe.head.export_path).to_pylist() == expected.to_pylist()
