"""A folder is shared if each node of a Ray cluster sees what is written into it."""

import re

import pytest

from rejuice.operators import EngineError
from rejuice.pipelines.dataset.remote import RemotePath
from rejuice.pipelines.engine.workers_on_ray import check_shared, on_each_node
from rejuice.pipelines.ray_session import connected_to_ray


def test_an_object_store_is_the_same_from_everywhere():
    check_shared(RemotePath("s3", "bucket/folder"), "the cache")


@pytest.mark.slow
def test_a_node_that_sees_another_folder_is_named(second_node, tmp_path):
    check_shared(tmp_path / "new", "the cache")
    with pytest.raises(EngineError) as error:
        check_shared(second_node, "the cache")
    assert re.fullmatch(
        rf"node \S+ \([\d.:]+\) of the Ray cluster cannot read the cache in {second_node}; "
        "give a folder that all nodes share, or one of an object store",
        str(error.value),
    )
    assert list(second_node.iterdir()) == [], "nothing is left of the check"


@pytest.mark.slow
def test_a_node_that_fails_is_named(ray_cluster):
    def fail():
        raise ModuleNotFoundError("No module named 'rejuice'")

    with connected_to_ray(ray_cluster.address), pytest.raises(EngineError) as error:
        on_each_node(fail)
    assert re.fullmatch(
        r"node \S+ \([\d.:]+\) of the Ray cluster: ModuleNotFoundError: No module named "
        "'rejuice'; install what the driver has there",
        str(error.value),
    )
