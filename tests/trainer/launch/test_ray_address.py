"""A run has a Ray of its own, whatever Ray runs beside it, unless it is to join a cluster."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fake_run import write_recipe

from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.launch.verl_config import ADDRESS, overrides, ray_address, write_config
from rejuice.trainer.run import TrainingRun

ELSEWHERE = "10.0.0.1:6379"
START = """
import sys
from pathlib import Path
import ray
from omegaconf import OmegaConf
from rejuice.trainer.launch.compose import composed
given = OmegaConf.to_container(composed(Path(sys.argv[1])).ray_kwargs.ray_init)
given.pop("runtime_env")  # It says how workers are started, of which there are none.
ray.init(**given)
print(ray.cluster_resources()["GPU"])
"""


@pytest.fixture
def run(tmp_path):
    def make(**train):
        recipe = load(write_recipe(tmp_path / "try.yaml", train=train))
        return TrainingRun.of(tmp_path / "run", recipe)

    return make


@pytest.mark.parametrize(
    ("train", "variable", "address"),
    [
        ({}, None, "local"),
        ({}, ELSEWHERE, "local"),
        ({"profile": "gpu"}, None, "local"),
        ({"profile": "gpu"}, "local", "local"),
        ({"profile": "gpu"}, "", "local"),
        ({"profile": "gpu"}, ELSEWHERE, "auto"),
        ({"profile": "gpu", "gpu": {"nodes": 2}}, None, "auto"),
        ({"profile": "gpu", "verl": {f"+{ADDRESS}": ELSEWHERE}}, None, ELSEWHERE),
        ({"profile": "gpu", "gpu": {"nodes": 2}, "verl": {ADDRESS: ELSEWHERE}}, None, ELSEWHERE),
    ],
)
def test_the_ray_that_a_run_trains_on(run, monkeypatch, train, variable, address):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_address(run(**train)) == address
    keys = overrides(run(**train), resume=False)
    assert {name.lstrip("+"): value for name, value in keys.items()}[ADDRESS] == address


def test_without_an_address_ray_looks_for_a_cluster(run):
    assert ray_address(run(profile="gpu", verl={f"+{ADDRESS}": None})) == "auto"


@pytest.mark.slow
def test_training_does_not_join_a_cluster_that_runs_beside_it(run, tmp_path):
    """verl gives Ray a number of CPUs, which Ray refuses where it joins a cluster."""
    pytest.importorskip("verl")
    folder = tmp_path / "run"
    folder.mkdir()
    write_config(folder, overrides(run(), resume=False))
    # Where Ray looks; the name is short, because that of a socket in it must be.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as temporary:
        (Path(temporary) / "ray").mkdir()
        (Path(temporary) / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")
        done = subprocess.run(
            [sys.executable, "-c", START, folder],
            env={**os.environ, "RAY_TMPDIR": temporary, "RAY_ADDRESS": "127.0.0.1:9"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1.0"
