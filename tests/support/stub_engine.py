"""An engine without a policy, for tests of what runs engines: prompts say what it does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.protocol import (
    Failure,
    Group,
    Prompt,
    Sample,
    Settings,
    token_listener,
)

CAPACITY = 4
"""Prompts that one is given at a time."""


class StubEngine:
    """Repeats prompts, with a variable of its environment and the process's id."""

    policy = "stub"

    def __init__(self, variable: str = "OMP_NUM_THREADS") -> None:
        if variable == "none":
            raise EngineError("no such variable", "name another one")
        self._variable, self._version = variable, 0

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        for index, prompt in enumerate(prompts):
            text = prompt.messages[0][1]
            if text == "chatter":
                print("on stdout", flush=True)
                print("on stderr", file=sys.stderr, flush=True)
            elif text == "exit":
                print("last words", file=sys.stderr, flush=True)
                os._exit(3)
            elif text == "bug":
                raise ZeroDivisionError("of the engine")
            elif text == "fail":
                raise EngineError("no more", "stop")
            elif text == "tokens":
                token_listener()(7)
            elif text == "sleep":
                time.sleep(60)
            elif text == "rest":
                time.sleep(0.5)
            texts = (text, os.environ.get(self._variable, ""), str(os.getpid()))
            samples = [Sample(text, None, None, "stop") for text in texts]
            yield index, Group(self.policy, self._version, prompt.seed, None, tuple(samples))
            if text == "linger":
                time.sleep(60)

    def capacity(self, settings: Settings) -> int:
        """How far ahead it reads."""
        return CAPACITY

    def load_weights(self, path: str | Path, version: int) -> None:
        """Only the version counts."""
        if path == "nowhere":
            raise EngineError("cannot load the policy 'nowhere'")
        self._version = version

    def close(self) -> None: ...
