"""Which checkpoints there are, and what becomes of one that is taken out."""

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from command import runner
from fake_run import line, save, write_run

from rejuice.operators import RejuiceError
from rejuice.pipelines.recipe.train import Train
from rejuice.trainer.cpu.fork_server import PYTHON, PreloadServer, is_supported
from rejuice.trainer.launch import checkpoints

MERGES = """
import json, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
source, target = pathlib.Path(words["--local_dir"]), pathlib.Path(words["--target_dir"])
target.mkdir(exist_ok=True)
(target / "config.json").write_text((source / "huggingface" / "config.json").read_text())
(target / "weights").write_text((source / "weights.pt").read_text())
"""


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "run", checkpoints=[2, 4])
    actor = folder / "checkpoints" / "global_step_4" / "actor"
    (actor / "huggingface").mkdir()
    config = {"hidden_size": 128, "attn_implementation": "of the trainer"}
    (actor / "huggingface" / "config.json").write_text(json.dumps(config))
    (actor / "weights.pt").write_text("of step 4")
    return folder


@pytest.fixture
def merger(monkeypatch):
    """Make a script of what merges."""

    def is_now(code):
        monkeypatch.setattr(checkpoints, "_MERGER", [sys.executable, "-c", code])

    return is_now


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def test_a_checkpoint_that_was_not_saved_whole_is_none(run, tmp_path):
    (run / "checkpoints" / "global_step_6").mkdir()
    assert checkpoints.last(run) == 4
    assert checkpoints.steps(run) == [2, 4]
    assert checkpoints.last(tmp_path) is None
    assert checkpoints.steps(tmp_path) == []


def test_one_whose_weights_verl_has_removed_is_none(run):
    """verl keeps the folder, and says which is the newest after it has removed the older one."""
    (run / "checkpoints" / "global_step_2" / "actor").rmdir()
    assert checkpoints.steps(run) == [4]
    shutil.rmtree(run / "checkpoints" / "global_step_4" / "actor")
    assert checkpoints.last(run) is None
    save(run, 6)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    assert checkpoints.last(run) == 6


def test_a_copy_under_a_name_of_your_own_stays(run):
    shutil.copytree(
        run / "checkpoints" / "global_step_2", run / "checkpoints" / "global_step_2.best"
    )
    checkpoints.prune(run, Train(), 1)
    assert checkpoints.steps(run) == [4]
    assert (run / "checkpoints" / "global_step_2.best" / "actor").is_dir()


@pytest.mark.slow
def test_the_best_one_is_kept_exported_and_reported(run, merger, rejuice, tmp_path):
    document = yaml.safe_load((run / "recipe.yaml").read_text())
    document["train"] |= {"keep": "best", "save_every": 1}
    (run / "recipe.yaml").write_text(yaml.safe_dump(document))
    best = {"rejuice/best/step": 4.0, "rejuice/best/accuracy": 0.75}
    values = {0: 0.9, 2: 0.5, 4: 0.75, 5: 0.8, 6: 0.25}  # Of step 5 there is no checkpoint.
    lines = [line(step, 0.5, value, **best) for step, value in values.items()]
    (run / "metrics.jsonl").write_text("".join(lines))
    save(run, 6)
    save(run, 8)
    config = Train.model_validate(document["train"])
    checkpoints.prune(run, config, 1)
    assert checkpoints.steps(run) == [4, 8]
    assert checkpoints.best(run, config).step == 4
    assert checkpoints.best(run, Train()) is None
    merger(MERGES)
    assert rejuice("export", "policy", run, tmp_path / "policy")[0] == 0
    assert (tmp_path / "policy" / "weights").read_text() == "of step 4"
    shown = rejuice("report", run)[1]
    assert (
        "the policy is that of step 4, the best validation: 0.750; before training it was 0.900"
        in shown
    )


def test_the_one_that_a_resume_goes_on_from_is_not_removed(run):
    save(run, 6)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    checkpoints.prune(run, Train(), 1)
    assert checkpoints.last(run) == 4
    assert not (run / "checkpoints" / "global_step_2").exists()


@pytest.mark.slow
def test_a_policy_knows_nothing_of_how_it_was_trained(run, merger, tmp_path):
    merger(MERGES)
    path = tmp_path / "new" / "policy"
    assert checkpoints.export(run, path) == 4
    assert json.loads((path / "config.json").read_text()) == {"hidden_size": 128}
    assert (path / "weights").read_text() == "of step 4"
    actor = run / "checkpoints" / "global_step_4" / "actor"
    assert "attn_implementation" in (actor / "huggingface" / "config.json").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not is_supported(), reason="this system cannot watch forks")
def test_the_fork_server_of_a_run_forks_what_merges(run, monkeypatch, tmp_path):
    """It has loaded what takes ten seconds to load."""
    count = len(PYTHON)
    assert checkpoints._MERGER[:count] == [*PYTHON]
    code = f"{MERGES}\nimport os; (target / 'parent').write_text(str(os.getppid()))"
    monkeypatch.setattr(checkpoints, "_MERGER", [*PYTHON, "-c", code])
    with PreloadServer({}, ()) as server:
        checkpoints.export(run, tmp_path / "policy", variables=server.variables)
        assert (tmp_path / "policy" / "parent").read_text() == str(server.process.pid)


def test_a_policy_of_megatron_is_a_folder_already(run, merger, tmp_path):
    merger("raise SystemExit('there is nothing to merge')")
    whole = run / "checkpoints" / "global_step_4" / "actor" / "model" / "huggingface"
    whole.mkdir(parents=True)
    (whole / "config.json").write_text("{}")
    (whole / "model.safetensors").write_text("of step 4")
    assert checkpoints.export(run, tmp_path / "policy") == 4
    found = {path.name: path.read_text() for path in (tmp_path / "policy").iterdir()}
    assert found == {"config.json": "{}", "model.safetensors": "of step 4"}


def test_verls_megatron_saves_it_there():
    """By its source: importing it needs Megatron."""
    (verl,) = find_spec("verl").submodule_search_locations
    source = Path(verl, "utils", "megatron_utils.py").read_text("utf-8")
    function = source.partition("def get_hf_model_checkpoint_path(checkpoint_path):")[2]
    path = "os.path.join(get_model_checkpoint_path(checkpoint_path), _HUGGINGFACE_SUBDIR)"
    assert path in function.partition("def ")[0]
    names = re.findall(r'^_(?:MODEL|HUGGINGFACE)_SUBDIR = "(\w+)"', source, re.MULTILINE)
    assert sorted(names, reverse=True) == [*checkpoints._MEGATRONS.parts]


PICKLED = f"""
import sys
if "--trusted" not in sys.argv: sys.exit({checkpoints.NEEDS_TRUST})
sys.argv.remove("--trusted")
{MERGES}
"""


@pytest.mark.slow
def test_a_checkpoint_of_other_objects_needs_trust(run, merger, rejuice, tmp_path):
    merger(PICKLED)
    words = ("export", "policy", run, tmp_path / "policy")
    found = "run makes code run: a checkpoint of pickled objects"
    command = "rejuice export policy run policy --trust"
    refused = f"rejuice: {found}; if you made it, or trust whoever did, run `{command}`\n"
    assert rejuice(*words)[::2] == (2, refused)
    assert not list(tmp_path.glob("policy*"))
    assert rejuice(*words, "--trust")[0] == 0
    shutil.rmtree(tmp_path / "policy")
    assert rejuice(*words)[0] == 0, "it is remembered"
    shutil.rmtree(tmp_path / "policy")
    (run / "checkpoints" / "global_step_4" / "actor" / "weights.pt").write_text("others")
    assert rejuice(*words)[::2] == (2, refused)


def test_a_run_folder_is_resumed_from_checkpoints_that_are_trusted(run, rejuice):
    found = "run makes code run: its checkpoints, which verl unpickles"
    right = "if you made it, or trust whoever did, run `rejuice train run --resume --trust`"
    assert rejuice("train", run, "--resume") == (2, "", f"rejuice: {found}; {right}\n")


def test_what_is_kept_has_weights_and_nothing_is_left_of_the_others(run):
    save(run, 6)
    shutil.rmtree(checkpoints.folder_of(run, 2) / "actor")  # As verl removes it.
    begun = checkpoints.folder_of(run, 8)  # It is not whole: the run was killed.
    begun.mkdir()
    checkpoints.prune(run, Train(), 1)
    there = {path.name for path in (run / "checkpoints").glob("global_step_*")}
    assert there == {"global_step_6", begun.name}


@pytest.mark.slow
def test_a_merger_that_fails_leaves_nothing(run, merger, tmp_path):
    merger(MERGES + "\nraise ValueError('no such weights')")
    with pytest.raises(RejuiceError) as error:
        checkpoints.export(run, tmp_path / "policy")
    assert str(error.value) == (
        f"{run}/checkpoints/global_step_4/actor: "
        "the checkpoint could not be merged: ValueError: no such weights"
    )
    assert not list(tmp_path.glob("policy*"))
