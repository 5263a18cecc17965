"""`rejuice view` of training runs and steps: the values of dropped rows are computed again."""

import json

import command
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from page_fixture import STEPS, Page, recorded

from rejuice.pipelines.dataset.arrow_files import read_arrow


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def training_run(rejuice, tmp_path):
    """A run of three steps: in the last, training itself has dropped a row."""
    folder = tmp_path / "try"
    for number in (1, 2, 3):
        step = folder / "steps" / f"{number:06d}"
        step.mkdir(parents=True)
        table = pa.Table.from_pylist(recorded())
        tokens = pa.array([[7] * (at + 1) for at in range(12)], pa.list_(pa.int32()))
        pq.write_table(table.append_column("response_token_ids", tokens), step / "rollouts.parquet")
        recipe = {
            "project_name": "try",
            "dataset_path": str(step / "rollouts.parquet"),
            "export_path": str(step / "again.parquet"),
            "process": STEPS,
        }
        (step / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
        assert rejuice("run", step / "recipe.yaml", "-q")[0] == 0
        curated = pq.read_table(step / "again.parquet")
        decisions = [read_arrow(file) for file in sorted(step.glob("again.run/*/decisions.arrow"))]
        if number == 3:
            lost = {
                "row_id": curated["response_id"][:1],
                "step": ["training"],
                "reason": ["excess_group"],
            }
            decisions.append(pa.table(lost))
            curated = curated.slice(1)
        pq.write_table(curated, step / "curated.parquet")
        pq.write_table(pa.concat_tables(decisions), step / "decisions.parquet")
    lines = [
        {"step": n, "data": {"rejuice/reward": n / 10, "actor/entropy": 1.0}} for n in range(4)
    ]
    (folder / "metrics.earlier.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines[:2]))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines[2:]) + '{"st')
    (folder / "recipe.yaml").write_text("process: []\n")
    return folder


def test_a_run_has_a_set_for_each_step_and_its_curves(training_run, rejuice, tmp_path):
    status, out, _ = rejuice("view", training_run, "--no_open")
    assert (status, out.partition(";")[0]) == (0, "try.html: 36 rows, 9 groups, 3 sets")
    page = Page(tmp_path / "try.html")
    sets = page.head["sets"]
    assert [(each["name"], each["step"], each["banner"]) for each in sets] == [
        (f"step {number}", number, "") for number in (1, 2, 3)
    ]
    assert [point["step"] for point in page.head["points"]] == [0, 1, 2, 3]
    assert page.head["points"][2]["rejuice/reward"] == 0.2
    assert sets[0]["figures"]["length_unit"] == "tokens"
    assert page.column("length").tolist() == list(range(1, 13))


@pytest.mark.parametrize("number", [1, 3])
def test_a_step_has_the_values_of_dropped_rows(training_run, rejuice, tmp_path, number):
    step = training_run / "steps" / f"{number:06d}"
    assert rejuice("view", step, "--no_open", "-o", "p.html")[0] == 0
    page, curated = Page(tmp_path / "p.html"), pq.read_table(step / "curated.parquet")
    at = np.flatnonzero(page.column("fate") < 0)
    for name in ("reward", "advantage"):
        assert page.column(name)[at].tobytes() == curated[name].to_numpy().tobytes()
    assert page.column("accuracy")[4:8].tolist() == [1.0] * 4
    funnel = page.head["sets"][0]["figures"]["funnel"]
    assert funnel[3]["dropped"] == {"too_easy": 4}
    if number == 3:
        assert funnel[-1]["step"] == "training"
        assert funnel[-1]["dropped"] == {"excess_group": 1}
        assert page.slugs("reason")[0] == "excess_group"
    assert page.head["title"] == f"try, step {number}"


def test_another_outcome_of_the_steps_is_in_the_banner(training_run, rejuice, tmp_path):
    step = training_run / "steps" / "000001"
    pq.write_table(pq.read_table(step / "curated.parquet").slice(2), step / "curated.parquet")
    assert rejuice("view", step, "--no_open", "-o", "p.html")[0] == 0
    banner = Page(tmp_path / "p.html").head["sets"][0]["banner"]
    assert "the recipe's steps keep 8 rows now, of which training kept 6" in banner


@pytest.mark.recommended("pipelines/commands/view.py", "write --steps A:B, such as 40:60")
@pytest.mark.recommended("pipelines/commands/view.py", "--steps {…} is no range")
@pytest.mark.recommended("pipelines/page/of_training.py", "--steps {…}:{…}: {…} has {…}")
def test_some_steps_of_a_run(training_run, rejuice, tmp_path):
    refused = "--steps a is no range; write --steps A:B, such as 40:60"
    assert rejuice("view", training_run, "--steps", "a") == (2, "", f"rejuice: {refused}\n")
    refused = f"--steps 40:60: {training_run.name} has steps 1 to 3; give a range in it"
    assert rejuice("view", training_run, "--steps", "40:60") == (2, "", f"rejuice: {refused}\n")
    assert rejuice("view", training_run, "--steps", "2:3", "--no_open", "-o", "p.html")[0] == 0
    assert [each["step"] for each in Page(tmp_path / "p.html").head["sets"]] == [2, 3]


def test_a_step_that_fails_now_leaves_what_was_kept(training_run, rejuice, tmp_path):
    step = training_run / "steps" / "000001"
    table = pq.read_table(step / "rollouts.parquet")
    pq.write_table(table.drop(["reference"]), step / "rollouts.parquet")
    assert rejuice("view", step, "--no_open", "-o", "p.html")[0] == 0
    page = Page(tmp_path / "p.html")
    banner = page.head["sets"][0]["banner"]
    assert banner.startswith("Only the rows that were kept are shown, because a step failed now: ")
    assert (
        page.column("reward").tobytes()
        == pq.read_table(step / "curated.parquet")["reward"].to_numpy().tobytes()
    )


def test_judgements_are_right_where_they_are_the_label(training_run, rejuice, tmp_path):
    folder = training_run / "steps" / "000002" / "verify"
    folder.mkdir()
    judged = {
        "prompt_id": ["a", "a", "a", "b"],
        "response_id": ["1", "2", "3", "4"],
        "response": ["Yes", "No", "perhaps", "No"],
        "judgement": ["Yes", "No", None, "No"],
        "label": ["Yes", "Yes", "Yes", "No"],
        "reward": [1.0, 0.0, 0.0, 1.0],
    }
    for name in ("rollouts", "curated"):
        pq.write_table(pa.table(judged), folder / f"{name}.parquet")
    none = pa.table({name: pa.array([], pa.string()) for name in ("row_id", "step", "reason")})
    pq.write_table(none, folder / "decisions.parquet")
    recipe = {
        "dataset_path": str(folder / "rollouts.parquet"),
        "export_path": str(folder / "again.parquet"),
        "process": ["grpo_advantage_mapper"],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert rejuice("view", training_run, "--no_open", "-o", "p.html")[0] == 0
    page = Page(tmp_path / "p.html")
    assert [each["kind"] for each in page.head["sets"]] == [
        "answers",
        "answers",
        "judgements",
        "answers",
    ]
    assert page.slugs("verdict", 2) == ["correct", "wrong_answer", "no_answer", "correct"]
    groups = page.head["sets"][2]["figures"]["groups"]
    assert (groups["mixed"], groups["all_right"]) == (1, 1)


def test_a_run_without_rollouts_has_its_curves(training_run, rejuice, tmp_path):
    for file in training_run.glob("steps/*/rollouts.parquet"):
        file.unlink()
    assert rejuice("view", training_run, "--no_open", "-o", "p.html")[0] == 0
    assert Page(tmp_path / "p.html").head["sets"] == []
