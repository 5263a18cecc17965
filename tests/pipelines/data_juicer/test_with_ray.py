"""Data-Juicer's deduplicators for Ray, as steps of ours."""

import numpy as np
import pyarrow as pa
import pytest
from change_of import change_of

from rejuice.operators import OperatorError, Scope
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.data_juicer import catalogue, steps
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.ray_session import LOCAL, connected_to_ray

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

FOR_RAY = {
    "ray_bts_minhash_cpp_deduplicator", "ray_bts_minhash_deduplicator", "ray_document_deduplicator",
    "ray_image_deduplicator", "ray_video_deduplicator",
}  # fmt: skip
WORDS = [f"word{n}" for n in range(40)]


def table(rows=60):
    """Rows of 20 texts of 12 words, three of each in a drawn order; columns of many types."""
    draw = np.random.default_rng(3)
    texts = [" ".join(draw.choice(WORDS, 12)) for _ in range(rows // 3)] * 3
    columns = {
        "text": [texts[at] for at in draw.permutation(rows)],
        "id": pa.array(range(rows), pa.int32()),
        "prompt": pa.array([[{"role": "user", "content": "q"}]] * rows),
        "vector": pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32(), 2)),
        "__dj__stats__": pa.array(['{"n":3}'] * rows).cast(pa.json_()),
    }
    return pa.table(columns)


def test_operators_for_ray_are_known_by_their_class():
    found = {name: catalogue.find(name) for name in catalogue.names()}
    assert {n for n, each in found.items() if each.needs_ray} == FOR_RAY
    assert {steps.step(n, {}).scope for n in sorted(FOR_RAY)[1:3]} == {Scope.DATASET}


def test_a_database_is_not_emptied_before_the_step(monkeypatch):
    made = []
    monkeypatch.setattr(steps, "_instances", {})
    monkeypatch.setattr(steps, "_load", lambda *given: made.append(given))
    steps.step("ray_document_deduplicator", {}).preflight()
    assert not made
    steps.step("document_deduplicator", {}).preflight()
    assert made


@pytest.fixture(scope="module")
def on_ray():
    """Ray as the steps start it; each step that finds it running leaves it so."""
    ray = pytest.importorskip("ray")
    assert not ray.is_initialized()
    with connected_to_ray(LOCAL):
        yield ray
        assert ray.is_initialized()
    assert not ray.is_initialized()


def dropped(name, rows, **fields):
    change = change_of(steps.step(name, fields), Frame.of(rows))
    if name in FOR_RAY:
        assert not change.columns
        assert not change.without
    assert set(change.reasons.to_pylist()) == {None, name}
    return change.reasons.is_valid()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ray_document_deduplicator", "document_deduplicator"),
        ("ray_bts_minhash_deduplicator", "document_minhash_deduplicator"),
    ],
)
def test_the_first_of_equals_is_kept(on_ray, name, other):
    rows = table()
    _, first = np.unique(rows["text"].to_pylist(), return_index=True)
    mask = np.ones(rows.num_rows, bool)
    mask[first] = False
    assert dropped(name, rows).to_pylist() == mask.tolist()
    assert dropped(other, rows).to_pylist() == mask.tolist()


def test_a_run_that_uses_one_twice_in_chunks(on_ray):
    process = ["ray_document_deduplicator", {"text_length_filter": {"min_len": 1}}] * 2
    rows = table()
    out = run(Recipe(process, rows), chunk_rows=7)
    assert [step.rows_out for step in out.report.steps] == [20] * 4
    assert set(out.decisions["reason"].to_pylist()) == {"ray_document_deduplicator"}
    _, first = np.unique(rows["text"].to_pylist(), return_index=True)
    assert out.table["id"].to_pylist() == sorted(first)
    assert out.table.column_names == ["text", "id", "prompt", "vector"]


def test_a_failure_is_one_line_and_its_rows_are_not_searched(on_ray):
    with pytest.raises(OperatorError) as raised:
        dropped("ray_document_deduplicator", table(), text_key="id")
    assert str(raised.value) == (
        "failed under Ray with AttributeError: 'int' object has no attribute 'strip'"
    )
