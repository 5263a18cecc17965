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
from typing import NamedTuple

from ...operators.errors import RejuiceError
from ...pipelines.engine.workers_on_ray import on_each_node, reads_text
from ...pipelines.ray_session import LOCAL, connected_to_ray
from ..policies import policy_path
from ..run import TrainingRun
from .overrides import ADDRESS, ray_address

_TOKEN = ".shared"
_SHARE = "put it on a file system that all nodes share"
_SAME = "let all nodes have the same {} at this path"


class NodeView(NamedTuple):
    """What a node sees."""

    version: str  # of rejuice
    reads: bool  # whether it reads the token in the folder of the run
    answer: str  # name of the file that it has written there
    error: str | None  # why it could not; None if it could
    copies: tuple[Mapping[str, int], ...]  # names and sizes of all files of each copy


Look = Callable[[Path, Sequence[Path]], NodeView]


def look(token: Path, copies: Sequence[Path]) -> NodeView:
    """What the node that this runs on sees."""
    reads, error = reads_text(token, token.name), None
    answer = f"{token.name}-{secrets.token_hex(8)}"
    if reads:
        try:
            token.with_name(answer).write_text(answer, "utf-8")
        except OSError as reason:
            error = reason.strerror or str(reason)
    return NodeView(version("rejuice"), reads, answer, error, tuple(map(_sizes, copies)))


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

    Raises:
        RejuiceError: no cluster is running, it has too few nodes, or one of them does not see what
            it must.
    """
    wanted, address = run.config.gpu.nodes, ray_address(run)
    if run.config.profile != "gpu" or (wanted == 1 and address == LOCAL):
        return
    policy = Path(policy_path(run.policy))
    copies = (*run.recipe.head.custom_operator_paths, *([policy] if policy.is_dir() else []))
    token = run.folder / f"{_TOKEN}-{secrets.token_hex(8)}"
    token.write_text(token.name, "utf-8")
    try:
        # Not verl's own process: this connection ends before verl starts.
        with connected_to_ray(address) as started_here:
            no_address = run.config.verl_keys.get(ADDRESS, address) is None
            if started_here and wanted == 1 and no_address:
                return  # There is no cluster to join: verl starts a Ray of its own, too.
            nodes = [] if started_here else on_each_node(look, token, copies)
        if len(nodes) < wanted:
            raise _too_few(wanted, len(nodes))
        for node, view in nodes:
            _check_folder(node, view, token)
            _check_copies(node, view, copies)
    finally:
        for file in run.folder.glob(f"{token.name}*"):
            file.unlink(missing_ok=True)


def _too_few(wanted: int, found: int) -> RejuiceError:
    if wanted == 1:
        return RejuiceError(
            "no Ray cluster runs on this machine, and the run is to join one",
            "start Ray, or set neither RAY_ADDRESS nor ray_kwargs.ray_init.address",
        )
    if not found:
        return RejuiceError(
            f"train.gpu.nodes is {wanted}, and no Ray cluster runs on this machine",
            "start Ray on all nodes, or lower train.gpu.nodes",
        )
    counted = f"{found} node{'' if found == 1 else 's'}"
    return RejuiceError(
        f"train.gpu.nodes is {wanted}, and the Ray cluster has {counted}",
        "add nodes to it, or lower train.gpu.nodes",
    )


def _check_folder(node: str, view: NodeView, token: Path) -> None:
    folder = f"the folder of the run {token.parent}"
    if view.version != version("rejuice"):
        raise RejuiceError(
            f"node {node} has rejuice {view.version}, this one {version('rejuice')}",
            "install the same version on all nodes",
        )
    if view.error is not None:
        found = f"node {node} cannot write to {folder}: {view.error}"
        raise RejuiceError(found, "let it write there")
    if not view.reads:
        raise RejuiceError(f"node {node} does not see {folder}", _SHARE)
    if not reads_text(token.with_name(view.answer), view.answer):
        raise RejuiceError(f"node {node} has a copy of {folder}", _SHARE)


def _check_copies(node: str, view: NodeView, copies: Sequence[Path]) -> None:
    for path, there in zip(copies, view.copies, strict=True):
        here = _sizes(path)
        if not there:
            what = "folder" if path.is_dir() else "file"
            raise RejuiceError(f"node {node} does not see {path}", _SAME.format(what))
        if here != there:
            file = min(name for name, _ in here.items() ^ there.items())
            other = path if path.is_file() else path / file
            found = f"node {node} has another {other} than this one"
            raise RejuiceError(found, _SAME.format("file"))
