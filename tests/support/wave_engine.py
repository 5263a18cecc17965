"""A blocking engine of which each wave is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rejuice.operators.sampling.protocol import (
    Failure,
    Group,
    Prompt,
    Sample,
    Settings,
    token_listener,
)


class WaveEngine:
    """Samples what `says` makes of a prompt; the tokens are the bytes of the text.

    Attributes:
        waves: the prompts of each call.
        wanted: the settings of each call.
        unfinished: calls whose iteration is not over.
    """

    def __init__(self, says: Callable[[Prompt], str | Failure]) -> None:
        self.says = says
        self.waves, self.wanted = list[Sequence[Prompt]](), list[Settings]()
        self.unfinished = 0

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        self.waves.append(prompts)
        self.wanted.append(settings)
        self.unfinished += 1
        try:
            for index, prompt in reversed(list(enumerate(prompts))):
                answer = self.says(prompt)
                if isinstance(answer, str):
                    ids = tuple(answer.encode())
                    token_listener()(len(ids))
                    samples = (Sample(answer, ids, (-1.0,) * len(ids), "stop"),)
                    yield index, Group("p", 0, prompt.seed, prompt.token_ids, samples)
                else:
                    yield index, answer
        finally:
            self.unfinished -= 1

    def capacity(self, settings: Settings) -> int:
        raise AssertionError("it is given whole waves")

    def close(self) -> None:
        raise AssertionError("it belongs to whoever opened it")
