"""Hands the prompts of a call to an engine out one by one, as it becomes free for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .protocol import Prompt


class NumberedPrompt(NamedTuple):
    """A prompt, and its number among those of the call, from 0."""

    number: int
    prompt: Prompt


class PromptFeed:
    """Takes prompts from an iterable, no earlier than they are wanted.

    Attributes:
        under_way: prompts that were taken and are not finished.
        exhausted: whether there are no more.

    >>> feed = PromptFeed([Prompt((("user", "a"),), 1), None, Prompt((("user", "b"),), 2)])
    >>> feed.take().number, feed.take()
    (0, None)
    >>> feed.finish()
    >>> feed.take().number, feed.take(), feed.exhausted
    (1, None, True)
    """

    def __init__(self, prompts: Iterable[Prompt | None]) -> None:
        self._prompts, self._number, self._paused = iter(prompts), 0, False
        self.under_way, self.exhausted = 0, False

    def take(self) -> NumberedPrompt | None:
        """The next prompt; None if there are no more, or none before another one is finished.

        Raises:
            ValueError: the iterable gave None while no prompt was under way.
        """
        if self.exhausted or self._paused:
            return None
        try:
            prompt = next(self._prompts)
        except StopIteration:
            self.exhausted = True
            return None
        if prompt is None:
            if not self.under_way:
                raise ValueError("prompts gave None while none was under way: nothing would follow")
            self._paused = True
            return None
        self.under_way += 1
        self._number += 1
        return NumberedPrompt(self._number - 1, prompt)

    def take_up_to(self, number: int) -> list[NumberedPrompt]:
        """The next prompts, at most so many, as far as there are any for now."""
        taken = list[NumberedPrompt]()
        while len(taken) < number and (following := self.take()) is not None:
            taken.append(following)
        return taken

    def finish(self) -> None:
        """Note that a prompt is finished, so that the iterable may have another one."""
        self.under_way -= 1
        self._paused = False
