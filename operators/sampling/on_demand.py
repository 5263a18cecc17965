"""Shares the prompts of a call out among workers: each gets more as it finishes some."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from ..feed import Feed, Numbered
from .protocol import Prompt

W = TypeVar("W", bound=Hashable)


class OnDemand(Generic[W]):
    """Which worker has which prompts.

    The next prompt goes to the worker with the fewest unfinished ones, as long as it has fewer than
    its capacity. Prompts that are handed out at a time are so in order of length, so that the work
    is even.

    Args:
        feed: the prompts.
        capacities: of each worker, how many unfinished prompts it may have.
    """

    def __init__(self, feed: Feed[Prompt], capacities: Mapping[W, int]) -> None:
        self._feed, self._capacities = feed, dict(capacities)
        self._returned = list[Numbered[Prompt]]()
        self._unfinished: dict[W, dict[int, Numbered[Prompt]]] = {each: {} for each in capacities}
        self._given = dict.fromkeys(capacities, 0)  # workers count the prompts that they get

    @property
    def busy(self) -> list[W]:
        """Workers with unfinished prompts."""
        return [worker for worker, unfinished in self._unfinished.items() if unfinished]

    def hand_out(self) -> dict[W, list[Prompt]]:
        """The prompts to send now, by worker; those of workers that were lost come first."""
        free = sum(self._free(worker) for worker in self._capacities)
        taken, self._returned = self._returned[:free], self._returned[free:]
        taken += self._feed.take_up_to(free - len(taken))
        shares: dict[W, list[Prompt]] = {}
        for number, prompt in sorted(taken, key=lambda each: _length(each[1])):
            open_ones = [worker for worker in self._capacities if self._free(worker)]
            worker = min(open_ones, key=lambda each: len(self._unfinished[each]))
            self._unfinished[worker][self._given[worker]] = number, prompt
            self._given[worker] += 1
            shares.setdefault(worker, []).append(prompt)
        return shares

    def finish(self, worker: W, place: int) -> int:
        """Note a result.

        Args:
            worker: whose it is.
            place: of the prompt among all that this worker was given.

        Returns:
            The index of the prompt.
        """
        self._feed.finish()
        number, _ = self._unfinished[worker].pop(place)
        return number

    def lose(self, worker: W) -> int:
        """Take a worker out; its unfinished prompts, so many, are handed out again."""
        lost = self._unfinished.pop(worker)
        del self._capacities[worker]
        self._returned += lost.values()
        return len(lost)

    def _free(self, worker: W) -> int:
        return self._capacities[worker] - len(self._unfinished[worker])


def _length(prompt: Prompt) -> int:
    if prompt.token_ids is not None:
        return len(prompt.token_ids)
    return sum(len(content) for _, content in prompt.messages)
