"""`rejuice train` and its like, word by word; nothing here trains."""

import re
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from command import heavy_after, runner
from fake_judge import FakeJudge, Trouble
from fake_run import PROCESS, line, save, write_recipe, write_run

from rejuice.operators import RejuiceError, errors
from rejuice.pipelines.cli import main
from rejuice.pipelines.cli import training as cli
from rejuice.pipelines.recipe.train import Profile, Train
from rejuice.trainer.cpu import fork_server
from rejuice.trainer.launch import checkpoints, prompts, training, verl_config

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "run", "check", "ops", "explain", "report", "view", "whatif", "diff", "preview",
    "audit", "train", "simulate", "evaluate",
}  # fmt: skip


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path / "try.yaml")


@pytest.fixture
def verl(monkeypatch):
    """Stands in for what takes long; `launched` are the runs, `does` what verl does and gives."""

    class Verl:
        def __init__(self):
            self.launched = []

        def does(self, run):
            lines = [line(0, validation=0.25), *(line(step, step / 10) for step in (1, 2, 3, 4))]
            (run.folder / "metrics.jsonl").write_text("".join(lines))
            return 0

    verl = Verl()

    def launched(run, *, resume=False, follow=lambda: None, **_):
        verl.launched.append((run, resume))
        (run.folder / "verl.log").touch()
        status = verl.does(run)
        follow()
        return status

    monkeypatch.setattr(training, "launch", launched)
    monkeypatch.setattr(fork_server, "is_supported", lambda: False)
    monkeypatch.setattr(training, "of_run", lambda folder: [])
    monkeypatch.setattr(prompts, "chat_encoder", lambda *_: lambda messages: [0] * 3)
    monkeypatch.setattr(training, "grouped", lambda folders: [])
    monkeypatch.setattr(training, "draw", lambda groups, path: path.write_text(""))
    return verl


# the command


def test_it_has_all_commands(rejuice):
    code, out, _ = rejuice("--help")
    assert code == 0
    assert {info.callback.__name__ for info in main.app.registered_commands} == COMMANDS
    named = COMMANDS - {"evaluate"} | {"eval", "policy", "data", "export", "cache"}
    assert all(f" {command} " in out for command in named)


@pytest.mark.parametrize("words", [["train"], ["simulate"], ["export"], ["eval"]])
def test_every_command_has_help(rejuice, words):
    code, out, _ = rejuice(*words, "--help")
    assert code == 0
    assert f"rejuice {' '.join(words)}" in out


@pytest.mark.slow
def test_help_and_check_load_nothing_heavy():
    recipe = ROOT / "recipes" / "grpo_arithmetic.yaml"
    assert heavy_after(["--help"], ["train", "--help"], ["check", recipe]) == []


def test_the_help_names_every_profile(rejuice):
    _, out, _ = rejuice("train", "--help")
    assert "|".join(get_args(Profile)) in out


def test_the_extra_is_named_where_it_is_missing(rejuice, recipe, monkeypatch):
    monkeypatch.setattr(cli, "_NEEDED", ("json", "no_such_thing"))
    for words in (["train", recipe], ["export", "policy", "x", "y"]):
        assert rejuice(*words) == (
            2,
            "",
            "rejuice: training needs no_such_thing, which is not installed; "
            "pip install 'rejuice[train]'\n",
        )


@pytest.mark.slow
def test_a_picture_needs_no_more_than_what_draws_it(rejuice, tmp_path, monkeypatch):
    write_run(tmp_path / "run", [line(1, 0.1)])
    monkeypatch.setattr(cli, "_NEEDED", ("no_such_thing",))
    assert rejuice("report", "run", "--curves", "curves.png")[0] == 0
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    message = (
        "rejuice: drawing curves needs matplotlib, which is not installed; pip install matplotlib\n"
    )
    assert rejuice("report", "run", "--curves", "new.png") == (2, "", message)


# train


@pytest.fixture
def judged(tmp_path):
    """A function that writes a recipe with an LLM judge."""

    def write(judge, **fields):
        server = {"base_url": judge.url, "patience_s": 0.1, "back_off_s": 0.01}
        path = write_recipe(tmp_path / "judged.yaml")
        document = yaml.safe_load(path.read_text())
        document["process"].insert(
            3, {"llm_quality_reward_mapper": {"model": "m", "server": server, **fields}}
        )
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


def test_a_judge_that_is_down_is_known_before_verl_is_launched(rejuice, judged, verl, tmp_path):
    with FakeJudge() as judge:
        judge.kill()
        code, out, err = rejuice("train", judged(judge), "-q")
        assert (code, out, verl.launched) == (2, "", [])
        (line,) = err.splitlines()
        assert line.startswith(
            "rejuice: judged.yaml, line 10, step 4 llm_quality_reward_mapper: "
            f"{judge.url} could not be reached for 0.1 s: connection refused"
        )
        assert line.endswith("; is the server up?")
        assert not (tmp_path / "outputs").exists(), "nothing was begun"


def test_what_is_wrong_in_the_recipe_is_known_before_a_judge_is_waited_for(rejuice, judged, verl):
    with FakeJudge() as judge:
        judge.kill()
        code, _, err = rejuice("train", judged(judge), "-q", "--dataset_path", "none.jsonl")
    assert (code, verl.launched) == (2, [])
    assert err.startswith("rejuice: none.jsonl does not exist")


def test_a_judge_that_has_another_model_is_known_before_verl_is_launched(rejuice, judged, verl):
    with FakeJudge(always=Trouble.NOT_FOUND) as judge:
        code, _, err = rejuice("train", judged(judge, model="big"), "-q")
    assert (code, verl.launched) == (2, [])
    assert err == (
        "rejuice: judged.yaml, line 10, step 4 llm_quality_reward_mapper: "
        "the server has no model 'big'; it has m, other\n"
    )


def test_a_judge_that_may_be_down_does_not_stop_training(rejuice, judged, verl, caplog):
    with FakeJudge() as judge:
        judge.kill()
        code, _, _ = rejuice("train", judged(judge, on_server_down="missing"), "-q")
    assert (code, len(verl.launched)) == (0, 1)
    assert any(judge.url in message for message in caplog.messages)


def test_a_judge_that_is_up_does_not_stop_training(rejuice, judged, verl):
    with FakeJudge() as judge:
        assert rejuice("train", judged(judge), "-q") == (0, "", "")
        assert judge.attempts.total() == 0
    assert len(verl.launched) == 1


def test_train(rejuice, recipe, verl, tmp_path):
    code, out, err = rejuice("train", recipe)
    assert code == 0
    ((run, resume),) = verl.launched
    assert (run.folder, resume) == (tmp_path / "outputs" / "try", False)
    assert err.splitlines()[:2] == [
        "No step writes the advantage: in training, grpo_advantage_mapper is added.",
        "starting verl (about a minute); its output is in outputs/try/verl.log",
    ]
    assert err.splitlines()[-1].startswith("step 4/4: reward 0.500, accuracy 0.400, ")
    assert out.splitlines()[0] == "try: 4 steps in 8 s, 2.0 s per step; 9,000 tokens generated"
    assert [row.split() for row in out.splitlines()[1:]] == [
        ["first", "last"],
        ["validation", "accuracy", "0.250", "0.250"],
        ["reward", "0.200", "0.500"],
        ["accuracy", "0.100", "0.400"],
        ["format", "0.100", "0.100"],
        ["pass", "rate", "0.100", "0.400"],
        ["response", "tokens", "21.0", "24.0"],
        ["entropy", "0.490", "0.460"],
        ["KL", "0", "0"],
        ["rows", "dropped", "10", "10"],
        ["curves", "outputs/try/curves.png"],
        ["verl's", "log", "outputs/try/verl.log"],
    ]


def test_quiet(rejuice, recipe, verl):
    assert rejuice("train", recipe, "-q") == (0, "", "")


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_a_deduplicator_is_warned_of(rejuice, verl, tmp_path, monkeypatch, words):
    monkeypatch.setattr(verl_config, "validate", lambda run, resume: None)
    process = [*PROCESS[:-1], "exact_deduplicator", PROCESS[-1]]
    recipe = write_recipe(tmp_path / "try.yaml", process=process)
    code, _, err = rejuice("train", recipe, *words)
    assert code == 0
    first, *others = err.splitlines()
    assert first.startswith("rejuice: warning: try.yaml, line ")
    assert "exact_deduplicator: drops repeated responses, the policy's likeliest, before" in first
    assert first.endswith("and what it drops has no gradient; leave it out of training")
    assert not any("warning" in line for line in others)
    assert rejuice("train", recipe, *words, "-q", "-o", "other")[2] == ""


@pytest.mark.recommended(
    "pipelines/cli/training.py", "--steps N, --profile cpu|gpu and --schedule NAME"
)
def test_options_and_overrides(rejuice, recipe, verl, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "needs", lambda *_: None)
    code, _, err = rejuice(
        "train", "--train.learning_rate", "0.5", recipe, "--steps", "9", "--profile", "gpu",
        "-o", "here", "--policy_rollout_mapper.n=3", "--project_name", "other", "--quiet",
        "--dataset_path", tmp_path / "data.jsonl", "--train.gpu.gpus", "2", "--schedule", "generate",
    )  # fmt: skip
    assert (code, err) == (0, "")
    ((run, _),) = verl.launched
    assert run.folder == tmp_path / "here"
    config = run.config
    assert (config.steps, config.learning_rate, config.profile) == (9, 0.5, "gpu")
    assert (config.gpu.gpus, config.schedule, run.split.rollout.n) == (2, "generate", 3)
    document = yaml.safe_load((tmp_path / "here" / "recipe.yaml").read_text())
    assert document["project_name"] == "other"
    assert Train.model_validate(document["train"]) == config


def test_of_a_field_that_is_given_twice_the_full_name_wins(rejuice, recipe, verl):
    assert rejuice("train", recipe, "--steps", "9", "--train.steps", "7", "-q")[0] == 0
    assert verl.launched[0][0].config.steps == 7


def test_check_knows_the_section(rejuice, recipe):
    assert rejuice("check", recipe)[0] == 0
    message = "rejuice: --train.gpu.gpu: unknown key 'train.gpu.gpu'; did you mean 'gpus'?\n"
    assert rejuice("check", recipe, "--train.gpu.gpu", "2") == (2, "", message)


def test_a_run_goes_on_from_another_folder(rejuice, recipe, verl, tmp_path, monkeypatch):
    """Whatever the recipe names by where the command was given."""
    monkeypatch.setattr(checkpoints, "_merge", lambda run, actor, target, variables: None)
    (tmp_path / "policy").mkdir()
    words = ["--dataset_path", "data.jsonl", "--train.validation_path", "data.jsonl"]
    assert rejuice("train", recipe, *words, "--policy_rollout_mapper.model", "policy", "-q")[0] == 0
    save(tmp_path / "outputs" / "try", 2)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "outputs" / "try" / "prompts" / "validation.parquet").unlink()
    assert rejuice("train", "../outputs/try", "--resume", "-q")[0] == 0
    run, resume = verl.launched[-1]
    assert (run.folder, resume) == (tmp_path / "outputs" / "try", True)
    assert run.policy == str(tmp_path / "policy")
    assert run.config.validation_path == tmp_path / "data.jsonl"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.yaml"], "none.yaml does not exist; give the path of a recipe"),
        (["."], ". is not the folder of a run; give a recipe or the folder of a run"),
        (["try.yaml", "--train.stps", "3"], "--train.stps: unknown key 'train.stps'; did you mean 'steps'?"),
        (["try.yaml", "--profile", "tpu"], "--train.profile: 'train.profile' is 'tpu'; input should be 'cpu' or 'gpu'"),
        (["try.yaml", "--resume"], "outputs/try holds no run to resume; leave --resume out"),
        (["try.yaml", "--train.prompts_per_step", "99"], "data.jsonl gives 20 prompts, a step takes 99; set prompts_per_step lower"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_in_a_line(rejuice, recipe, verl, words, message):
    assert rejuice("train", *words) == (2, "", f"rejuice: {message}\n")
    assert verl.launched == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--train.loggers", "[mlflow]"],
            "logger mlflow needs mlflow, which is not installed; pip install mlflow",
        ),
        (
            ["--profile", "gpu"],
            "profile gpu needs vllm, which is not installed; pip install 'verl[vllm]==0.9.1'",
        ),
        (
            ["--profile", "gpu", "--train.gpu.rollout", "sglang"],
            "profile gpu needs sglang, which is not installed; pip install 'verl[sglang]==0.9.1'",
        ),
    ],
)
def test_what_is_not_installed_is_reported_at_once(
    rejuice, recipe, verl, monkeypatch, words, message
):
    find, gone = errors.find_spec, ("mlflow", "vllm", "sglang")
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name in gone else find(name))
    assert rejuice("train", recipe, *words) == (2, "", f"rejuice: {message}\n")
    assert verl.launched == []
    monkeypatch.setattr(verl_config, "validate", lambda run, resume: None)
    assert rejuice("train", recipe, *words, "--dry-run")[0] == 0


def test_megatron_is_needed_where_it_trains(rejuice, recipe, verl, monkeypatch):
    find = errors.find_spec
    there = {"vllm": find("json"), "megatron": None}
    monkeypatch.setattr(errors, "find_spec", lambda name: there.get(name) if name in there else find(name))  # fmt: skip
    line = "rejuice: strategy megatron needs megatron, which is not installed; pip install 'verl[mcore]==0.9.1' megatron-bridge\n"
    words = ("--profile", "gpu", "--train.gpu.strategy", "megatron")
    assert rejuice("train", recipe, *words) == (2, "", line)
    assert verl.launched == []


@pytest.mark.slow
def test_a_run_is_not_replaced_and_goes_on(rejuice, recipe, verl, tmp_path):
    rejuice("train", recipe, "-q")
    code, _, err = rejuice("train", recipe, "-q")
    assert (code, err) == (
        2,
        "rejuice: outputs/try holds a run already; give --resume to continue it, or another --output\n",
    )
    save(tmp_path / "outputs" / "try", 2)
    for words in (
        ["try.yaml", "--resume"],
        ["outputs/try", "--resume"],
        ["outputs/try/recipe.yaml", "--resume"],
    ):
        verl.does = lambda run: 1
        assert rejuice("train", *words, "-q")[0] == 1
        run, resume = verl.launched[-1]
        assert (run.folder, resume) == (tmp_path / "outputs" / "try", True)
    verl.does = lambda run: 0
    assert rejuice("train", "outputs/try", "-o", "again", "-q")[0] == 0
    run, resume = verl.launched[-1]
    assert (run.folder, resume) == (tmp_path / "again", False)


@pytest.mark.parametrize(
    "words", [["try.yaml"], ["try.yaml", "--resume"], ["outputs/try", "--resume"], ["try.yaml", "--steps", "3"]]
)  # fmt: skip
def test_a_run_that_is_finished_is_shown_again(rejuice, recipe, verl, tmp_path, words):
    rejuice("train", recipe, "-q")
    save(tmp_path / "outputs" / "try", 4)
    code, out, err = rejuice("train", *words)
    assert (code, len(verl.launched)) == (0, 1)
    assert err == (
        "nothing to do: outputs/try has trained 4 steps; "
        "--steps with --resume trains more, another --output starts anew\n"
    )
    assert out.startswith("try: 4 steps in 8 s, 2.0 s per step")
    assert re.search(r"^curves +outputs/try/curves.png$", out, re.MULTILINE)
    assert rejuice("train", *words, "-q") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "5"], "outputs/try holds a run already; give --resume to continue it, or another --output"),
        (["--train.learning_rate", "1"], "outputs/try holds a run already; give --resume to continue it, or another --output"),
        (["--resume", "--train.learning_rate", "1"], "outputs/try has trained its 4 steps; give --steps to train more"),
    ],
)  # fmt: skip
def test_a_run_with_other_settings_is_another(rejuice, recipe, verl, tmp_path, words, message):
    rejuice("train", recipe, "-q")
    save(tmp_path / "outputs" / "try", 4)
    assert rejuice("train", recipe, *words, "-q") == (2, "", f"rejuice: {message}\n")


@pytest.mark.parametrize("what", ["data", "no recipe", "half a recipe"])
def test_a_run_on_other_data_or_without_its_recipe_is_not_shown(
    rejuice, recipe, verl, tmp_path, what
):
    rejuice("train", recipe, "-q")
    run = tmp_path / "outputs" / "try"
    save(run, 4)
    if what == "data":
        dataset = Path(yaml.safe_load(Path(recipe).read_text())["dataset_path"])
        with (tmp_path / dataset).open("a") as file:
            file.write((tmp_path / dataset).read_text().partition("\n")[0] + "\n")
    elif what == "no recipe":
        (run / "recipe.yaml").unlink()
    else:
        (run / "recipe.yaml").write_text("process:\n")
    code, _, err = rejuice("train", recipe, "-q")
    assert (code, err.startswith("rejuice: outputs/try holds ")) == (2, True)


def test_a_run_without_checkpoints_is_finished_by_its_last_step(rejuice, recipe, verl):
    words = ("train", recipe, "--train.save_every", "0")
    rejuice(*words, "-q")
    assert rejuice(*words)[2].startswith("nothing to do: outputs/try has trained 4 steps; ")
    assert len(verl.launched) == 1


def test_a_resume_without_a_checkpoint_is_reported(rejuice, recipe, verl, tmp_path):
    rejuice("train", recipe, "-q")
    _, _, err = rejuice("train", recipe, "--resume")
    assert err.startswith("There is no checkpoint; training starts over.\n")


def test_the_lines_after_a_resume_go_on(rejuice, recipe, verl, tmp_path):
    rejuice("train", recipe, "-q")
    save(tmp_path / "outputs" / "try", 2)

    def does(run):
        (run.folder / "metrics.jsonl").write_text(line(2, validation=0.5) + line(3, 0.9))
        return 1

    verl.does = does
    _, _, err = rejuice("train", "outputs/try", "--resume")
    assert [text.split(":")[0] for text in err.splitlines()[2:4]] == ["step 2/4", "step 3/4"]
    assert "training failed at step 4: " in err


def test_a_failure(rejuice, recipe, verl, tmp_path):
    def does(run):
        (run.folder / "metrics.jsonl").write_text(line(1, 0.1))
        with (run.folder / "verl.log").open("a") as log:
            log.write("rejuice.operators.errors.DataError: step 2: all is lost\n")
        return 1

    verl.does = does
    code, out, err = rejuice("train", recipe, "-q")
    assert (code, out) == (1, "")
    assert err == (
        "rejuice: training failed: step 2: all is lost\n"
        "verl's log is outputs/try/verl.log; no checkpoint was saved; `rejuice train outputs/try --resume` starts over\n"
    )
    save(tmp_path / "outputs" / "try", 1)
    verl.does = lambda run: (run.folder / "error.json").unlink() or -9  # As a start does.
    assert rejuice("train", recipe, "-q", "--resume")[2] == (
        "rejuice: training failed: verl was killed by SIGKILL\n"
        "verl's log is outputs/try/verl.log; "
        "`rejuice train outputs/try --resume` resumes from step 1\n"
    ), "the log of the start before says nothing of this one"


@pytest.mark.slow
def test_a_failure_of_a_step_of_the_recipe(rejuice, recipe, verl):
    def does(run):
        (run.folder / "metrics.jsonl").write_text(line(1, 0.1))
        with (run.folder / "verl.log").open("a") as log:
            log.write("rejuice.operators.errors.DataError: step 4 reward_sum_mapper: no reward\n")
        return 1

    verl.does = does
    _, _, err = rejuice("train", recipe, "-q")
    assert err.startswith(
        "rejuice: training failed at step 2: step 4 reward_sum_mapper: no reward\n"
    )


def test_ctrl_c(rejuice, recipe, verl, tmp_path):
    def does(run):
        save(run.folder, 3)
        raise KeyboardInterrupt

    verl.does = does
    assert rejuice("train", recipe, "-q") == (
        130,
        "",
        "rejuice: stopped; `rejuice train outputs/try --resume` resumes from step 3\n",
    )


def test_the_policy_is_written_at_the_end(rejuice, recipe, verl, monkeypatch, tmp_path):
    does = verl.does

    def saves(run):
        save(run.folder, 4)
        return does(run)

    verl.does = saves
    monkeypatch.setattr(checkpoints, "_merge", lambda run, actor, target, variables: None)
    code, out, _ = rejuice("train", recipe)
    assert code == 0
    assert [row.split() for row in out.splitlines()[-4:]] == [
        ["policy", "outputs/try/policy"],
        ["checkpoint", "outputs/try/checkpoints/global_step_4"],
        ["curves", "outputs/try/curves.png"],
        ["verl's", "log", "outputs/try/verl.log"],
    ]


@pytest.mark.parametrize("error", [RejuiceError("no weights"), OSError("no space")])
def test_a_policy_that_cannot_be_written_is_a_failure_of_a_run_that_is_trained(
    rejuice, recipe, verl, monkeypatch, error
):
    does = verl.does

    def saves(run):
        save(run.folder, 4)
        return does(run)

    def fails(run, path, variables, trusted):
        raise error

    verl.does = saves
    monkeypatch.setattr(checkpoints, "export", fails)
    code, out, err = rejuice("train", recipe)
    assert code == 1
    assert out.startswith("try: 4 steps in 8 s")
    assert err.splitlines()[-2:] == [
        f"rejuice: training finished, but the policy or curves could not be written: {error}",
        "to write them: `rejuice export policy outputs/try DIR` and "
        "`rejuice report outputs/try --curves FILE`",
    ]


# --dry-run


def test_dry_run_leaves_nothing(rejuice, verl, monkeypatch, tmp_path):
    recipe = write_recipe(tmp_path / "try.yaml", dataset_path="not_there.jsonl")
    requested = []
    monkeypatch.setattr(verl_config, "validate", lambda run, resume: requested.append(run))
    before = sorted(tmp_path.iterdir())
    code, out, err = rejuice("train", recipe, "--dry-run", "--steps", "7")
    assert (code, err) == (0, "verl accepts the configuration.\n")
    lines = out.splitlines()
    folder = "outputs/try"
    assert lines[:2] == [
        f"mkdir -p {folder}",
        f"cat > {folder}/verl.yaml <<'END_OF_VERL_CONFIG'",
    ]
    end = lines.index("END_OF_VERL_CONFIG")
    assert yaml.safe_load("\n".join(lines[2:end]))["trainer"]["total_training_steps"] == 7
    assert all(text.endswith(" \\") for text in lines[end + 1 : -1])
    assert lines[-1] == (
        f"  {sys.executable} -m verl.trainer.main_ppo --config-dir {folder} --config-name verl"
    )
    assert requested[0].config.steps == 7
    assert sorted(tmp_path.iterdir()) == before
    assert verl.launched == []


# curves, checkpoint


@pytest.mark.parametrize("logged", [True, False])
def test_report_prints_judge_failures_and_groups_without_signal_where_they_are_logged(
    rejuice, tmp_path, logged
):
    """A run may have neither."""
    signal = {"rejuice/groups_without_signal": 0.25} if logged else {}
    judged = {"rejuice/missing/quality/scorer_malformed": 3.0} if logged else {}
    lines = [line(1, 0.1, **signal), line(2, 0.2, **signal, **judged)]
    write_run(tmp_path / "run", lines)
    code, out, _ = rejuice("report", "run")
    assert code == 0
    rows = [row.split() for row in out.splitlines()]
    assert ["pass", "rate", "0.100", "0.200"] in rows
    assert (["groups", "without", "signal", "0.250", "0.250"] in rows) == logged
    assert (["judge", "failures", "3", "3"] in rows) == logged


@pytest.mark.slow
def test_curves(rejuice, tmp_path):
    write_run(tmp_path / "run", [line(1, 0.1)])
    code, out, err = rejuice("report", "run", "--curves", "x.png")
    assert (code, out.splitlines()[-1], err) == (0, "curves: x.png", "")
    assert (tmp_path / "x.png").exists()
    code, _, err = rejuice("report", "run", "--curves", "x.png")
    assert (code, "x.png" in err, "--overwrite" in err) == (2, True, True)


def test_checkpoint(rejuice, monkeypatch, tmp_path):
    run = write_run(tmp_path / "run", checkpoints=[2, 4])
    (run / "checkpoints" / "global_step_6").mkdir()  # It was being saved when the run ended.
    merged = []

    def merge(run, actor, target, variables):
        merged.append(str(actor))
        (target / "config.json").touch()

    monkeypatch.setattr(checkpoints, "_merge", merge)
    assert rejuice("export", "policy", "run", "p") == (
        0,
        "p: the policy after step 4; policy_rollout_mapper: {model: p}\n",
        "",
    )
    assert rejuice("export", "policy", "run", "q", "--step", "2")[0] == 0
    assert merged == [f"run/checkpoints/global_step_{step}/actor" for step in (4, 2)]
    for words, message in (
        (
            ["run", "p"],
            "p is not empty; give another folder, or --overwrite to replace files of the same names",
        ),
        (["run", "r", "--step", "6"], "run has no checkpoint of step 6; it has those of 2, 4"),
        (["none", "r"], "none holds no checkpoint; there is no such folder"),
        ([".", "r"], ". holds no checkpoint; give the folder of a run that has saved one"),
    ):
        assert rejuice("export", "policy", *words) == (2, "", f"rejuice: {message}\n")
