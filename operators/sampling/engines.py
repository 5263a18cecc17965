"""From the fields of `policy_rollout_mapper` to the engine that they ask for.

An engine is opened for the first prompt and kept until it is released: a policy is loaded once,
however many chunks there are.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import xxhash

from ..errors import EngineError
from .options import OpenAIOptions, RecordedOptions, TransformersOptions, VllmOptions
from .protocol import Engine

EngineName = Literal["transformers", "openai", "vllm", "recorded"]

EMBEDDED = Path(__file__).parent / "embedded"
"""The policy that comes with rejuice, called `embedded` in recipes."""

_SMALL = 200 << 20  # bytes of weights that every core may have for itself
_HASHED = 64 << 20
_DECIDING = {".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".parquet", ".arrow"}
_DECIDING |= {".jsonl"}


class Asked(NamedTuple):
    """What an engine is made of; `policy_rollout_mapper` says what its fields mean.

    Attributes:
        model: the policy.
        version: of its weights, where the engine does not know.
        exact: token ids and log-probabilities must be there.
        chat_template_kwargs: for the chat template.
        options: those of the engine, whose type says which engine it is.
    """

    model: str
    version: int
    exact: bool
    chat_template_kwargs: Mapping[str, Any]
    options: TransformersOptions | OpenAIOptions | VllmOptions | RecordedOptions


def sampler(asked: Asked) -> Engine:
    """The engine that is asked for; for this thread the same one until it is released.

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
    """What decides the samples beside the mapper's own fields: options, and what files hold."""
    options = asked.options
    fields = options.model_dump(mode="json", exclude=set(options.incidental))
    return {"options": fields, "files": list(_state_of_files(asked))}


def chat_as_seen(asked: Asked, content: str) -> str:
    """A chat of one message of the user, with the chat template applied; or why it cannot be."""
    from .tokenizer import TemplateRefusedError, chat_text

    name = _tokenizer(asked)
    if name is None:
        return "what the server's chat template makes of the messages"
    try:
        return chat_text(name, (("user", content),), asked.chat_template_kwargs)
    except (EngineError, TemplateRefusedError) as error:
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
    # An engine takes one call at a time: threads that run recipes have engines of their own.
    return f"{threading.get_ident()} {asked!r}"


def _state_of_files(asked: Asked) -> Iterator[list[Any]]:
    path: str | None = _located(asked.model)
    if isinstance(asked.options, RecordedOptions):
        path = asked.options.path
    elif isinstance(asked.options, OpenAIOptions):
        path = None
    for place in dict.fromkeys((path, _tokenizer(asked))):
        root = Path(place or "")
        files = sorted(root.glob("*")) if place and root.is_dir() else [root]
        for file in files:
            if file.suffix in _DECIDING and file.is_file():
                yield [file.name, _state(file)]


def _state(file: Path) -> str:
    """The content of a file; of a large one, for which that would take long, size and time."""
    stat = file.stat()
    if stat.st_size > _HASHED:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _located(model: str) -> str:
    return str(EMBEDDED) if model == "embedded" else model


def _tokenizer(asked: Asked) -> str | None:
    """Name of the tokenizer whose chat template is applied here; None where it is not."""
    options = asked.options
    if isinstance(options, RecordedOptions):
        return None
    if isinstance(options, OpenAIOptions):
        return None if options.api == "chat" else _located(options.tokenizer or asked.model)
    if isinstance(options, VllmOptions) and options.arguments.get("tokenizer"):
        return str(options.arguments["tokenizer"])
    return _located(asked.model)


def _opened(asked: Asked) -> Engine:
    options = asked.options
    if isinstance(options, RecordedOptions):
        from .recorded_engine import RecordedEngine

        return RecordedEngine(options.path or "", exact=asked.exact)
    if isinstance(options, OpenAIOptions):
        return _openai(asked, options)
    if isinstance(options, VllmOptions):
        return _vllm(asked, options)
    return _transformers(asked, options)


def _openai(asked: Asked, options: OpenAIOptions) -> Engine:
    from .openai_engine import OpenAIEngine
    from .tokenizer import chat_encoder

    name = _tokenizer(asked)
    return OpenAIEngine(
        asked.model,
        options,
        encode=None if name is None else chat_encoder(name, asked.chat_template_kwargs),
        version=asked.version,
        exact=asked.exact,
        chat_template_kwargs=asked.chat_template_kwargs,
    )


def _transformers(asked: Asked, options: TransformersOptions) -> Engine:
    from .processes import EngineProcesses, usable_cores
    from .transformers_engine import TransformersEngine

    policy = _located(asked.model)
    device = options.device or _best_device()
    cores = usable_cores() if device.startswith("cpu") else 1
    workers = options.workers or (cores if _is_small(policy) else 1)
    build = partial(
        TransformersEngine,
        policy,
        name=asked.model,
        device=device,
        dtype=options.dtype,
        rows=options.rows,
        version=asked.version,
        chat_template_kwargs=asked.chat_template_kwargs,
    )
    return EngineProcesses(build, workers=workers, threads=max(1, cores // workers))


def _is_small(policy: str) -> bool:
    sizes = [file.stat().st_size for file in Path(policy).glob("*.safetensors")]
    return 0 < sum(sizes) <= _SMALL


def _vllm(asked: Asked, options: VllmOptions) -> Engine:
    from .vllm_engine import vllm_process

    return vllm_process(
        _located(asked.model),
        options,
        name=asked.model,
        version=asked.version,
        chat_template_kwargs=asked.chat_template_kwargs,
    )


def _best_device() -> str:
    # Torch knows, but takes a second and 300 MB to load: only where there may be a GPU.
    if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        return "cpu"
    try:
        import torch
    except ImportError:
        return "cpu"  # Its absence is told where it is needed.
    return "cuda" if torch.cuda.is_available() else "cpu"
