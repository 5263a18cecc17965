"""Checks, before verl is launched, that all nodes of a cluster see what a run needs.

the folder of the run           shared: prompts and recipe are read from it, and checkpoints,
                                steps and the cause of a failure are written to it
the policy, operator files      the same on each node: shared, or copied to the same path
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ...operators.errors import RejuiceError
from ..policies import policy_path
from ..run import TrainingRun

_TOKEN = ".shared"
_SHARE = "let all nodes have the same {} at this path"
_TIMEOUT_S = 120.0


class NodeRequest(NamedTuple):
    """What a node is asked to look at.

    Attributes:
        token: a file in the folder of the run; the node writes another one beside it.
        answer: name of the file that it writes.
        copies: files and folders that may also be copies.
    """

    token: Path
    answer: str
    copies: tuple[Path, ...]


class NodeView(NamedTuple):
    """What a node sees.

    Attributes:
        version: of rejuice.
        token: content of the token; None if it is not there.
        error: why the node cannot write to the folder of the run; None if it can.
        copies: names and sizes of all files of each copy.
    """

    version: str
    token: str | None
    error: str | None
    copies: tuple[Mapping[str, int], ...]


Look = Callable[[NodeRequest], NodeView]


def look(request: NodeRequest) -> NodeView:
    """What the node that this runs on sees."""
    token, error = None, None
    try:
        token = request.token.read_text("utf-8")
        request.token.with_name(request.answer).write_text(token, "utf-8")
    except OSError as reason:
        error = reason.strerror or str(reason)
    return NodeView(version("rejuice"), token, error, tuple(map(_sizes, request.copies)))


def _sizes(path: Path) -> Mapping[str, int]:
    """The size of a file, or of each file in a folder; nothing if it is not there."""
    if path.is_file():
        return {path.name: path.stat().st_size}
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return {
        str(file.relative_to(path)): file.stat().st_size
        for file in files
        if "__pycache__" not in file.parts
    }


def check_nodes(run: TrainingRun, look: Look = look) -> None:
    """Check that each node of the Ray cluster sees the folder of the run, and the same files.

    Args:
        run: whose folder is prepared; with one node nothing is checked.
        look: what is called on each node.

    Raises:
        RejuiceError: no cluster is running, it has too few nodes, or one of them does not see what
            it must.
    """
    if run.config.profile != "gpu" or run.config.gpu.nodes == 1:
        return
    copies = run.recipe.head.custom_operator_paths
    policy = Path(policy_path(run.policy))
    copies = (*copies, policy) if policy.is_dir() else copies
    token = run.folder / f"{_TOKEN}-{secrets.token_hex(8)}"
    token.write_text(token.name, "utf-8")
    try:
        _check(run, token, copies, look)
    finally:
        for file in run.folder.glob(f"{token.name}*"):
            file.unlink(missing_ok=True)


def _check(run: TrainingRun, token: Path, copies: tuple[Path, ...], look: Look) -> None:
    here = tuple(map(_sizes, copies))
    for name, answer, view in _views(run.config.gpu.nodes, token, copies, look):
        if isinstance(view, str):
            raise RejuiceError(f"node {name} cannot run rejuice: {view}", "install it there, too")
        if view.version != version("rejuice"):
            found = f"node {name} has rejuice {view.version}, this one {version('rejuice')}"
            raise RejuiceError(found, "install the same version on all nodes")
        folder = f"the folder of the run {run.folder}"
        if view.token != token.name:
            found = f"node {name} does not see {folder}"
            raise RejuiceError(found, "put it on a file system that all nodes share")
        if view.error is not None:
            raise RejuiceError(
                f"node {name} cannot write to {folder}: {view.error}", "let it write there"
            )
        if not token.with_name(answer).exists():
            raise RejuiceError(
                f"node {name} has another folder {run.folder} than this one",
                "put it on a file system that all nodes share",
            )
        for path, mine, other in zip(copies, here, view.copies, strict=True):
            if not other:
                what = "folder" if path.is_dir() else "file"
                raise RejuiceError(f"node {name} does not see {path}", _SHARE.format(what))
            if mine != other:
                file = min(name for name, _ in mine.items() ^ other.items())
                where = path if path.is_file() else path / file
                raise RejuiceError(
                    f"node {name} has another {where} than this one", _SHARE.format("file")
                )


def _views(
    nodes: int, token: Path, copies: tuple[Path, ...], look: Look
) -> Sequence[tuple[str, str, NodeView | str]]:
    """Of each node its name, the file that it was to write, and what it sees, or an error."""
    import ray

    try:
        # Not verl's own process: it ends before verl starts, and leaves the cluster as it was.
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    except ConnectionError:
        raise RejuiceError(
            f"train.gpu.nodes is {nodes}, and no Ray cluster runs on this machine",
            "start one with `ray start --head` here and `ray start --address` on the others",
        ) from None
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        if len(alive) < nodes:
            counted = f"{len(alive)} node{'' if len(alive) == 1 else 's'}"
            raise RejuiceError(
                f"train.gpu.nodes is {nodes}, and the Ray cluster has {counted}",
                "add nodes with `ray start --address`, or lower train.gpu.nodes",
            )
        return _looked(alive, token, copies, look)
    finally:
        ray.shutdown()


def _looked(
    nodes: Sequence[Mapping[str, Any]], token: Path, copies: tuple[Path, ...], look: Look
) -> Sequence[tuple[str, str, NodeView | str]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    started = []
    for node in nodes:
        name, answer = node["NodeManagerHostname"], f"{token.name}-{node['NodeID']}"
        task = ray.remote(look).options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        name = f"{name} ({node['NodeManagerAddress']})"
        started.append((name, answer, task.remote(NodeRequest(token, answer, copies))))
    found = list[tuple[str, str, NodeView | str]]()
    for name, answer, reference in started:
        view: NodeView | str
        try:
            view = ray.get(reference, timeout=_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            view = str(error).strip().splitlines()[-1]
        found.append((name, answer, view))
    return found
