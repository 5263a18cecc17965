"""A real Ray cluster on this machine, for the tests of what runs on one."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture(scope="module")
def ray_cluster():
    """A cluster of one node with four CPUs; tests connect to its `address` and disconnect.

    It ends with the module: a Ray that nobody uses takes a tenth of a core.
    """
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # It notes its address there, whatever its own folder is, and does not make the folder.
    Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray").mkdir(exist_ok=True)
    # A folder of its own: what runs beside these tests must not take this cluster for its own. The
    # name is short, because that of a socket in it must be.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        node = {"num_cpus": 4, "include_dashboard": False, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def folder_in_memory():
    """A new folder, in memory where there is one: a run waits for the disk at each commit."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@contextmanager
def _second_node(cluster, folder):
    ray = Path(sys.executable).with_name("ray")
    start = f"{ray} start --address={cluster.address} --num-cpus=1"
    temporary = cluster.head_node.get_temp_dir_path()
    command = f"mount -t tmpfs tmpfs {folder} && exec {start} --block"
    node = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", command],
        # It writes the address of the cluster there, as `ray_cluster` does not.
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield node
    finally:
        node.terminate()
        node.wait()


@pytest.fixture
def second_node(ray_cluster, tmp_path):
    """A second node of the cluster, for which the folder that is returned is another one."""
    folder = tmp_path / "of one node"
    folder.mkdir()
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("mounting a folder for one process needs root")
    from rejuice.pipelines.ray_session import connected_to_ray

    with (
        _second_node(ray_cluster, f"'{folder}'") as second,
        connected_to_ray(ray_cluster.address),
    ):
        import ray

        deadline = time.monotonic() + 180
        while sum(node["Alive"] for node in ray.nodes()) < 2:
            assert second.poll() is None, "the second node has ended"
            assert time.monotonic() < deadline, "the second node did not start"
            time.sleep(0.2)
        yield folder
