"""Workers on Ray: numbers of chunks go to its tasks, and what they make lies in the cache.

    driver ──chunk number──> task ──reads, runs, commits──> cache
           <──group starts───

The function that runs a chunk is that of the local engine. No row passes through Ray: the state of
a run is in its cache, so that another driver, or the local engine, finishes it.
"""

from __future__ import annotations

import os
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...operators import EngineError, RejuiceError
from ...operators.errors import first_line, needs
from ...operators.functions.pool import close_pools
from ...operators.registry import load_file
from ...operators.workers import limit_cores
from ..dataset.files import DamagedError
from ..dataset.remote import AnyPath, RemotePath
from ..ray_session import AUTO, connected_to_ray
from ..recipe.steps import Step
from .plan import Plan, operator_key
from .workers import WorkerDiedError, Workers

# --- Shared folder --------------------------------------------------------------------
# Whether every node of a Ray cluster sees the same files: a folder may be local to one machine.

_WAIT_S = 5.0
"""How long a new file may take until other machines see it: network file systems cache folders."""


class OfNode(NamedTuple):
    node: str  # its host name and address, for messages
    value: Any  # what a function returned there


def on_each_node(function: Callable[..., Any], *arguments: Any) -> list[OfNode]:
    """Call a function once on each node that may run tasks."""
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


def check_shared(folder: AnyPath, what: str) -> None:
    """Check that all nodes of the connected Ray cluster see what is written into a folder."""
    if isinstance(folder, RemotePath):  # It is the same from everywhere.
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = uuid.uuid4().hex
    token = folder.absolute() / f".shared-{text}"
    token.write_text(text)
    try:
        nodes = [node for node, reads in on_each_node(reads_text, token, text) if not reads]
    finally:
        token.unlink(missing_ok=True)
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


# --- On ray ---------------------------------------------------------------------------

T = TypeVar("T")


class _Setup(NamedTuple):
    """What a process of Ray's needs before it can load work."""

    folder: str  # the working directory of the driver, to which paths of a recipe may be relative
    # those of custom operators, whose classes are found by the names of their modules
    files: tuple[Path, ...]


class _Raised(NamedTuple):
    """An exception of the work, returned instead of raised: Ray would wrap it in a page of text."""

    error: Exception
    text: str  # its traceback


class _WorkerTracebackError(Exception):
    """The traceback of an exception in a worker, as text."""


class RayWorkers(Workers):
    """`np` tasks of Ray at a time; `report_line` gets a line about where the run takes place."""

    _kind = "Ray worker"

    def __init__(self, plan: Plan, address: str, report_line: Callable[[str], object]) -> None:
        self._plan, self._address, self._report_line = plan, address, report_line
        self._under_way = min(plan.recipe.head.np, len(plan.source.rows))
        self._setup = _Setup(os.getcwd(), plan.recipe.head.custom_operator_paths)
        self._open = ExitStack()

    def __enter__(self) -> RayWorkers:
        needs("engine ray", "rejuice[ray]", "ray")
        import ray

        # Ray ends tasks with the connection. They are not cancelled: it aborts the process where a
        # task that it cancels has just ended.
        self._outlive = ray.is_initialized()
        started_here = self._open.enter_context(
            connected_to_ray(self._address, num_cpus=self._under_way)
        )
        if started_here:
            if self._address == AUTO:
                self._report_line("there is no Ray cluster: Ray is started on this machine")
            return self
        try:
            nodes = _check_nodes(self._plan, self._setup)
        except BaseException:
            self._open.close()
            raise
        self._report_line(f"Ray cluster: {nodes} {'nodes' if nodes > 1 else 'node'}")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _submit(
        self, steps: Sequence[Step], work: Callable[[int], T]
    ) -> Callable[[int], Future[Any]]:
        import ray

        close_pools()  # Those of the preflight: each task has pools of its own.
        shared = [ray.put(work)]  # In a list, a task gets the reference, not the object.
        task = ray.remote(num_cpus=1, max_retries=0)(_run)
        return lambda item: task.remote(self._setup, shared, item).future()

    def _result(self, future: Future[Any]) -> Any:
        import ray

        try:
            result = future.result()
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            raise WorkerDiedError(first_line(error).rstrip(".")) from error
        if isinstance(result, _Raised):
            raise result.error from _WorkerTracebackError(result.text)
        return result


def _run(setup: _Setup, shared: list[Any], item: int) -> Any:
    try:
        _set_up(setup)
        return _fetched(shared[0])(item)
    except Exception as error:
        return _Raised(error, traceback.format_exc())


@cache
def _set_up(setup: _Setup) -> None:
    """Make a process of Ray's ready; a process keeps its setup for all tasks of a run."""
    import pyarrow as pa

    os.chdir(setup.folder)
    pa.set_cpu_count(1)  # Ray counts one core per task.
    limit_cores(1)
    for file in setup.files:
        load_file(file)


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Callable[[int], Any]:
    """The work of a stage, unpickled once per process."""
    import ray

    work: Callable[[int], Any] = ray.get(reference)
    return work


def _check_nodes(plan: Plan, setup: _Setup) -> int:
    """Check that all nodes share the files of a run, and have the code of its steps; how many
    nodes there are."""
    import ray

    check_shared(plan.cache, "the cache")
    check_shared(plan.recipe.head.export_path.parent, "the export")
    ours = [operator_key(step.operator) for step in plan.steps]
    nodes = on_each_node(_run, setup, [ray.put(_NodeCheck(plan))], 0)
    for node, found in nodes:
        if isinstance(found, _Raised):
            raise EngineError(f"node {node} of the Ray cluster: {first_line(found.error)}") from (
                _WorkerTracebackError(found.text)
            )
        for step, key, theirs in zip(plan.steps, ours, found, strict=True):
            # The code of a notebook goes to the nodes with the operator, and has no lasting key.
            if key != theirs and type(step.operator).__module__ != "__main__":
                raise RejuiceError(
                    f"node {node} of the Ray cluster has other code for this step",
                    "install there what is installed here",
                    where=plan.recipe.where(step),
                )
    return len(nodes)


class _NodeCheck(NamedTuple):
    """Work that reads a chunk, and returns the keys of all operators by the code of its node."""

    plan: Plan

    def __call__(self, chunk: int) -> list[str]:
        with suppress(DamagedError):  # That is found, and repaired, where the chunk is used.
            self.plan.source_frame(chunk)
        return [operator_key(step.operator) for step in self.plan.steps]
