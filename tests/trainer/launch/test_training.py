"""A run is made, launched and ended; verl is a script of a few lines here."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from fake_run import PROCESS, line, save, write_recipe, write_run

from rejuice.operators import RejuiceError
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer import metrics
from rejuice.trainer.cpu.fork_server import PreloadServer, is_supported
from rejuice.trainer.launch import checkpoints, prompts, training
from rejuice.trainer.launch.training import (
    changed_lines,
    launch,
    prepare,
    shell_command,
    shell_script,
)
from rejuice.trainer.launch.verl_config import overrides
from rejuice.trainer.run import RUN_VARIABLE, TrainingRun, Weights

REPLAYED = pa.table(
    {
        "prompt_id": ["a", "a", "b", "b"],
        "prompt": [[{"role": "user", "content": "?"}]] * 4,
        "prompt_token_ids": [[1]] * 4,
        "response": ["x"] * 4,
        "response_token_ids": [[1, 2]] * 4,
        "response_logprobs": [[0.0, -1.0]] * 4,
        "reward": [0.0, 1.0] * 2,
    }
)
SLEEP = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(prompts, "chat_encoder", lambda *_: lambda messages: [0] * 3)
    monkeypatch.setattr(training, "_PATIENCE_S", 0.5)


@pytest.fixture
def make(tmp_path):
    """Prepare a run of a recipe of four steps."""
    path = write_recipe(tmp_path / "recipe.yaml")

    def prepared(resume=False, **train):
        fields = {f"train.{name}": str(value) for name, value in train.items()}
        return prepare(load(path, fields), tmp_path / "run", resume=resume)

    return prepared


@pytest.fixture
def verl(monkeypatch):
    """Make a script of what is launched."""

    def is_now(code):
        monkeypatch.setattr(training, "_MAIN", ["-c", code])

    return is_now


def printed(call, *words, **more):
    with pytest.raises(RejuiceError) as error:
        call(*words, **more)
    return str(error.value)


# prepare


def test_what_a_run_is_made_of(make, tmp_path):
    run = make(seed=7)
    assert run.folder == tmp_path / "run"
    assert sorted(each.name for each in run.folder.iterdir()) == ["prompts", "recipe.yaml"]
    assert TrainingRun.open(run.folder) == run
    assert run.config.seed == 7
    found = pq.read_table(run.folder / "prompts" / "train.parquet")
    assert found.num_rows == 20
    assert found["reward_model"][3].as_py() == {"style": "rule", "ground_truth": "3"}
    assert (run.folder / "prompts" / "validation.parquet").exists()


def test_a_run_that_has_trained_a_step_is_not_replaced(make, tmp_path):
    folder = make().folder
    (folder / "metrics.jsonl").write_text(line(0, validation=0.5))
    (folder / "metrics.earlier.jsonl").write_text(line(0, validation=0.5))
    (folder / "verl.log").write_text("old")
    make()
    assert not (folder / "verl.log").exists(), "there was nothing to lose"
    assert metrics.read(folder) == []
    (folder / "metrics.jsonl").write_text(line(1, 0.5))
    assert printed(make) == (
        f"{tmp_path}/run holds a run already; give --resume to continue it, or another --output"
    )


def test_a_run_goes_on_where_its_datasets_are_gone(make, tmp_path):
    """Its prompts are in its folder."""
    stored = tmp_path / "replay.parquet"
    pq.write_table(REPLAYED, stored)
    folder = make(replay=stored, prompts_per_step=2).folder
    stored.unlink()
    (tmp_path / "data.jsonl").unlink()
    assert make(resume=True, replay=stored, prompts_per_step=2).folder == folder
    assert make(resume=True, prompts_per_step=2).folder == folder
    with pytest.raises(RejuiceError, match="does not exist"):
        make(replay=stored)


OPTIM = "actor_rollout_ref.actor.optim"
TAKEN_UP = {
    "train.learning_rate": (5e-6, f"{OPTIM}.lr"),
    "train.warmup_steps": (3, f"{OPTIM}.lr_warmup_steps"),
    "train.weight_decay": (0.5, f"{OPTIM}.weight_decay"),
    f"train.verl.{OPTIM}.betas": ([0.8, 0.9], f"{OPTIM}.betas"),
    "train.max_grad_norm": (0.25, f"{OPTIM}.clip_grad"),
}
LOGGED = {
    "train.seed": (3, "order of prompts"),
    "train.max_prompt_tokens": (100, "first start"),
    "train.policy": ("other/policy", "checkpoint"),
    "policy_rollout_mapper.n": (4, "next step"),
    "policy_rollout_mapper.chat_template_kwargs": ({"enable_thinking": False}, "next step"),
    "prompt_template_mapper.template": ("Now: {question}", "first start"),
}


def with_field(path, name, value):
    """The recipe with another value of a field."""
    document = yaml.safe_load(path.read_text())
    first, _, rest = name.partition(".")
    section = document if first == "train" else {}
    for step in document["process"]:
        section = step if first in step else section
    section = section[first]
    if rest.startswith("verl."):
        section, rest = section.setdefault("verl", {}), rest.removeprefix("verl.")
    section[rest] = value
    path.with_name("other.yaml").write_text(yaml.safe_dump(document))
    return load(path.with_name("other.yaml"))


@pytest.mark.parametrize("name", [*TAKEN_UP, *LOGGED])
def test_a_field_that_changed_takes_effect_at_a_resume_or_a_line_says_what_does_not(make, name):
    """What the optimizer makes of it: tests/trainer/cpu/test_engine.py."""
    folder, logged = make().folder, []
    save(folder, 2)
    value, found = {**TAKEN_UP, **LOGGED}[name]
    recipe = with_field(folder.with_name("recipe.yaml"), name, value)
    run = prepare(recipe, folder, resume=True, tell=logged.append)
    if name in TAKEN_UP:
        assert overrides(run, resume=True)[found] == value
        assert not logged
    else:
        (line_logged,) = logged
        assert line_logged.startswith(name.removesuffix(".template"))
        assert found in line_logged


@pytest.mark.parametrize("sampler", ["policy_rollout_mapper", "agent_rollout_mapper"])
def test_whatever_samples_has_a_line_for_a_field_that_changed(sampler):
    train = {"gpu": {"strategy": "fsdp2"}, "profile": "cpu"}
    before, now = (
        {"dataset_path": "x", "train": train, "process": [{sampler: {"n": n}}]} for n in (4, 8)
    )
    (logged,) = changed_lines(before, now)
    assert logged.startswith(f"{sampler}.n ")
    assert "next step" in logged


def test_a_dataset_of_other_content_is_logged_of(make, tmp_path):
    """Whenever it was written: a copy may be as old as what it is a copy of."""
    folder, logged = make().folder, []
    recipe, data = load(tmp_path / "recipe.yaml"), tmp_path / "data.jsonl"
    before = data.stat().st_mtime_ns
    os.utime(data, ns=(before, before + 10**12))
    prepare(recipe, folder, resume=True, tell=logged.append)
    assert logged == []
    data.write_text(data.read_text().replace("1", "2"))  # Of the same size.
    os.utime(data, ns=(before, before))
    prepare(recipe, folder, resume=True, tell=logged.append)
    (line,) = [line for line in logged if line.startswith("the dataset has changed")]
    assert "prompts/train.parquet" in line


def test_a_temporary_folder_that_is_too_long_for_ray_is_refused_before_it_starts(make, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/" + "t" * 38)
    make()
    for name in ("TMPDIR", "RAY_TMPDIR"):  # The second one counts where there are both.
        monkeypatch.setenv(name, "/" + "t" * 40)
        assert printed(make) == (
            f"{name} has a path of 41 bytes, which is too long for Ray's sockets; "
            "set it to one of at most 39, such as /tmp"
        )


def test_a_run_that_could_not_be_made_is_not_in_the_way(make, tmp_path):
    assert printed(make, prompts_per_step=30) == (
        f"{tmp_path}/data.jsonl gives 20 prompts, a step takes 30; set prompts_per_step lower"
    )
    with pytest.raises(RejuiceError, match="holds no run to resume"):
        make(prompts_per_step=20, resume=True)
    make(prompts_per_step=20)


@pytest.mark.parametrize(("name", "of"), [("data", ""), ("held_out", "train.validation_path, ")])
def test_a_column_of_a_dataset_is_not_replaced(make, tmp_path, name, of):
    """Neither of the prompts that train, nor of those that validate."""
    row = {"question": "1 + 1?", "answer": "2", "verdict": "as I say"}
    (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n" * 4)
    assert printed(make, validation_path=tmp_path / f"{name}.jsonl") == (
        f"{of}{tmp_path}/recipe.yaml, line 9, step 3 math_verify_mapper: would replace column "
        "'verdict' of the dataset; rename it there, or drop it there to have it computed again"
    )
    assert not (tmp_path / "run").exists()


def test_what_is_no_folder_is_a_name(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("embedded", "mine"):
        (tmp_path / name).mkdir()
    for policy, found in (
        ("embedded", "embedded"),
        ("mine", str(tmp_path / "mine")),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
    ):
        assert make(policy=policy).policy == found
    assert make().policy == "embedded"


def test_paths_are_those_of_where_the_command_was_given(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make(validation_path="data.jsonl").config.validation_path == tmp_path / "data.jsonl"
    with pytest.raises(RejuiceError, match=r"^old\.jsonl does not exist"):
        make(replay="old.jsonl")


TOOL = """
from pathlib import Path

from rejuice.operators.agents import Tool


class Notes(Tool):
    \"\"\"Read notes.\"\"\"

    path: Path
    style: str = "a.txt"

    async def call(self, name: str) -> str:
        return self.path.read_text()


class Facts(Tool):
    \"\"\"Know a fact.\"\"\"

    async def call(self, *, task) -> str:
        return task["fact"]

    def reads(self):
        return ("fact",)
"""


@pytest.mark.parametrize(("name", "of"), [("data", ""), ("held_out", "train.validation_path, ")])
def test_a_column_that_a_tool_reads_is_in_both_datasets(tmp_path, name, of):
    (tmp_path / "tool.py").write_text(TOOL)
    process = [PROCESS[0], {"agent_rollout_mapper": {"tools": ["facts"]}}, *PROCESS[2:]]
    path = write_recipe(
        tmp_path / "recipe.yaml",
        {"validation_path": str(tmp_path / "held_out.jsonl"), "steps": 1, "prompts_per_step": 4},
        process=process,
        custom_operator_paths=[str(tmp_path / "tool.py")],
    )
    for each in ("data", "held_out"):
        row = {"question": "1 + 1?", "answer": "2", **({} if each == name else {"fact": "x"})}
        rows = [{**row, "question": f"{k} + 1?"} for k in range(4)]
        (tmp_path / f"{each}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert printed(prepare, load(path), tmp_path / "run").startswith(
        f"{of}{path}, line 6, step 2 agent_rollout_mapper: column 'fact', which the tool facts "
        "reads, is missing; "
    )


def test_paths_of_tools_are_those_of_where_the_command_was_given(tmp_path, monkeypatch):
    """The run may be resumed from elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool.py").write_text(TOOL)
    agents = {
        "tools": [{"notes": {"path": "notes.txt"}}, "calculator"],
        "tool_cache": "read_write", "tool_cache_path": "cache.sqlite",
    }  # fmt: skip
    process = [PROCESS[0], {"agent_rollout_mapper": agents}, *PROCESS[2:]]
    more = {"process": process, "custom_operator_paths": ["tool.py"]}
    run = prepare(load(write_recipe(tmp_path / "recipe.yaml", **more)), tmp_path / "run")
    monkeypatch.chdir("/")
    notes = run.split.agents.open_tools()[0].tool.part  # in processes, within its cache
    assert (notes.path, notes.style) == (tmp_path / "notes.txt", "a.txt")
    assert run.split.agents.tool_cache_path == tmp_path / "cache.sqlite"


def test_missing_datasets_are_written_where_the_recipe_generates_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arithmetic = {"type": "arithmetic", "prompts": 8}
    generated = {
        "made/train.jsonl": arithmetic,
        "made/held_out.jsonl": {**arithmetic, "split": "validation"},
    }
    path = write_recipe(
        tmp_path / "recipe.yaml",
        dataset_path="made/train.jsonl",
        generated_datasets=generated,
        train={"steps": 1, "prompts_per_step": 8, "validation_path": "made/held_out.jsonl"},
    )
    fields = {"prompt_template_mapper.reference_pattern": "'#### (.*)'"}
    run = prepare(load(path, fields), tmp_path / "run")
    for name in ("train", "validation"):
        assert pq.read_table(run.folder / "prompts" / f"{name}.parquet").num_rows == 8
    assert {*run.recipe.head.generated_datasets} == {tmp_path / name for name in generated}
    with pytest.raises(RejuiceError, match=r"other\.jsonl does not exist"):
        prepare(load(path, {**fields, "dataset_path": "other.jsonl"}), tmp_path / "other")


def test_a_missing_column_is_reported_before_anything_is_made(tmp_path):
    path = write_recipe(tmp_path / "recipe.yaml")
    recipe = load(path, {"prompt_template_mapper.question": "title"})
    found = printed(prepare, recipe, tmp_path / "run")
    assert found.startswith(
        f"{path}, line 5, step 1 prompt_template_mapper: column 'title' is missing"
    )
    assert not (tmp_path / "run").exists()


def test_replay_needs_no_dataset(tmp_path):
    path = write_recipe(tmp_path / "recipe.yaml", dataset_path="not_there.jsonl")
    recipe = load(path, {"train.replay": str(tmp_path / "data.jsonl")})
    assert printed(prepare, recipe, tmp_path / "run") == (
        f"{tmp_path}/data.jsonl has no column 'prompt_id'; "
        "replay needs what policy_rollout_mapper and reward_sum_mapper write"
    )


def test_resume(make, tmp_path):
    assert (
        printed(make, resume=True) == f"{tmp_path}/run holds no run to resume; leave --resume out"
    )
    folder = make().folder
    (folder / "metrics.jsonl").write_text("".join(line(step, 0.5) for step in (1, 2, 3)))
    save(folder, 2)
    made = folder / "prompts" / "train.arrow"
    before = made.stat().st_mtime_ns
    assert make(resume=True, learning_rate=0.5).config.learning_rate == 0.5
    assert made.stat().st_mtime_ns == before
    assert [point.step for point in metrics.read(folder)] == [1, 2]
    assert TrainingRun.open(folder).config.learning_rate == 0.5
    assert printed(make, resume=True, steps=2) == (
        f"{tmp_path}/run has trained its 2 steps; give --steps to train more"
    )


@pytest.mark.parametrize("torn", ["", "x"])
def test_resume_where_the_name_of_the_newest_checkpoint_was_torn(make, torn):
    folder = make().folder
    for step in (2, 10):
        (folder / "checkpoints" / f"global_step_{step}").mkdir(parents=True)
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    latest.write_text(torn)
    assert checkpoints.last(folder) is None, "neither was saved whole"
    for step in (2, 10):
        save(folder, step)
    latest.write_text(torn)
    assert checkpoints.last(folder) == 10
    make(resume=True, steps=20)
    assert latest.read_text() == "10", "verl reads it"


def test_a_resume_that_is_refused_changes_nothing(make, tmp_path):
    folder = make().folder
    save(folder, 2)
    before = (folder / "recipe.yaml").read_bytes()
    assert "train.parquet gives 20 prompts, a step takes 21" in printed(
        make, resume=True, prompts_per_step=21
    )
    assert (folder / "recipe.yaml").read_bytes() == before
    assert make(resume=True).config.prompts_per_step == 4


def test_a_resume_removes_the_oldest_checkpoints(make):
    folder = make().folder
    for step in (1, 2, 3):
        save(folder, step)
    make(resume=True, keep_checkpoints=1)
    assert checkpoints.steps(folder) == [3]
    assert not (folder / "checkpoints" / "global_step_2").exists()


# launch


@pytest.mark.slow
def test_status_log_and_command(make, verl):
    run = make()
    verl("import os, sys; print(os.environ['VERL_PLATFORM'], len(sys.argv)); sys.exit(3)")
    calls = []
    assert launch(run, follow=lambda: calls.append(1)) == 3
    assert launch(run) == 3
    first, second = (run.folder / "verl.log").read_text().splitlines()
    assert first == second
    assert first.startswith("cpu ")
    command = (run.folder / "command.txt").read_text()
    assert command == shell_command(run) + "\n"
    words = shlex.split(command.replace("\\\n", ""))
    assert sys.executable in words
    config = yaml.safe_load((run.folder / "verl.yaml").read_text())
    assert config["data"]["train_files"] == f"{run.folder}/prompts/train.parquet"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, errors="replace", check=False
    )
    assert (done.returncode, done.stdout.strip()) == (3, first), "a shell runs it as it stands"


@pytest.mark.slow
def test_a_shell_runs_what_a_dry_run_prints(tmp_path, verl):
    """The script of a run that has written nothing, in a folder whose name needs quotes."""
    path = write_recipe(tmp_path / "recipe.yaml")
    run = TrainingRun.of(tmp_path / "o'brien's $run", load(path))
    verl("import sys, pathlib; print(pathlib.Path(sys.argv[2], sys.argv[4] + '.yaml').read_text())")
    done = subprocess.run(
        ["sh", "-c", shell_script(run)],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    config = yaml.safe_load(done.stdout)
    assert config["data"]["train_files"] == f"{run.folder}/prompts/train.parquet"
    assert list(run.folder.iterdir()) == [run.folder / "verl.yaml"]


@pytest.mark.slow
def test_an_error_of_an_earlier_launch_is_forgotten(make, verl):
    run = make()
    (run.folder / "error.json").write_text('{"message": "old", "expected": true}')
    verl("")
    assert launch(run) == 0
    assert not (run.folder / "error.json").exists()


@pytest.mark.slow
def test_a_key_that_verl_does_not_know_is_an_error_before_anything_is_made(make, tmp_path):
    assert printed(make, verl="{trainer.no: 1}") == (
        "verl has no key 'trainer.no'; did you mean 'trainer.nnodes'?"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_weights_on_their_way_to_the_sampler_do_not_stay(make, verl):
    run = make()
    verl(f"import pathlib; pathlib.Path({str(Weights.of(run.folder, 3).file)!r}).touch()")
    assert launch(run) == 0
    assert not Weights.all_in(run.folder)


@pytest.mark.slow
def test_a_process_that_is_left_is_ended(make, verl):
    run = make()
    verl(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)")  # fmt: skip
    assert launch(run) == 0
    assert training.of_run(run.folder) == []


@pytest.mark.slow
def test_all_is_ended_when_verl_is_killed(make, verl):
    run = make()
    verl(
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert launch(run) == -9
    assert training.of_run(run.folder) == []


@pytest.fixture
def hears():
    """Signals that end a program, also where these tests run under nohup."""
    before = {n: signal.signal(n, signal.SIG_DFL) for n in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exception", "SIGTERM", "SIGHUP"])
def test_all_is_ended_when_we_are(make, verl, hears, end):
    run = make()
    # Deaf to SIGTERM, as a process in a C library is.
    verl(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}")  # fmt: skip

    def follow():
        if "up" in (run.folder / "verl.log").read_text():
            if end == "exception":
                raise KeyboardInterrupt
            os.kill(os.getpid(), getattr(signal, end))

    with pytest.raises(KeyboardInterrupt):
        launch(run, follow=follow)
    assert training.of_run(run.folder) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_a_folder_is_trained_once_at_a_time(make, verl, tmp_path):
    run = make()
    verl(SLEEP)
    found = []

    def follow():
        found.append(printed(make, resume=True))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(run, follow=follow)
    pid = found[0].split()[6].rstrip(";")
    assert found == [
        f"{tmp_path}/run is being trained by process {pid}; wait for it, or end it"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not is_supported(), reason="no fork server here")
def test_the_fork_server_of_a_run_outlives_its_processes(make, verl, monkeypatch):
    monkeypatch.setattr(training, "_PATIENCE_S", 0.2)  # It would be ended after that.
    verl("import sys; sys.exit(3)")
    run = make()
    with PreloadServer(training.process_environment(run), ()) as server:
        # Right after its start, a process cannot be asked for its environment yet.
        while not (found := training.of_run(run.folder)):
            assert server.process.poll() is None
        assert [each.pid for each in found] == [server.process.pid]
        for _ in range(2):
            assert launch(run, fork_server=server) == 3
            assert server.process.poll() is None


@pytest.mark.slow
def test_processes_of_another_run_are_left_alone(tmp_path):
    run = write_run(tmp_path / "run")
    child = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, RUN_VARIABLE: f"{run}2"})  # fmt: skip
    try:
        training.end_all(run)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
