"""How many processes the `transformers` engine has by default."""

import json
import sys
from types import SimpleNamespace

import psutil
import pytest

from rejuice.operators.sampling import engines, processes
from rejuice.operators.sampling.engines import EngineSpec
from rejuice.operators.sampling.protocol import TransformersOptions


def safetensors(path, shapes, dtype):
    header = {name: {"dtype": dtype, "shape": shape} for name, shape in shapes.items()}
    data = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data)


@pytest.fixture
def opened(monkeypatch):
    """Opens an engine on a machine with 8 cores: (workers, threads)."""
    made = []
    free = SimpleNamespace(available=10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr("rejuice.operators.workers.usable_cores", lambda: 8)
    monkeypatch.setattr(
        processes, "EngineProcesses", lambda build, **arguments: made.append(arguments)
    )

    def open_(policy, gigabytes=1, **options):
        free.available = gigabytes * 10**9
        engines._build_engine(
            EngineSpec(str(policy), 0, True, {}, TransformersOptions(device="cpu", **options))
        )
        return made[-1]["workers"], made[-1]["threads"]

    return open_


@pytest.mark.parametrize(
    ("millions", "dtype", "expected"),
    [
        (10, "float32", (8, 1)),  # 40 MB, of 400 MB that they may take
        (30, "float32", (3, 2)),
        (30, "bfloat16", (6, 1)),
        (60, "float32", (1, 8)),
        (900, "float32", (1, 8)),  # It does not fit at all: the process will say so.
    ],
)
def test_a_process_for_each_core_as_far_as_copies_of_the_weights_fit(
    tmp_path, opened, millions, dtype, expected
):
    """Whatever the type in which the weights are stored."""
    half = [millions * 100, 5000]
    safetensors(tmp_path / "model-1.safetensors", {"a": half}, "BF16")
    safetensors(tmp_path / "model-2.safetensors", {"b": half}, "BF16")
    assert opened(tmp_path, dtype=dtype) == expected
    assert opened(tmp_path, dtype=dtype, workers=2) == (2, 4)


def test_large_weights_are_shared_by_two_threads(tmp_path, opened):
    """A model of half a billion parameters, where there is memory for more copies."""
    safetensors(tmp_path / "model.safetensors", {"a": [500_000, 1000]}, "BF16")
    assert opened(tmp_path, 100, dtype="float32") == (4, 2)
    assert opened(tmp_path, 100, dtype="bfloat16") == (8, 1)
    assert opened(tmp_path, 10, dtype="float32") == (2, 4)


def test_weights_that_are_not_here_yet_are_loaded_once(opened):
    assert opened("nobody/nothing") == (1, 8)


def test_weights_of_a_hub_model_are_found_where_they_were_downloaded(tmp_path, opened, monkeypatch):
    safetensors(tmp_path / "model.safetensors", {"a": [30, 10**6]}, "F32")
    found = {("some/model", "config.json"): str(tmp_path / "config.json")}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *key: found.get(key))
    assert opened("some/model") == (3, 2)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\noid"])
def test_a_file_of_no_weights_is_left_to_the_engine_to_report(tmp_path, opened, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert opened(tmp_path) == (1, 8)


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("cuda: Optional[str] = None", "cpu"),
        ("cuda: Optional[str] = '12.8'", "cuda"),
        ("hip = '6'", "cuda"),
    ],
)
def test_torch_is_asked_for_a_gpu_where_it_is_a_build_for_gpus(tmp_path, monkeypatch, line, device):
    """Not by device files: a container may lack them and have a GPU."""
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\n")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(engines, "find_spec", lambda _: spec)
    cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert engines._best_device() == device
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    assert engines._best_device() == "cpu"
