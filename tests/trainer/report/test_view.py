"""`rejuice view` and `whatif` of training runs and steps."""

import json
import shlex

import command
import numpy as np
import pyarrow.parquet as pq
import pytest
from page_fixture import Page
from trained_run import tiny_rollouts, write_trained


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return tiny_rollouts(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def training_run(tmp_path, rollouts):
    return write_trained(tmp_path / "try", rollouts, (1, 2, 3))


@pytest.mark.slow
def test_a_run_has_a_set_for_each_step_and_its_curves(training_run, rejuice, tmp_path):
    status, out, _ = rejuice("view", training_run, "--no-open")
    assert (status, out.partition(";")[0]) == (0, "try.html: 36 rows, 9 groups, 3 sets")
    page = Page(tmp_path / "try.html")
    sets = page.head["sets"]
    assert [(each["name"], each["step"], each["banner"]) for each in sets] == [
        (f"step {number}", number, "") for number in (1, 2, 3)
    ]
    assert page.head["opens_at"] == 2  # At the last step.
    assert page.head["recipe"] == (training_run / "recipe.yaml").read_text("utf-8")
    assert [point["step"] for point in page.head["curves"][0]["points"]] == [1, 2, 3]
    assert page.head["curves"][0]["points"][1]["rejuice/pass_rate"] == 0.5


@pytest.mark.slow
def test_the_page_of_a_run_by_its_recipe_stands_beside_the_run(training_run, rejuice, tmp_path):
    status, out, _ = rejuice("view", training_run / "recipe.yaml", "--no-open")
    assert (status, (tmp_path / "try.html").is_file()) == (0, True), out


@pytest.mark.slow
def test_two_runs_have_their_curves_apart(training_run, rollouts, rejuice, tmp_path):
    other = write_trained(tmp_path / "other", rollouts, (1, 2))
    assert rejuice("view", training_run, other, "--no-open", "-o", "p.html")[0] == 0
    head = Page(tmp_path / "p.html").head
    assert [(each["run"], len(each["points"])) for each in head["curves"]] == [
        (str(training_run), 3),
        (str(other), 2),
    ]
    assert [each["run"] for each in head["sets"]] == [str(training_run)] * 3 + [str(other)] * 2


def test_a_damaged_step_is_one_line(training_run, rejuice, tmp_path):
    damaged = training_run / "steps" / "000002" / "values.parquet"
    damaged.write_bytes(b"PAR1")
    shown = damaged.relative_to(tmp_path)
    status, _, err = rejuice("view", training_run, "--no-open", "-o", "p.html")
    assert (status, err) == (2, f"rejuice: {shown} cannot be read; train the step again\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
def test_a_step_has_the_values_of_dropped_rows(training_run, rejuice, tmp_path, number):
    step = training_run / "steps" / f"{number:06d}"
    assert rejuice("view", step, "--no-open", "-o", "p.html")[0] == 0
    page, curated = Page(tmp_path / "p.html"), pq.read_table(step / "curated.parquet")
    at = np.flatnonzero(page.column("fate") < 0)
    for name in ("reward", "advantage"):
        assert page.column(name)[at].tobytes() == curated[name].to_numpy().tobytes()
    assert page.column("reward_accuracy")[4:8].tolist() == [1.0] * 4
    funnel = page.head["sets"][0]["figures"]["funnel"]
    assert funnel[3]["dropped"] == {"too_easy": 4}
    assert (funnel[-1]["step"], funnel[-1]["dropped"]) == ("training", {"surplus_group": 1})
    assert page.slugs("reason")[0] == "surplus_group"
    assert page.head["title"] == f"try, step {number}"


@pytest.mark.slow
def test_steps_without_values_have_the_rows_that_are_left(training_run, rejuice, tmp_path):
    step = training_run / "steps" / "000001"
    (step / "values.parquet").unlink()
    assert rejuice("view", step, "--no-open", "-o", "p.html")[0] == 0
    page = Page(tmp_path / "p.html")
    head = page.head["sets"][0]
    left = "Only rows that are left are here, without their way"
    assert head["banner"] == f"{left}: step 1 has no values.parquet. "
    assert (head["figures"]["sampled"], head["rows"]) == (None, 7)
    assert (page.column("fate") < 0).all()
    assert all(row.get("extracted_answer") for row in page.rows())


@pytest.mark.slow
@pytest.mark.recommended("pipelines/cli/shared.py", "write --steps A:B, such as 40:60")
@pytest.mark.recommended("pipelines/cli/shared.py", "--steps {…} is no range")
def test_some_steps_of_a_run(training_run, rejuice, tmp_path):
    refused = "--steps a is no range; write --steps A:B, such as 40:60"
    assert rejuice("view", training_run, "--steps", "a") == (2, "", f"rejuice: {refused}\n")
    refused = f"{training_run.name} has no training step from 40 to 60; it has steps 1 to 3"
    for name in ("view", "report", "whatif", "audit"):
        given = (name, training_run, "--steps", "40:60")
        assert rejuice(*given) == (2, "", f"rejuice: {refused}\n")
    given = ("explain", training_run, "row 1", "--steps", "40:60")
    assert rejuice(*given) == (2, "", f"rejuice: {refused}\n")
    given = ("diff", training_run, training_run, "--steps", "40:60")
    assert rejuice(*given) == (2, "", f"rejuice: {refused}\n")
    assert rejuice("view", training_run, "--steps", "2:3", "--no-open", "-o", "p.html")[0] == 0
    assert [each["step"] for each in Page(tmp_path / "p.html").head["sets"]] == [2, 3]


def test_whatif_of_a_step(training_run, rejuice):
    step = training_run / "steps" / "000002"
    change = ("--pass_rate_filter.max", "1.0")
    status, out, _ = rejuice("whatif", training_run / "recipe.yaml", "--run", step, *change)
    assert status == 0
    assert "4 gained (too_easy 4)" in out


def test_whatif_of_a_run_is_of_all_its_steps(training_run, rejuice):
    """Its own recipe, with another field; each step, and all of them."""
    change = ("--pass_rate_filter.max", "1.0")
    status, out, _ = rejuice("whatif", training_run, *change)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "try: 36 stored rows; nothing is sampled or judged."
    assert lines[1].split() == ["changed", "pass_rate_filter.max", "0.9", "->", "1.0"]
    for number in (1, 2, 3):
        assert lines[2 + number].split()[:5] == ["step", str(number), "12", "3", "4"]
    assert "24 kept in both, 12 gained (too_easy 12), 0 lost, 0 unknown" in out
    assert "would have sampled other responses from the second step on" in out
    assert "--rows gained" in out
    words = shlex.split(next(x for x in out.splitlines() if x.startswith("details")))[2:]
    status, out, _ = rejuice(*words, "--steps", "2:3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["set"] for row in rows] == ["step 2"] * 4 + ["step 3"] * 4
    assert {row["reason_before"] for row in rows} == {"too_easy"}


def test_a_run_with_other_samples_is_refused(training_run, rejuice):
    status, _, err = rejuice("whatif", training_run, "--policy_rollout_mapper.n", "2")
    refused = "policy_rollout_mapper differs from the run's, so other responses would be sampled"
    assert (status, err) == (2, f"rejuice: {refused}; leave it as it was, or run the recipe\n")


def test_each_step_of_a_run(training_run, rejuice):
    status, out, _ = rejuice("whatif", training_run, "--each")
    assert status == 0
    rows = {line[:22].strip(): line[22:].split() for line in out.splitlines()[1:]}
    assert rows["nothing"][:2] == ["24", "6"]
    assert rows["pass_rate_filter"][:2] == ["36", "9"]


def test_preview_of_a_run_is_of_its_last_step(training_run, rejuice):
    status, out, _ = rejuice("preview", training_run)
    assert (status, out.splitlines()[0].split(";")[0]) == (
        0, "try, step 3: 12 responses to 3 prompts",
    )  # fmt: skip


def test_preview_of_a_step_has_the_advantages_that_were_trained_on(training_run, rejuice):
    step = training_run / "steps" / "000002"
    status, out, _ = rejuice("preview", training_run / "recipe.yaml", "--run", step)
    assert status == 0
    # Training itself dropped the first of the 8 rows that the recipe had left.
    advantages = pq.read_table(step / "curated.parquet")["advantage"].to_numpy()
    [largest] = [line for line in out.splitlines() if line.startswith("largest")]
    assert largest.split()[1] == f"{max(advantages.max(), 0):.3f}"
