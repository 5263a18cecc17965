"""From the fields of `policy_rollout_mapper` to the engine that they ask for.

An engine is opened for the first prompt and kept until it is released: a policy is loaded once,
however many chunks there are.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from ..errors import EngineError
from .options import OpenAIOptions, Options, TransformersOptions, VllmOptions
from .protocol import Engine

EngineName = Literal["transformers", "openai", "vllm", "recorded"]

EMBEDDED = Path(__file__).parent / "embedded"
"""The policy that comes with rejuice, called `embedded` in recipes."""


class Asked(Protocol):
    """The fields that an engine is made of; `policy_rollout_mapper` says what they mean."""

    @property
    def engine(self) -> EngineName: ...
    @property
    def model(self) -> str: ...
    @property
    def policy_version(self) -> int: ...
    @property
    def on_policy(self) -> bool: ...
    @property
    def transformers(self) -> TransformersOptions: ...
    @property
    def openai(self) -> OpenAIOptions: ...
    @property
    def vllm(self) -> VllmOptions: ...


def sampler(asked: Asked) -> Engine:
    """The engine that is asked for; the same one until it is released.

    Raises:
        EngineError: it cannot be had.
    """
    key = _key(asked)
    if key not in _open:
        _open[key] = _opened(asked)
    return _open[key]


def release(asked: Asked) -> None:
    """Close the engine, if it is open."""
    engine = _open.pop(_key(asked), None)
    if engine:
        engine.close()


def state_of(asked: Asked) -> dict[str, Any]:
    """What decides the samples beside the mapper's own fields: options, and the state of files."""
    options = _options(asked)
    state: dict[str, Any] = {}
    if options:
        state[asked.engine] = options.model_dump(mode="json", exclude=set(options.incidental))
    path = Path(_located(asked.model))
    if asked.engine != "openai" and path.exists():
        files = sorted(path.glob("*")) if path.is_dir() else [path]
        stats = [(file.name, file.stat()) for file in files if file.is_file()]
        state["files"] = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
    return state


def chat_as_seen(asked: Asked, content: str) -> str:
    """A chat of one message of the user, with the chat template applied; or why it cannot be."""
    from .tokenizer import chat_text

    name = _tokenizer(asked)
    if name is None:
        return "what its server's chat template makes of the messages"
    try:
        return chat_text(name, (("user", content),))
    except EngineError as error:
        return str(error)


def prompt_as_seen(asked: Asked, token_ids: Sequence[int]) -> str:
    """A prompt as it was sampled from, as text; or why it cannot be shown."""
    from .tokenizer import decoded

    name = _tokenizer(asked)
    if name is None:
        return f"{len(token_ids)} tokens"
    try:
        return decoded(name, token_ids)
    except EngineError as error:
        return str(error)


_open: dict[str, Engine] = {}


@atexit.register
def _close_all() -> None:
    while _open:
        _open.popitem()[1].close()


def _key(asked: Asked) -> str:
    options = _options(asked)
    parts = (asked.engine, asked.model, asked.policy_version, asked.on_policy)
    return json.dumps([*parts, options and options.model_dump(mode="json")])


def _options(asked: Asked) -> Options | None:
    return None if asked.engine == "recorded" else getattr(asked, asked.engine)


def _located(model: str) -> str:
    return str(EMBEDDED) if model == "embedded" else model


def _tokenizer(asked: Asked) -> str | None:
    """Name of the tokenizer whose chat template is applied here; None where it is not."""
    if asked.engine == "recorded" or (asked.engine == "openai" and asked.openai.api == "chat"):
        return None
    named = asked.openai.tokenizer if asked.engine == "openai" else None
    return _located(named or asked.model)


def _opened(asked: Asked) -> Engine:
    if asked.engine == "recorded":
        from .recorded_engine import RecordedEngine

        return RecordedEngine(asked.model, exact=asked.on_policy)
    if asked.engine == "openai":
        return _openai(asked)
    return _vllm(asked) if asked.engine == "vllm" else _transformers(asked)


def _openai(asked: Asked) -> Engine:
    from .openai_engine import OpenAIEngine
    from .tokenizer import chat_encoder

    name = _tokenizer(asked)
    return OpenAIEngine(
        asked.model,
        asked.openai,
        encode=None if name is None else chat_encoder(name),
        version=asked.policy_version,
        exact=asked.on_policy,
    )


def _transformers(asked: Asked) -> Engine:
    from .processes import EngineProcesses, usable_cores
    from .transformers_engine import TransformersEngine

    options = asked.transformers
    device = options.device or _best_device()
    on_cpu = device.startswith("cpu")
    build = partial(
        TransformersEngine,
        _located(asked.model),
        name=asked.model,
        device=device,
        dtype=options.dtype,
        rows=options.rows,
        version=asked.policy_version,
    )
    return EngineProcesses(build, workers=options.workers or (usable_cores() if on_cpu else 1))


def _vllm(asked: Asked) -> Engine:
    from .vllm_engine import vllm_process

    return vllm_process(
        _located(asked.model), asked.vllm, name=asked.model, version=asked.policy_version
    )


def _best_device() -> str:
    try:
        import torch
    except ImportError:
        raise EngineError(
            "engine transformers needs torch", "pip install 'rejuice[policy]'"
        ) from None
    return "cuda" if torch.cuda.is_available() else "cpu"
