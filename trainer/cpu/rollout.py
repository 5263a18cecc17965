"""Rollouts on a CPU: whole groups from the embedded sampler, put into TransferQueue.

    GroupManager.generate_sequences(prompts) ──> Sampler (an actor) ──> TransferQueue
    Adapter.update_weights(weights)          ──> Sampler

verl's own manager requests one response at a time, by calls that cost more than a small policy
needs to answer. `GroupManager` passes all prompts of a step to the sampler of
`policy_rollout_mapper`, which answers group by group. `AgentManager` does so for agents, whose
flow, tools and frozen models run in the actor, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple

import ray
import torch
import transfer_queue as tq
from safetensors.torch import save_file
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from ...operators.agents.runner import AgentRunner
from ...operators.agents.trajectory import SeededTask, TrajectoryGroup
from ...operators.errors import FirstFailures
from ...operators.sampling.engines import policy_path, process_count
from ...operators.sampling.processes import EngineProcesses
from ...operators.sampling.protocol import Engine, Failure, Prompt, Settings, prompt_seed
from ...operators.sampling.tokenizer import Messages, chat_encoder
from ...operators.sampling.transformers_engine import TransformersEngine
from ..run import RUN_VARIABLE, TrainingRun, Weights, report_sampler_failure, samples_ahead
from ..verl.sampled import SampledGroups
from ..verl.trajectories import AnyGroup, Slot, fail, prompt_batch, put, reason_of
from .fork_server import PYTHON
from .platform import sampling_cores

_NAME = "rejuice-sampler"
_PUT = 16  # groups that are put into TransferQueue at once


class SampleRequest(NamedTuple):
    slot: Slot
    messages: Messages
    seed: int


def _engine(policy: str, threads: int, chat_template_kwargs: Mapping[str, Any]) -> Engine:
    torch.set_num_threads(threads)
    return TransformersEngine(policy, chat_template_kwargs=chat_template_kwargs)


class Sampler:
    """The embedded engine, for an actor; each call samples with the newest weights of the run."""

    def __init__(
        self, policy: str, workers: int, cores: int, chat_template_kwargs: Mapping[str, Any]
    ) -> None:
        threads = max(1, cores // workers)
        build = partial(_engine, policy, threads=threads, chat_template_kwargs=chat_template_kwargs)
        # Not by OMP_NUM_THREADS, which the fork server's libraries have read already.
        self._engine = EngineProcesses(build, workers=workers, threads=None, launcher=PYTHON)
        self._runners: dict[Settings, AgentRunner] = {}
        self._folder, self._version = Path(os.environ[RUN_VARIABLE]), -1
        self._sampled = SampledGroups(self._folder) if samples_ahead() else None
        # In verl's log, at once: Ray ends this process without cleaning up.
        self._first_failures = FirstFailures(partial(print, flush=True))
        tq.init()

    def load_weights(self) -> None:
        """Load the newest weights that lie in the folder of the run, and remove older ones."""
        there = Weights.all_in(self._folder)
        if not there or there[-1].version <= self._version:
            return
        *old, newest = there
        self._engine.load_weights(newest.file, newest.version)
        self._version = newest.version
        for each in old:
            each.file.unlink(missing_ok=True)

    def sample(
        self,
        requests: Sequence[SampleRequest],
        settings: Settings,
        partition: str,
        step: int,
        *,
        by_agents: bool = False,
    ) -> None:
        """Sample, and put groups into TransferQueue as they finish.

        By agents, the recipe's flow works on the prompts.
        """
        self.load_weights()
        left = self._put_stored(requests, partition)
        if not left:
            return
        found: Iterable[tuple[int, AnyGroup | Failure]]
        if by_agents:
            found = self._play(left, settings)
        else:
            prompts = [Prompt(request.messages, request.seed) for request in left]
            found = self._engine.sample(prompts, settings)
        groups = list[tuple[Slot, AnyGroup]]()
        for index, group in found:
            slot = left[index].slot
            if isinstance(group, Failure):
                message = f"a prompt failed with {group.reason}: {group.detail}"
                self._first_failures.report(group.reason, message)
                fail([slot], partition)
                continue
            if self._sampled is not None and partition == "train":
                self._sampled.keep(slot.uid, slot.prompt_id, step, group)
            groups.append((slot, group))
            if len(groups) == _PUT:
                put(groups, partition, step)
                groups.clear()
        if groups:
            put(groups, partition, step)

    def _put_stored(
        self, requests: Sequence[SampleRequest], partition: str
    ) -> Sequence[SampleRequest]:
        """Put groups that the run has sampled before it was resumed; return the other requests."""
        if self._sampled is None or partition == "val":
            return requests
        left = []
        for request in requests:
            found = self._sampled.find(request.slot.uid, request.slot.prompt_id)
            if found is None:
                left.append(request)
                continue
            step, group = found
            # The policy that sampled it may be lost, and no newer one is there to be compared.
            group = group._replace(version=min(group.version, self._version))
            put([(request.slot, group)], partition, step)
        return left

    @cached_property
    def _run(self) -> TrainingRun:
        return TrainingRun.open(self._folder)

    def _play(
        self, prompts: Sequence[SampleRequest], settings: Settings
    ) -> Iterator[tuple[int, TrajectoryGroup | Failure]]:
        """By the recipe's flow; every index exactly once, as groups finish."""
        run, mapper = self._run, self._run.split.agents
        assert mapper is not None
        index = [each.slot.fields["extra_info"]["index"] for each in prompts]
        # Not from verl, which would carry all columns of a prompt with each of its rows.
        tasks = mapper.tasks(run.prompts(prompts[0].slot.split), index)
        seeded = (SeededTask(task, each.seed) for task, each in zip(tasks, prompts, strict=True))
        # Tools belong to the event loop of their runner.
        key = settings._replace(n=1)
        if key not in self._runners:
            self._runners[key] = AgentRunner(
                mapper.open_flow(),
                mapper.open_tools(),
                self._engine,
                key,
                policy=run.policy,
                encode=chat_encoder(policy_path(run.policy), mapper.chat_template_kwargs),
                max_prompt_tokens=run.config.max_prompt_tokens,
            )
        yield from self._runners[key].run(seeded, settings.n)


class Replica(RolloutReplica):  # type: ignore[misc]
    async def launch_servers(self) -> None:
        chat_kwargs = dict(self.config.engine_kwargs.get("rejuice") or {})
        remote = ray.remote(Sampler).options(name=_NAME)
        policy, cores = self.model_config.path, sampling_cores()
        workers = process_count(policy, "float32", cores)
        server = remote.remote(policy, workers, cores, chat_kwargs)
        self.servers = [server]
        self._server_handle = server
        self._server_address = _NAME

    async def sleep(self, *_: Any, **__: Any) -> None:
        """Do nothing: the sampler has no memory to release, and is not paused by an update."""

    wake_up = abort_all_requests = resume_generation = sleep


class Adapter(BaseRollout):  # type: ignore[misc]
    """Runs in the training worker, and writes its weights to a file that the sampler reads.

    Passed to the sampler by Ray they would be in memory twice more.
    """

    async def release(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is nothing to release."""

    resume = release

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", **more: Any
    ) -> None:
        # All workers take part in gathering them.
        found = {name: tensor.detach().cpu().contiguous() for name, tensor in weights}
        if os.environ["RANK"] == "0":
            # Ray kills this process before it can clean up; the command that launched the run does.
            file = Weights.of(Path(os.environ[RUN_VARIABLE]), more.get("global_steps") or 0).file
            new = file.with_suffix(".new")
            save_file(_without_ties(found), new)
            new.rename(file)
            # A sampler that is busy finds them by itself.
            if not samples_ahead():
                await ray.get_actor(_NAME).load_weights.remote()


def _without_ties(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A file has one of tied weights."""
    first = {tensor.data_ptr(): name for name, tensor in reversed(weights.items())}
    return {name: weights[name] for name in first.values()}


class GroupManager:
    """verl's agent loop manager, for single-turn groups."""

    by_agents: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self._config = config
        self._sampler = ray.get_actor(_NAME)

    @classmethod
    def create(cls, config: Any, **_: Any) -> GroupManager:
        return cls(config)

    def generate_sequences(self, prompts: Any) -> None:
        """Pass the prompts to the sampler, without waiting: those of one kind at once."""
        rollout = self._config.actor_rollout_ref.rollout
        batch = prompt_batch(prompts)
        options = rollout.val_kwargs if batch.partition == "val" else rollout
        default = Settings(options.n, options.temperature, options.top_p, rollout.response_length)
        alike: dict[tuple[Settings, str], list[SampleRequest]] = {}
        for slot, chat, own in zip(batch.slots, batch.chats, batch.own, strict=True):
            seed = prompt_seed(slot.prompt_id, rollout.seed, batch.step)
            requests = alike.setdefault((default._replace(**own), slot.split), [])
            requests.append(SampleRequest(slot, chat, seed))
        for (settings, _), of_kind in alike.items():
            for requests in self._calls(of_kind, batch.partition):
                given = requests, settings, batch.partition, batch.step
                work = self._sampler.sample.remote(*given, by_agents=self.by_agents)
                slots = [request.slot for request in requests]
                Thread(target=_watch, args=(work, slots, batch.partition), daemon=True).start()

    def _calls(
        self, requests: list[SampleRequest], partition: str
    ) -> Iterator[list[SampleRequest]]:
        """Where several steps are sampled ahead, those of one are a call."""
        ahead = samples_ahead() and partition == "train"
        most = self._config.data.train_batch_size if ahead else len(requests)
        for start in range(0, len(requests), most):
            yield requests[start : start + most]


class AgentManager(GroupManager):
    by_agents = True


def _watch(work: Any, slots: Sequence[Slot], partition: str) -> None:
    """Wait for the sampler; if it fails, mark its prompts as failed, so that they end."""
    try:
        ray.get(work)
    except Exception as error:  # Of any type: the step finds its prompts failed.
        report_sampler_failure(reason_of(error))
        fail(slots, partition)
