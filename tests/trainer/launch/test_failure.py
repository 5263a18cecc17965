"""Why a run ended: one line out of thousands."""

import shutil
from pathlib import Path

import pytest

from rejuice.operators import DataError
from rejuice.trainer import run
from rejuice.trainer.launch.failure import cause, last_error
from rejuice.trainer.run import errors_recorded

RUN = Path("/run")
NOISE = "\x1b[36m(WorkerDict pid=7)\x1b[0m WARNING:target_num_threads 8 should not exceed 2\n"
RAY = """\
Error executing job with overrides: ['data.seed=0']
Traceback (most recent call last):
  File "main_ppo.py", line 100, in run_ppo
    ray.get(runner.run.remote(config))
ray.exceptions.RayTaskError({0}): \x1b[36mray::TaskRunnerV1.run()\x1b[39m (pid=1, ip=10.0.0.1)
  File "buffer.py", line 90, in _training
    raise {0}(
{1}
"""


def reported(text, status=1):
    return cause(NOISE + text + NOISE, status, RUN)


def test_rays_own_limits():
    late = "Exception: The current node timed out during startup. This could happen\n"
    assert "busy" in reported(late)


@pytest.mark.slow
def test_ray_may_take_longer_to_start(monkeypatch):
    """Ray asks for its node by this function, and has no setting for how long it does."""
    import inspect

    from ray._private import node, services

    from rejuice.trainer.verl import plugin

    assert "ray._private.services.get_node(" in inspect.getsource(node.Node.__init__)
    assert services.get_node is plugin.get_node
    found = iter([RuntimeError("not yet"), {"node": 1}])

    def wanted(*_):
        if isinstance(answer := next(found), Exception):
            raise answer
        return answer

    monkeypatch.setattr(plugin, "_get_node", wanted)
    monkeypatch.setattr(plugin.time, "sleep", lambda _: None)
    assert plugin.get_node("", "") == {"node": 1}


def test_a_disk_that_was_full_while_verl_ran(tmp_path):
    assert cause(NOISE, 1, tmp_path, 4096) == f"no space left on the disk of {tmp_path}"
    assert cause(NOISE, 1, tmp_path, 1 << 20) == "verl ended with exit status 1"


def failed(folder, error):
    with pytest.raises(type(error)), errors_recorded(folder):
        raise error


def test_an_error_that_our_code_inside_verl_has_recorded(tmp_path):
    failed(tmp_path, DataError("step 3: no group\n is left", "allow a refill"))
    log = RAY.format("DataError", "rejuice.operators.errors.DataError: another one")
    assert cause(log, 1, tmp_path) == "step 3: no group is left; allow a refill"
    assert cause("", -9, tmp_path) == "step 3: no group is left; allow a refill"
    assert [path.name for path in tmp_path.iterdir()] == ["error.json"]


def test_a_recorded_error_of_another_library_comes_after_what_the_log_explains(tmp_path):
    failed(tmp_path, OSError(28, "No space left on device"))
    assert cause(
        RAY.format("OSError", "OSError: [Errno 28] No space left on device"), 1, tmp_path
    ) == (f"no space left on the disk of {tmp_path}")
    failed(tmp_path, KeyError("x"))
    assert cause(RAY.format("ValueError", "ValueError: of the log"), 1, tmp_path) == "KeyError: 'x'"


def test_the_sampler_that_failed_is_recorded_as_why_no_prompt_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_last_sampler_failure", None)
    failed(tmp_path, DataError(f"step 3: no group is left ({run.NO_PROMPT_LEFT})"))
    assert cause("", 1, tmp_path) == "step 3: no group is left (every prompt failed)"
    run.report_sampler_failure("out of luck")
    failed(tmp_path, DataError("step 3: no group is left (too_long 4)"))
    assert cause("", 1, tmp_path) == "step 3: no group is left (too_long 4)"
    failed(tmp_path, DataError(f"step 3: no group is left ({run.NO_PROMPT_LEFT})"))
    assert cause("", 1, tmp_path) == "the sampler failed: out of luck"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": "x"}'])
def test_a_record_that_cannot_be_read_is_passed_over(tmp_path, text):
    (tmp_path / "error.json").write_text(text)
    assert cause("ValueError: of the log", 1, tmp_path) == "ValueError: of the log"


def test_an_error_that_cannot_be_recorded_is_raised_all_the_same(tmp_path):
    failed(tmp_path / "not there", DataError("x"))


def test_no_space_for_the_log_itself(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    assert cause(NOISE, 1, tmp_path) == f"no space left on the disk of {tmp_path}"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    assert cause(NOISE, 1, tmp_path) == "verl ended with exit status 1"


def test_no_space_while_saving():
    saving = "\x1b[36m(TaskRunnerV1 pid=1)\x1b[0m INFO:Saving checkpoint to /run/checkpoints/global_step_4\n"
    full = RAY.format("OSError", "OSError: [Errno 28] No space left on device")
    assert reported(saving + full) == "no space left on the disk of /run/checkpoints"
    saved = saving + "(TaskRunnerV1 pid=1) step:4 - rejuice/reward:0.5\n"
    assert reported(saved + full) == "no space left on the disk of /run"


def test_out_of_memory():
    assert reported("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n") == (
        "a GPU is out of memory; lower train.gpu.tokens_per_gpu or train.gpu.memory"
    )
    assert reported("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n") == (
        "out of memory; lower train.cpu.tokens, train.prompts_per_step or the n of"
        " policy_rollout_mapper"
    )  # fmt: skip


def test_killed():
    assert reported("", -9) == "verl was killed by SIGKILL"
    died = "ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    of = "\tclass_name: create.<locals>.WorkerDict\n\tactor_id: 01\n"
    assert (
        reported(died + of)
        == "verl's process WorkerDict was killed; the machine is probably out of memory"
    )


def test_any_other_exception():
    inner = RAY.format("ValueError", "ValueError: the last one")
    assert (
        reported(RAY.format("KeyError", "KeyError: 'first'") + inner) == "ValueError: the last one"
    )


def test_nothing_to_go_by():
    assert reported("", 3) == "verl ended with exit status 3"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", None),
        ("ValueError: x", "ValueError: x"),
        ("a.b.StrangeException: y", "StrangeException: y"),
        ("AssertionError", "AssertionError"),
        ("rejuice.operators.errors.DataError: x; do y", "x; do y"),
        ("in ValueError: x", None),
        ("ray.exceptions.RayTaskError(ValueError): ray::f()", None),
    ],
)
def test_last_error(log, error):
    assert last_error(log) == error
