"""From the fields of a `RolloutMapper` to the engine that they specify.

An engine is opened for the first prompt and stays open until it is released, so a policy is loaded
once for all chunks.
"""

from __future__ import annotations

import atexit
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..cache_key import file_state
from ..config import deciding_fields
from ..errors import EngineError, RejuiceError, needs
from .protocol import Engine, OpenAIOptions, RecordedOptions, TransformersOptions, VllmOptions
from .tokenizer import Encode, Messages, check_tokenizers

EngineName = Literal["transformers", "openai", "vllm", "recorded"]

EMBEDDED = Path(__file__).parent / "embedded"
"""A policy that comes with rejuice: it solves arithmetic problems."""
EMBEDDED_FLOW = Path(__file__).parent / "embedded_flow"
"""Another one: it searches and calculates in several turns."""
EMBEDDED_POLICIES = {"embedded": EMBEDDED, "embedded_flow": EMBEDDED_FLOW}
"""The policies that come with rejuice, by their names in recipes."""

_MEMORY_SHARE = 0.4  # of the free memory, that copies of the weights may take
_LARGE = 1 << 30  # bytes of weights, far more than any cache of a processor
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors allows
_HASHED_SUFFIXES = frozenset(
    [".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".parquet", ".arrow", ".jsonl"]
)


class EngineSpec(NamedTuple):
    """What determines an engine; `RolloutMapper` documents the fields."""

    model: str
    version: int
    exact: bool
    chat_template_kwargs: Mapping[str, Any]
    options: TransformersOptions | OpenAIOptions | VllmOptions | RecordedOptions


def open_engine(spec: EngineSpec) -> Engine:
    """The engine of a spec; within a thread, the same one until it is released."""
    key = _key(spec)
    if key not in _open:
        _open[key] = _build_engine(spec)
    return _open[key]


def check_installed(spec: EngineSpec) -> None:
    if isinstance(spec.options, TransformersOptions):
        needs("engine transformers", "rejuice[policy]", "torch", "transformers", "psutil")
    elif isinstance(spec.options, OpenAIOptions) and _tokenizer_name(spec) is not None:
        check_tokenizers()


def preflight(spec: EngineSpec) -> None:
    """Check that the packages and the server of an engine are there, and that it has the model."""
    check_installed(spec)
    if isinstance(spec.options, OpenAIOptions):
        from ..servers.client import check_server

        check_server(spec.options, spec.model)


def release(spec: EngineSpec) -> None:
    engine = _open.pop(_key(spec), None)
    if engine:
        engine.close()


def cache_key_state(spec: EngineSpec) -> dict[str, Any]:
    """What determines the samples besides the mapper's own fields: options, and file contents."""
    return {"options": deciding_fields(spec.options), "files": list(_file_states(spec))}


def rendered_chat(spec: EngineSpec, messages: Messages) -> str:
    """A chat with the chat template applied; or why that is impossible."""
    from .tokenizer import TemplateRefusedError, chat_text

    name = _tokenizer_name(spec)
    if name is None:
        return "the messages, formatted by the server's chat template"
    try:
        return chat_text(name, messages, spec.chat_template_kwargs)
    except (RejuiceError, TemplateRefusedError) as error:
        return str(error)


def decoded_prompt(spec: EngineSpec, token_ids: Sequence[int]) -> str:
    """The text of a prompt that was sampled from; or why it cannot be shown."""
    from .tokenizer import displayed

    name = _tokenizer_name(spec)
    if name is None:
        return f"{len(token_ids)} tokens"
    try:
        return displayed(name, token_ids)
    except RejuiceError as error:
        return str(error)


def encoder(spec: EngineSpec) -> Encode | None:
    """From a chat to the token ids that an engine samples from; None: a server applies the chat
    template, or nothing is sampled."""
    from .tokenizer import TokenizerNotFoundError, chat_encoder

    name = _tokenizer_name(spec)
    if name is None:
        return None
    try:
        return chat_encoder(name, spec.chat_template_kwargs)
    except TokenizerNotFoundError as error:
        if not isinstance(spec.options, OpenAIOptions):
            raise
        right = (
            f"{error.right}: name the tokenizer of the model, openai: {{tokenizer: …}}, or leave "
            "the chat template to the server, openai: {api: chat}"
        )
        raise EngineError(error.found, right) from error


_open: dict[str, Engine] = {}


@atexit.register
def _close_all() -> None:
    while _open:
        _open.popitem()[1].close()


def _key(spec: EngineSpec) -> str:
    # An engine takes one call at a time, so each thread that runs recipes has its own.
    return f"{threading.get_ident()} {spec!r}"


def _file_states(spec: EngineSpec) -> Iterator[list[Any]]:
    path: str | None = policy_path(spec.model)
    if isinstance(spec.options, RecordedOptions):
        path = spec.options.path
    elif isinstance(spec.options, OpenAIOptions):
        path = None
    for place in dict.fromkeys((path, _tokenizer_name(spec))):
        root = Path(place or "")
        files = sorted(root.glob("*")) if place and root.is_dir() else [root]
        for file in files:
            if file.suffix in _HASHED_SUFFIXES and file.is_file():
                yield [file.name, file_state(file)]


def policy_path(model: str) -> str:
    return str(EMBEDDED_POLICIES.get(model, model))


def _tokenizer_name(spec: EngineSpec) -> str | None:
    """The tokenizer whose chat template is applied on this side; None if the server applies it."""
    options = spec.options
    if isinstance(options, RecordedOptions):
        return None
    if isinstance(options, OpenAIOptions):
        return None if options.api == "chat" else policy_path(options.tokenizer or spec.model)
    if isinstance(options, VllmOptions) and options.arguments.get("tokenizer"):
        return str(options.arguments["tokenizer"])
    return policy_path(spec.model)


def _build_engine(spec: EngineSpec) -> Engine:
    from ..workers import usable_cores
    from .processes import EngineProcesses

    options, policy = spec.options, policy_path(spec.model)
    own: dict[str, Any] = {
        "version": spec.version,
        "chat_template_kwargs": spec.chat_template_kwargs,
    }
    if isinstance(options, RecordedOptions):
        from .recording import RecordedEngine

        return RecordedEngine(options.path or "", exact=spec.exact)
    if isinstance(options, OpenAIOptions):
        from .openai_engine import OpenAIEngine

        preflight(spec)  # A tokenizer may have to be downloaded, for a server that is down.
        return OpenAIEngine(spec.model, options, encode=encoder(spec), exact=spec.exact, **own)
    if isinstance(options, VllmOptions):
        from .vllm_engine import vllm_process

        return vllm_process(policy, options, name=spec.model, **own)
    check_installed(spec)
    device = options.device or _best_device()
    cores = usable_cores() if device.startswith("cpu") else 1
    workers = options.workers or process_count(policy, options.dtype, cores)
    own |= {"name": spec.model, "device": device, "dtype": options.dtype, "rows": options.rows}
    build = partial(_transformers_engine, policy, **own)
    return EngineProcesses(build, workers=workers, threads=max(1, cores // workers))


def _transformers_engine(policy: str, **options: Any) -> Engine:
    """Open the engine in a process of its own: only there is torch loaded."""
    from .transformers_engine import TransformersEngine

    return TransformersEngine(policy, **options)


def process_count(policy: str, dtype: str, cores: int) -> int:
    """How many processes, each with its own copy of the weights, sample on these cores.

    One for each core beats one with many threads, which wait for each other in every layer. But
    large weights come from memory for every token, and two threads read them once. As many as
    memory allows; 1 if the weights are not here yet.
    """
    import psutil

    weights = sum(_numbers(file) for file in _weight_files(policy))
    size = weights * (4 if dtype == "float32" else 2)
    if not size:
        return 1
    most = max(1, cores // 2) if size > _LARGE else cores
    affordable = int(psutil.virtual_memory().available * _MEMORY_SHARE / size)
    return max(1, min(most, affordable))


def _weight_files(policy: str) -> list[Path]:
    folder = Path(policy)
    if not folder.is_dir():
        try:
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(policy, "config.json")
        except ValueError:  # The engine reports what is wrong.
            return []
        folder = Path(found).parent if isinstance(found, str) else folder
    return list(folder.glob("*.safetensors"))


def _numbers(weights: Path) -> int:
    try:
        with weights.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _LONGEST_HEADER)))
    except (OSError, ValueError):  # Such as a pointer of Git LFS. The engine reports it.
        return 0
    return sum(prod(each["shape"]) for each in header.values() if "shape" in each)


_OF_GPUS = re.compile(r"^(?:cuda|hip)\b.*= *['\"]", re.MULTILINE)
"""A line of torch/version.py of a build that can use GPUs; of others the value is None."""


def _best_device() -> str:
    # Torch can tell, but takes a second and 300 MB to load: it is asked only if it is a build for
    # GPUs. No device file can tell: a container may lack /dev/nvidiactl and have a GPU.
    found = find_spec("torch")
    if found is None or found.origin is None:
        return "cpu"  # The engine reports that torch is missing.
    try:
        version = Path(found.origin).with_name("version.py").read_text("utf-8")
    except OSError:
        version = "cuda = 'perhaps'"
    if not _OF_GPUS.search(version):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
