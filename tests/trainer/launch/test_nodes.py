"""What the nodes of a cluster must share is checked on a real Ray cluster of two nodes."""

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fake_run import write_recipe

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine import workers_on_ray
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.launch.checks import check_nodes, look
from rejuice.trainer.run import TrainingRun

OPERATOR = """
from rejuice.operators import Filter

class NothingFilter(Filter):
    reasons = {"never": "it never does"}
    def reads(self):
        return ("response",)
    def decide(self, table):
        return [None] * table.num_rows
"""


@pytest.fixture
def run(tmp_path):
    """A factory of prepared runs on so many nodes, with a policy and operators in files."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    (tmp_path / "own.py").write_text(OPERATOR)

    def make(nodes=2, **train):
        fields = {"profile": "gpu", "gpu": {"nodes": nodes}, "policy": str(tmp_path / "policy")}
        path = write_recipe(
            tmp_path / "try.yaml",
            {**fields, **train},
            custom_operator_paths=[str(tmp_path / "own.py")],
        )
        (tmp_path / "run").mkdir(exist_ok=True)
        return TrainingRun.of(tmp_path / "run", load(path))

    return make


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # A folder of its own: what runs beside these tests must not take this cluster for its own. The
    # name is short, because that of a socket in it must be.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        head = {"num_cpus": 1, "temp_dir": folder}
        started = Cluster(initialize_head=True, head_node_args=head)
        other = started.add_node(num_cpus=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", started.address)
            yield other.node_id
        ray.shutdown()
        started.shutdown()


def on_node(node, looks):
    """What is called on each node: `looks` on that one, `look` on the others."""

    def call(token, copies):
        import ray

        from rejuice.trainer.launch.checks import look as here

        there = ray.get_runtime_context().get_node_id() == node
        return (looks if there else here)(token, copies)

    return call


def elsewhere(prefix, other):
    """A node whose folder `prefix` is another one."""

    def looks(token, copies):
        from rejuice.pipelines.engine import workers_on_ray
        from rejuice.trainer.launch.checks import look as here

        workers_on_ray._WAIT_S = 0.1

        def moved(path):
            return Path(str(path).replace(str(prefix), str(other), 1))

        return here(moved(token), tuple(map(moved, copies)))

    return looks


def test_a_run_with_a_ray_of_its_own_is_not_checked(run, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    check_nodes(run(nodes=1))
    check_nodes(run(profile="cpu", gpu={}))


@pytest.mark.slow
def test_nodes_that_see_everything(run, cluster, tmp_path):
    check_nodes(run())
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.slow
def test_one_node_of_a_cluster_is_checked(run, cluster):
    """verl may be placed on any."""

    def blind(*seen):
        return look(*seen)._replace(reads=False)

    with pytest.raises(RejuiceError, match="does not see the folder of the run"):
        check_nodes(run(nodes=1), on_node(cluster, blind))


@pytest.mark.slow
def test_what_a_node_does_not_see(run, cluster, tmp_path):
    copy = tmp_path / "copy"
    (copy / "policy").mkdir(parents=True)
    (copy / "run").mkdir()

    def error(run, looks):
        with pytest.raises(RejuiceError) as found:
            check_nodes(run, on_node(cluster, looks))
        node, _, rest = str(found.value).partition(") ")
        assert node.startswith("node ")
        assert list((tmp_path / "run").iterdir()) == []
        return rest

    share = "put it on a file system that all nodes share"
    folder = f"the folder of the run {tmp_path}/run"
    nowhere = elsewhere(tmp_path / "run", tmp_path / "nowhere")
    assert error(run(), nowhere) == f"does not see {folder}; {share}"
    same = "let all nodes have the same files at this path"
    missing = elsewhere(tmp_path / "policy", copy / "nowhere")
    assert error(run(), missing).startswith("does not see ")
    assert error(run(), missing).endswith(f"nowhere; {same}")
    there = elsewhere(tmp_path / "policy", copy / "policy")
    check_nodes(run(), on_node(cluster, there))  # A copy on the disk of the node.

    def read_only(*seen):
        return look(*seen)._replace(error="Read-only file system")

    assert error(run(), read_only) == (
        f"cannot write to {folder}: Read-only file system; let it write there"
    )

    def fails(*_):
        raise ImportError("No module named 'pyarrow'")

    assert error(run(), fails) == (
        "of the Ray cluster: ImportError: No module named 'pyarrow'; "
        "install what the driver has there"
    )


@pytest.mark.slow
def test_too_few_nodes(run, cluster):
    with pytest.raises(RejuiceError) as error:
        check_nodes(run(nodes=3))
    assert str(error.value) == (
        "train.gpu.nodes is 3, and the Ray cluster has 2 nodes; "
        "add nodes to it, or lower train.gpu.nodes"
    )


def test_no_cluster(run, monkeypatch):
    """Where there is none, one would be started on this machine."""
    monkeypatch.setattr(
        "rejuice.trainer.launch.checks.connected_to_ray", lambda _: nullcontext(True)
    )
    with pytest.raises(RejuiceError) as error:
        check_nodes(run())
    assert str(error.value) == (
        "train.gpu.nodes is 2, and no Ray cluster runs on this machine; "
        "start Ray on all nodes, or lower train.gpu.nodes"
    )


def test_what_this_node_sees(tmp_path):
    (tmp_path / "token").write_text("token")
    found = look(tmp_path / "token", (tmp_path, tmp_path / "nothing"))
    assert found == (True, None, (tmp_path / "nothing",))
    assert len([*tmp_path.glob("token-*")]) == 1


def test_a_node_without_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(workers_on_ray, "_WAIT_S", 0.0)
    found = look(tmp_path / "no" / "token", ())
    assert (found.reads, found.error) == (False, None)
