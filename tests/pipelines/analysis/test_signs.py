"""The signs of stored runs: exports and training, from files."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from real_responses import RECIPE, overrides
from tiny_run import AFTER, run_tiny, write_tiny
from trained_run import write_trained

from rejuice.pipelines.analysis.audit import sign_lines
from rejuice.pipelines.analysis.reward_hacking import audit_signs, sign_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.cli.shared import open_run
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

PROCESS = (
    {"prompt_template_mapper": {}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    AFTER[0],
    {"format_reward_mapper": {"style": "boxed"}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 0.5}}},
    {"grpo_advantage_mapper": {}},
)


def response(rng, right, boxed, words):
    answer = "7" if right else "8"
    filler = " ".join(rng.choice(["so", "then", "thus", "hence"], words))
    return f"{filler} \\boxed{{{answer}}}" if boxed else f"{filler}. The answer is {answer}"


def written(folder, boxes_go_with):
    """An export of 60 prompts: the format goes with wrong responses, or with nothing."""
    rng = np.random.default_rng(0)
    rows = []
    for at in range(60):
        right = rng.random(6) < 0.5
        boxed = ~right if boxes_go_with == "wrong" else rng.random(6) < 0.5
        words = rng.integers(3, 30, 6)
        pairs = zip(right, boxed, words, strict=True)
        responses = [response(rng, *each) for each in pairs]
        rows.append(
            {"question": f"What is {at} + 7 - {at}?", "answer": "7", "responses": responses}
        )
    path = write_tiny(folder, PROCESS)
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    engine.run(load(path), chunk_rows=25)
    return open_stored(folder / "curated.parquet")


def test_a_format_that_goes_with_wrong_responses_is_found_in_an_export(tmp_path):
    stored = written(tmp_path, "wrong")
    found = {each.name: each for each in audit_signs(stored, 0)}
    assert list(found) == [
        "length pays", "format without accuracy", "format carries the advantage", "many boxes",
        "echo of the prompt",
    ]  # fmt: skip
    sign = found["format without accuracy"]
    assert (sign.alarm, sign.effect) == (True, pytest.approx(1.0))
    assert sign.p < 0.0001
    known = stored.sets[0].final()
    ids = dict(
        zip(known["response_id"].to_pylist(), known["reward_format"].to_pylist(), strict=True)
    )
    assert len(sign.rows) == 20
    assert set(sign.rows) <= set(ids)
    assert found["many boxes"].reason == "too few groups (0)"


def test_a_clean_export_has_no_alarm_and_the_same_figures_again(tmp_path):
    stored = written(tmp_path, "nothing")
    found = audit_signs(stored, 0)
    assert [each.name for each in found if each.alarm] == []
    assert [each.p for each in found].count(None) == 2, "no boxes twice, and no echo"
    again = audit_signs(stored, 0)
    assert [(each.p, each.rows) for each in again] == [(each.p, each.rows) for each in found]


def test_three_groups_are_too_few(tmp_path):
    run_tiny(tmp_path)
    found = audit_signs(open_stored(tmp_path / "curated.parquet"), 0)
    assert {each.p for each in found} == {None}
    assert all(each.reason.startswith("too few groups (") for each in found)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four steps on the same rows, in which the format goes with wrong responses."""
    folder = tmp_path_factory.mktemp("trained")
    (one,) = written(folder, "wrong").sets
    rollouts = pa.concat_tables([one.base(part).table() for part in range(one.parts)])
    return write_trained(folder / "run", rollouts, range(1, 5))


@pytest.mark.slow
def test_steps_of_training_are_one_set(trained):
    found = {each.name: each for each in audit_signs(open_run(trained), 0)}
    assert {each.set for each in found.values()} == {"answers"}
    # Every step has the same rows, so nothing drifts.
    for name in ("length drift", "format outruns accuracy"):
        assert found[name].p > 0.01
        assert found[name].effect == pytest.approx(0.0, abs=1e-9)
    assert [each.name for each in found.values() if each.alarm] == ["format without accuracy"]


def test_one_step_of_training_has_no_drift(trained):
    found = audit_signs(open_run(trained / "steps" / "000003"), 0)
    assert {each.set for each in found} == {"step 3"}
    assert not {"length drift", "format outruns accuracy"} & {each.name for each in found}


def test_validation_is_read_from_the_points():
    from rejuice.pipelines.analysis.reward_hacking import _validation

    points = [
        {"step": 0.0, "val-core/openai/gsm8k/acc/mean@1": 0.25},
        {"step": 1.0, "rejuice/pass_rate": 0.5},
        {"step": 2.0, "rejuice/validation/a/mean@1": 0.3, "rejuice/validation/b/mean@1": 0.5,
         "rejuice/validation/a/mean_low": 0.0, "val-core/x/acc/mean@1": 0.9},
    ]  # fmt: skip
    assert _validation(points) == [(0, 0.25), (2, pytest.approx(0.4))]


@pytest.mark.slow
def test_recorded_responses_of_a_real_model(shared_data, tmp_path):
    """As docs/signs.md has it."""
    recipe = load(RECIPE, overrides(shared_data / "gsm8k" / "test.jsonl", tmp_path))
    engine.run(recipe)
    lines = list(sign_lines(audit_signs(open_stored(tmp_path / "curated.parquet"), 0)))
    page = RECIPE.parents[1] / "docs" / "signs.md"
    assert "\n".join(lines) in page.read_text("utf-8")


@pytest.mark.slow
def test_boxes_that_pass_are_found_among_real_responses(shared_data, tmp_path):
    """For each problem, right responses get a second box in one of two cases, wrong ones never."""
    fields = overrides(shared_data / "gsm8k" / "test.jsonl", tmp_path)
    responses = tmp_path / "responses.parquet"
    table = pq.read_table(responses)
    engine.run(load(RECIPE, fields))
    before = sign_rows(open_stored(tmp_path / "curated.parquet").sets, "", 0)
    # Rows are in the order of the file: the right ones are found by it.
    boxed_N = (before.right_N == 1) & (np.arange(len(before.right_N)) % 2 == 0)
    texts = table["response"].to_pylist()
    more = [f"{t} \\boxed{{1}} {t}" if b else t for t, b in zip(texts, boxed_N, strict=True)]
    at = table.column_names.index("response")
    pq.write_table(table.set_column(at, "response", pa.array(more)), responses)
    engine.run(load(RECIPE, fields))
    found = {x.name: x for x in audit_signs(open_stored(tmp_path / "curated.parquet"), 0)}
    assert found["many boxes"].alarm
    assert found["many boxes"].effect > 0.3


@pytest.mark.slow
def test_the_quickstart_has_no_alarm(tmp_path):
    """Its diversity reward goes to longer and to wrong responses, but hardly moves advantages."""
    path = RECIPE.with_name("quickstart.yaml")
    engine.run(load(path, {"export_path": str(tmp_path / "curated.parquet")}))
    found = audit_signs(open_stored(tmp_path / "curated.parquet"), 0)
    assert [each.name for each in found if each.alarm] == []
    assert [each.name for each in found if each.reason.startswith("no alarm: it explains")] == [
        "length pays",
        "diversity without accuracy",
    ]
