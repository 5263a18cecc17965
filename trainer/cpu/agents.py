"""Agents on a CPU: the recipe's flow, beside the sampler that its policy samples from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...operators.agents.runner import AgentRunner
from ...operators.agents.task import SeededTask
from ...operators.agents.trajectory import TrajectoryGroup
from ...operators.sampling.protocol import Engine, Failure, Settings
from ...operators.sampling.tokenizer import chat_encoder
from ..policies import policy_path
from ..run import TrainingRun
from ..verl.types import Slot


class Agents:
    """Plays the prompts of a run by its recipe's flow.

    Args:
        run: the run.
        engine: samples the policy's turns, with whatever weights it has.

    Raises:
        RejuiceError: the flow or a tool cannot be used.
    """

    def __init__(self, run: TrainingRun, engine: Engine) -> None:
        assert run.split.agents is not None
        self._run, self._mapper, self._engine = run, run.split.agents, engine
        self._runners: dict[Settings, AgentRunner] = {}

    def play(
        self, prompts: Sequence[tuple[Slot, int]], settings: Settings
    ) -> Iterator[tuple[int, TrajectoryGroup | Failure]]:
        """Groups as they finish, each with the index of its prompt; every index exactly once.

        Args:
            prompts: rows of one file of the run's, each with its seed.
            settings: of every turn; n is the number of trajectories.

        Raises:
            EngineError: the engine or the tools have failed.
            OperatorError: the flow has a bug.
        """
        index = [slot.fields["extra_info"]["index"] for slot, _ in prompts]
        # Not from verl, which would carry all columns of a prompt with each of its rows.
        tasks = self._mapper.tasks(self._run.prompts(prompts[0][0].split), index)
        seeded = (SeededTask(task, seed) for task, (_, seed) in zip(tasks, prompts, strict=True))
        yield from self._runner(settings).run(seeded, settings.n)

    def _runner(self, settings: Settings) -> AgentRunner:
        # Tools belong to the event loop of their runner.
        key = settings._replace(n=1)
        if key not in self._runners:
            encode = chat_encoder(policy_path(self._run.policy), self._mapper.chat_template_kwargs)
            self._runners[key] = AgentRunner(
                self._mapper.open_flow(),
                self._mapper.open_tools(),
                self._engine,
                key,
                policy=self._run.policy,
                encode=encode,
                max_prompt_tokens=self._run.config.max_prompt_tokens,
            )
        return self._runners[key]
