"""From the fields of `policy_rollout_mapper` to the engine that they ask for.

An engine is opened for the first prompt and kept until it is released: a policy is loaded once,
however many chunks there are.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xxhash

from ..errors import EngineError
from .options import Options
from .protocol import Engine

if TYPE_CHECKING:
    from ..mapper.policy_rollout_mapper import PolicyRolloutMapper

EngineName = Literal["transformers", "openai", "vllm", "recorded"]

EMBEDDED = Path(__file__).parent / "embedded"
"""The policy that comes with rejuice, called `embedded` in recipes."""

_SMALL = 200 << 20  # bytes of weights that every core may have for itself
_HASHED = 64 << 20
_DECIDING = {".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".parquet", ".arrow"}
_DECIDING |= {".jsonl"}


def sampler(asked: PolicyRolloutMapper) -> Engine:
    """The engine that is asked for; for this thread the same one until it is released.

    Raises:
        EngineError: it cannot be had.
    """
    key = _key(asked)
    if key not in _open:
        _open[key] = _opened(asked)
    return _open[key]


def release(asked: PolicyRolloutMapper) -> None:
    """Close the engine, if it is open."""
    engine = _open.pop(_key(asked), None)
    if engine:
        engine.close()


def state_of(asked: PolicyRolloutMapper) -> dict[str, Any]:
    """What decides the samples beside the mapper's own fields: options, and what files hold."""
    options = _options(asked)
    fields = options.model_dump(mode="json", exclude=set(options.incidental))
    return {asked.engine: fields, "files": list(_state_of_files(asked))}


def chat_as_seen(asked: PolicyRolloutMapper, content: str) -> str:
    """A chat of one message of the user, with the chat template applied; or why it cannot be."""
    from .tokenizer import TemplateRefusedError, chat_text

    name = _tokenizer(asked)
    if name is None:
        return "what the server's chat template makes of the messages"
    try:
        return chat_text(name, (("user", content),), asked.chat_template_kwargs)
    except (EngineError, TemplateRefusedError) as error:
        return str(error)


def prompt_as_seen(asked: PolicyRolloutMapper, token_ids: Sequence[int]) -> str:
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


def _key(asked: PolicyRolloutMapper) -> str:
    # An engine takes one call at a time: threads that run recipes have engines of their own.
    return f"{threading.get_ident()} {asked.model_dump_json()}"


def _options(asked: PolicyRolloutMapper) -> Options:
    options: Options = getattr(asked, asked.engine)
    return options


def _state_of_files(asked: PolicyRolloutMapper) -> Iterator[list[Any]]:
    model = None if asked.engine == "openai" else _located(asked.model)
    path = asked.recorded.path if asked.engine == "recorded" else model
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


def _tokenizer(asked: PolicyRolloutMapper) -> str | None:
    """Name of the tokenizer whose chat template is applied here; None where it is not."""
    if asked.engine == "recorded" or (asked.engine == "openai" and asked.openai.api == "chat"):
        return None
    if asked.engine == "openai" and asked.openai.tokenizer:
        return _located(asked.openai.tokenizer)
    if asked.engine == "vllm" and asked.vllm.arguments.get("tokenizer"):
        return str(asked.vllm.arguments["tokenizer"])
    return _located(asked.model)


def _opened(asked: PolicyRolloutMapper) -> Engine:
    if asked.engine == "recorded":
        from .recorded_engine import RecordedEngine

        return RecordedEngine(asked.recorded.path or "", exact=asked.on_policy)
    if asked.engine == "openai":
        return _openai(asked)
    return _vllm(asked) if asked.engine == "vllm" else _transformers(asked)


def _openai(asked: PolicyRolloutMapper) -> Engine:
    from .openai_engine import OpenAIEngine
    from .tokenizer import chat_encoder

    name = _tokenizer(asked)
    return OpenAIEngine(
        asked.model,
        asked.openai,
        encode=None if name is None else chat_encoder(name, asked.chat_template_kwargs),
        version=asked.policy_version,
        exact=asked.on_policy,
        chat_template_kwargs=asked.chat_template_kwargs,
    )


def _transformers(asked: PolicyRolloutMapper) -> Engine:
    from .processes import EngineProcesses, usable_cores
    from .transformers_engine import TransformersEngine

    options, policy = asked.transformers, _located(asked.model)
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
        version=asked.policy_version,
        chat_template_kwargs=asked.chat_template_kwargs,
    )
    return EngineProcesses(build, workers=workers, threads=max(1, cores // workers))


def _is_small(policy: str) -> bool:
    sizes = [file.stat().st_size for file in Path(policy).glob("*.safetensors")]
    return 0 < sum(sizes) <= _SMALL


def _vllm(asked: PolicyRolloutMapper) -> Engine:
    from .vllm_engine import vllm_process

    return vllm_process(
        _located(asked.model),
        asked.vllm,
        name=asked.model,
        version=asked.policy_version,
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
