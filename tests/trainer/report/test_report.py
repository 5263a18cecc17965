"""`rejuice report` and `explain` of training runs and steps."""

import json
import re
import shlex

import command
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_run import write_run
from trained_run import PROCESS, keep, tiny_rollouts, write_trained

from rejuice.trainer.run import TrainingRun, record_failure
from rejuice.trainer.verl.figures import StepFiles


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory):
    return tiny_rollouts(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def training_run(tmp_path, rollouts):
    return write_trained(tmp_path / "try", rollouts, (1, 2, 3))


def lines_of(out):
    return [" ".join(line.split()) for line in out.splitlines()]


def with_details(out):
    """The lines; what a row of the table has on several is on one."""
    return lines_of(re.sub(r"\n {50,}", " ", out))


def test_the_report_of_a_step(training_run, rejuice):
    status, out, err = rejuice("report", training_run / "steps" / "000001")
    assert (status, err) == (0, "")
    # TINY: B is all right and dropped, training drops the first row that is left of 8.
    assert with_details(out) == [
        "step 1",
        "step rows in added dropped rows out seconds drop reasons details",
        "math_verify_mapper 12 12 0.00 verdict: correct 7, wrong_answer 5; reward_accuracy: 0.583 (sd 0.493)",
        "format_reward_mapper 12 12 0.00 reward_format: -0.033 (sd 0.094)",
        "group_stats_mapper 12 12 0.00 pass_rate: 0.583 (sd 0.312)",
        "pass_rate_filter 12 4 8 0.00 too_easy 4",
        "reward_sum_mapper 8 8 0.00 reward: 0.350 (sd 0.536)",
        "grpo_advantage_mapper 8 8 0.00 advantage: 0.000 (sd 0.866)",
        "training 8 1 7 0.00 surplus_group 1",
        "7 of 12 answers left",
        "groups 3: 1 all right, 2 mixed, 0 all wrong, 0 not graded; 1 without signal",
        "accuracy mean 0.583 of 12; 91% of the advantages' variance",
        "format mean -0.033 of 12; 9% of the advantages' variance",
    ]


def test_the_report_of_a_run_sums_its_steps_after_its_metrics(training_run, rejuice):
    status, out, err = rejuice("report", training_run)
    assert (status, err) == (0, "")
    lines = lines_of(out)
    assert lines[0].startswith("try: 3 steps")
    assert "step 1 to step 3" in lines
    assert "pass_rate_filter 36 12 24 0.00 too_easy 12" in lines
    assert "21 of 36 answers left" in lines
    _, out, _ = rejuice("report", training_run, "--steps", "2:3")
    assert "14 of 24 answers left" in lines_of(out)


def test_what_is_masked_and_what_conditions_match_is_added_up(tmp_path, rollouts, rejuice):
    half = {"weight": 0, "where": {"verdict": "wrong_answer"}}
    process = [*PROCESS, {"loss_weight_mapper": half}]
    training_run = write_trained(tmp_path / "try", rollouts, (1, 2), process=process)
    lines = with_details(rejuice("report", training_run)[1])
    # A has 2 wrong responses and C has 3; the first row of A, a right one, is dropped by training.
    (line,) = [line for line in lines if line.startswith("loss_weight_mapper")]
    masks = "loss_weight masks 100.0% of the tokens of their responses"
    assert line == f"loss_weight_mapper 16 16 0.00 applied to 10 of 16 rows; {masks}"
    assert "masked 71.4% of the tokens of a response, on average" in lines


def test_missing_rewards_have_their_reasons(tmp_path, rollouts, rejuice):
    *others, _, advantage = PROCESS
    weighted = {"weights": {"accuracy": 1.0, "format": 1.0}, "on_missing": "group_mean"}
    process = [*others, {"reward_sum_mapper": weighted}, advantage]
    training_run = write_trained(tmp_path / "try", rollouts, (1, 2), process=process)
    step = training_run / "steps" / "000002"
    values = pq.read_table(step / "values.parquet")
    at = values.column_names.index("reward_format_missing")
    reasons = pa.array(["scorer_malformed"] * 2 + [None] * 10, pa.string())
    pq.write_table(values.set_column(at, "reward_format_missing", reasons), step / "values.parquet")
    for path in (step, training_run):
        _, out, err = rejuice("report", path)
        assert err == ""
        assert lines_of(out)[-1] == "missing rewards: format: scorer_malformed 2"


@pytest.mark.recommended("pipelines/cli/analysis.py", "{…}, or accept it with --allow_empty")
def test_a_run_of_which_nothing_was_left_to_train_on_is_an_error(
    tmp_path, rollouts, rejuice, monkeypatch
):
    run = write_trained(tmp_path / "none", rollouts, (1,), drop=False, process=[
        {"prompt_template_mapper": {}}, {"policy_rollout_mapper": {"n": 4}},
        {"length_filter": {"max": 0}}, {"math_verify_mapper": {}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}, {"grpo_advantage_mapper": {}},
    ])  # fmt: skip
    status, out, err = rejuice("report", run)
    assert (status, "0 of 12 answers left" in out) == (1, True)
    as_json = rejuice("report", run, "--json")
    assert (as_json[0], json.loads(as_json[1])["rows_out"]) == (1, 0)
    # The recipe has a step that computes advantages: no row reached it.
    groups = "groups 3: 0 all right, 0 mixed, 0 all wrong, 3 not graded; no row has an advantage"
    assert groups in lines_of(out)
    right = "change what dropped them, or accept it with --allow_empty"
    assert err == f"rejuice: no row was left to train on in none; {right}\n"
    assert rejuice("report", run, "--allow_empty")[0] == 0
    drawn = []
    monkeypatch.setattr("rejuice.trainer.report.curves.draw", lambda *of, **_: drawn.append(of))
    status, out, _ = rejuice("report", run, run, "--curves", tmp_path / "curves.png")
    assert (status, out.count("0 of 12 answers left"), len(drawn)) == (1, 2, 1)


def test_the_report_of_a_recipe_without_credit_says_so(tmp_path, rollouts, rejuice):
    run = write_trained(tmp_path / "try", rollouts, (1,), drop=False, process=PROCESS[:-1])
    _, out, err = rejuice("report", run)
    assert err == ""
    groups = (
        "groups 3: 1 all right, 2 mixed, 0 all wrong, 0 not graded; no step computes advantages"
    )
    assert groups in lines_of(out)


def test_a_run_that_keeps_no_rollouts_has_its_metrics(training_run, rejuice):
    import shutil

    shutil.rmtree(training_run / "steps")
    status, out, err = rejuice("report", training_run)
    assert (status, err) == (0, "")
    assert lines_of(out)[-1] == "try has no step on file"
    status, out, _ = rejuice("report", training_run, "--json")
    assert (status, json.loads(out)["rows_out"]) == (0, None)
    recipe = training_run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("train:\n", "train:\n  keep_rollouts: false\n"))
    _, out, _ = rejuice("report", training_run)
    assert lines_of(out)[-1] == "try keeps no rollouts (train.keep_rollouts: false)"


def test_a_run_that_died_before_its_first_step_says_of_what(tmp_path, rejuice):
    run = write_run(tmp_path / "try")
    record_failure(run, "a GPU is out of memory; lower train.gpu.tokens_per_gpu")
    status, out, err = rejuice("report", run)
    assert (status, err) == (0, "")
    first = lines_of(out)[0]
    assert first.startswith("try: training failed before its first step")
    assert first.endswith(": a GPU is out of memory; lower train.gpu.tokens_per_gpu")
    assert "keep_rollouts" not in out
    for name in ("whatif", "preview"):
        status, out, err = rejuice(name, run)
        assert (status, out) == (2, "")
        assert "no responses on file" in err
    (run / "error.json").unlink()
    assert "no step was trained" in rejuice("report", run)[1]


def test_a_field_that_a_resume_changed_is_a_difference_of_steps(tmp_path, rollouts, rejuice):
    """And what it did: in step 3 prompt B, which is too easy in step 2, is left."""
    run_folder = write_trained(tmp_path / "try", rollouts, (2,), drop=False)
    recipe = run_folder / "recipe.yaml"
    changed = recipe.read_text().replace("max: 0.9", "max: 1.0")
    assert changed != recipe.read_text()
    recipe.write_text(changed)
    run = TrainingRun.open(run_folder)
    files = StepFiles(run)
    keep(run, files, 3, rollouts, False)
    files.wait()
    status, out, err = rejuice("diff", run_folder / "steps/000002", run_folder / "steps/000003")
    assert (status, err) == (0, "")
    lines = lines_of(out)
    assert [line for line in lines if line.startswith("recipe pass_rate_filter.max 0.9 -> 1.0")]
    assert [line for line in lines if line.startswith("reward_sum_mapper.weights.format ")]
    assert "sampled 12 rows in both: 8 kept in both, 4 only in B (too_easy 4), 0 only in A" in lines
    alone = rejuice("diff", run_folder / "steps/000002", run_folder / "steps/000002")[1]
    assert "recipe the same: no field differs" in lines_of(alone)


def test_a_row_of_a_step_is_explained(training_run, rollouts, rejuice):
    step = training_run / "steps" / "000001"
    kept, dropped, excess = (rollouts["response_id"][at].as_py() for at in (1, 4, 0))
    status, out, err = rejuice("explain", step, kept)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"response_id {kept}"
    assert lines[2] == "rollouts of step 1, row 2"
    assert "   reward: accuracy 1 x 1 + format 1 x -0.1" in lines
    assert "   advantage: of 4 rewards, mean 0.5, standard deviation 0.5888" in lines
    assert lines[-1] == "kept: step 1 trains on it"
    numbers = [int(x[:2]) for x in lines if x.endswith(": kept")]
    assert numbers == list(range(3, 3 + len(numbers)))  # As the recipe of the run counts them.
    assert rejuice("explain", step, dropped)[1].endswith(
        "pass_rate_filter: dropped, too_easy (the pass rate of the prompt is above `max`)\n"
    )
    assert rejuice("explain", step, excess)[1].endswith("\ntraining: dropped, surplus_group\n")


@pytest.mark.recommended("pipelines/analysis/explain.py", "add --steps NUMBER")
def test_of_a_run_the_last_step_that_has_a_row_is_explained(training_run, rollouts, rejuice):
    row = rollouts["response_id"][1].as_py()
    status, out, _ = rejuice("explain", training_run, row)
    assert status == 0
    *history, last = out.splitlines()
    assert history[2] == "rollouts of step 3, row 2"
    assert history[-1] == "kept: step 3 trains on it"
    assert last == "this is step 3; also in step 2, step 1: add --steps NUMBER"
    status, out, _ = rejuice("explain", training_run, row, "--steps", "2")
    assert "rollouts of step 2, row 2" in out
    assert "also in" not in out


@pytest.mark.recommended("pipelines/analysis/explain.py", "all: --all")
@pytest.mark.recommended("pipelines/analysis/explain.py", "rejuice explain {…}")
def test_of_a_prompt_each_response_has_a_line(training_run, rollouts, rejuice):
    prompt = rollouts["prompt_id"][1].as_py()
    out = rejuice("explain", training_run, prompt)[1].splitlines()
    fates = [" ".join(line.split()).partition(" ")[2] for line in out[2:6]]
    assert sum("training: surplus_group" in fate for fate in fates) == 1
    assert sum(" kept " in fate for fate in fates) == 3
    rows, command = re.fullmatch(
        r"(\S+ rows); one of them in full: rejuice (.*), all: --all", out[6]
    ).groups()
    assert rows == "4 rows"
    assert rejuice(*shlex.split(command))[1].startswith(f"response_id {shlex.split(command)[-1]}")
    whole = rejuice("explain", training_run, prompt, "--all")[1]
    assert whole.count("06_pass_rate_filter: kept") == 4


@pytest.mark.recommended("trainer/report/stored.py", "leave the step out by --steps")
def test_a_row_of_a_step_without_values_is_not_explained(training_run, rollouts, rejuice):
    step = training_run / "steps" / "000001"
    (step / "values.parquet").unlink()
    status, _, err = rejuice("explain", step, rollouts["response_id"][1].as_py())
    assert (status, err) == (
        2,
        "rejuice: step 1 has no values.parquet; leave the step out by --steps, or train it again to "
        "see what each step did\n",
    )
    assert rejuice("explain", step.parents[1], "row 1", "--steps", "2:3")[0] == 0


def test_a_row_by_its_number_is_of_the_last_step(training_run, rejuice):
    (training_run / "steps" / "000001" / "rollouts.parquet").write_bytes(b"damaged")
    status, out, err = rejuice("explain", training_run, "row 2")
    assert (status, err, "rollouts of step 3, row 2" in out) == (0, "", True)


@pytest.mark.slow
def test_the_recipe_of_a_run_is_explained(training_run, rejuice):
    assert "pass_rate_filter (group)" in rejuice("explain", training_run)[1]


def test_a_recipe_that_trains_finds_its_run(tmp_path, rollouts, rejuice):
    (tmp_path / "outputs").mkdir()
    run = write_trained(tmp_path / "outputs" / "mine", rollouts, (1,))
    (tmp_path / "mine.yaml").write_bytes((run / "recipe.yaml").read_bytes())
    row = rollouts["response_id"][1].as_py()
    status, out, err = rejuice("explain", "mine.yaml", row)
    assert (status, err) == (0, "")
    assert out.endswith("kept: step 1 trains on it\n")
    assert "7 of 12 answers left" in lines_of(rejuice("report", "mine.yaml")[1])
