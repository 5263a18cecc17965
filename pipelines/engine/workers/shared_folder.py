"""Whether every node of a Ray cluster sees the same files: a folder may be local to one machine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ....operators import EngineError
from ...dataset.remote import AnyPath, RemotePath

_WAIT_S = 5.0
"""How long a new file may take until other machines see it: network file systems cache folders."""


class OfNode(NamedTuple):
    """What a function returned on one node.

    Attributes:
        node: its host name and address, for messages.
        value: what the function returned.
    """

    node: str
    value: Any


def on_each_node(function: Callable[..., Any], *arguments: Any) -> list[OfNode]:
    """Call a function once on each node that may run tasks.

    Args:
        function: of a module that the nodes can import.
        arguments: of the function.

    Raises:
        EngineError: it failed on a node, such as one where rejuice is not installed.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=3)(function)
    # A head node is often given no CPU, so that it runs no tasks.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    names = [f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})" for node in nodes]
    calls = [
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(*arguments)
        for node in nodes
    ]
    found = []
    for name, call in zip(names, calls, strict=True):
        try:
            found.append(OfNode(name, ray.get(call)))
        except ray.exceptions.RayError as error:
            cause = str(error).strip().splitlines()[-1].strip()
            right = "install what the driver has there"
            raise EngineError(f"node {name} of the Ray cluster: {cause}", right) from error
    return found


def nodes_that_cannot_read(folder: AnyPath) -> list[str]:
    """The nodes of the connected Ray cluster that do not see what is written into a folder.

    Args:
        folder: one on disk is made where it does not exist; one of an object store is the same
            from everywhere.

    Raises:
        EngineError: as `on_each_node`.
        OSError: this process cannot write into the folder.
    """
    if isinstance(folder, RemotePath):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    text = uuid.uuid4().hex
    token = folder.absolute() / f".shared-{text}"
    token.write_text(text)
    try:
        return [node for node, reads in on_each_node(reads_text, token, text) if not reads]
    finally:
        token.unlink(missing_ok=True)


def check_shared(folder: AnyPath, what: str) -> None:
    """Check that all nodes of the connected Ray cluster share a folder.

    Args:
        folder: as in `nodes_that_cannot_read`.
        what: what it is for, such as "the cache".

    Raises:
        EngineError: a node does not see it; or as `on_each_node`.
        OSError: this process cannot write into it.
    """
    nodes = nodes_that_cannot_read(folder)
    if nodes:
        others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        found = f"node {nodes[0]}{others} of the Ray cluster cannot read {what} in {folder}"
        raise EngineError(found, "give a folder that all nodes share, or one of an object store")


def reads_text(token: Path, text: str) -> bool:
    """Whether a file has the text, now or within a few seconds."""
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            return token.read_text() == text
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
