"""What the operators that sample from a policy have in common: its fields, prompts and columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ..chats import TAGS
from ..columns import ROW_CONTRACT, content_ids
from ..errors import FirstFailures
from ..groups import Groups
from ..json_text import parse_json
from ..logs import logger
from ..operator import Change, ResumableOperator, RowsOfChunk, Scope
from ..servers.options import GIVES_NO_TOKEN_IDS, TAKES_NO_TOKEN_IDS
from .engines import EngineName, EngineSpec, cache_key_state, check_installed, preflight, release
from .protocol import (
    Failure,
    OpenAIOptions,
    Prompt,
    RecordedOptions,
    TransformersOptions,
    VllmOptions,
    prompt_seeds,
)

# --- Chat templates that open a thought, as that of DeepSeek-R1 -----------------------

_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Tags of transformers around what an assistant wrote, without effect on the text."""
_CHAT = ({"role": "user", "content": "Hi"},)


def opened_thought(folder: str, kwargs: Mapping[str, Any]) -> str | None:
    template = _template(Path(folder)) if Path(folder).is_dir() else None
    if template is None or not any(opens in template for opens, _ in TAGS):
        return None
    return _opened(template, json.dumps(dict(kwargs), sort_keys=True, default=str))


@lru_cache(maxsize=16)
def _opened(template: str, kwargs: str) -> str | None:
    # What transformers renders templates with, whose import takes seconds.
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda _: ""
    settings: dict[str, Any] = {"add_generation_prompt": True, "bos_token": "", "eos_token": ""}
    settings |= {"tools": None, "documents": None}
    try:
        text = made.from_string(_GENERATION.sub("", template)).render(
            messages=list(_CHAT), **{**settings, **json.loads(kwargs)}
        )
    except Exception:  # Of whatever the template does: sampling reports it.
        return None
    end = text.rstrip()
    return next((opens for opens, _ in TAGS if end.endswith(opens)), None)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _template(folder: Path) -> str | None:
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text("utf-8")
        found = parse_json((folder / "tokenizer_config.json").read_text("utf-8"))
        template = found.get("chat_template")
        if isinstance(template, list):  # Several, by name.
            template = {each["name"]: each["template"] for each in template}.get("default")
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None
    return template if isinstance(template, str) else None


# --- Operators that sample ------------------------------------------------------------

_R = TypeVar("_R")
_first_failures = FirstFailures(logger(__name__).warning)


TOKEN_BYTES = 6
"""Bytes of text of a token, in the mean over a long response: 4 in English, and up to 6."""


class Sampled(Protocol):
    @property
    def policy(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def seed(self) -> int | None: ...


class RolloutMapper(ResumableOperator):
    """Base of the operators that sample `n` responses to each prompt: one row becomes n rows."""

    engine: EngineName = "transformers"
    """`transformers`: in processes of this machine. `openai`: any server with OpenAI's API, such as
    vLLM. `vllm`: vLLM on this machine's GPUs. `recorded`: the responses of an earlier run."""
    model: str = "embedded"
    """The policy: a folder or hub name; with `openai`, its name on the server. `embedded` is the
    small policy that comes with rejuice. Not used by `recorded`."""
    policy_version: NonNegativeInt = 0
    """Version of the weights. Raise it when the weights behind a server's name change, so that
    responses are sampled again; changes in a folder are detected automatically."""
    n: PositiveInt = 8
    """Responses to each prompt."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """1 samples from the policy itself; 0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample among the most probable tokens with this probability mass; 1 excludes none."""
    max_tokens: PositiveInt = 1024
    """Longest response, in tokens."""
    seed: int = 0
    """Another seed gives other samples."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Further arguments of the chat template, such as `{enable_thinking: false}` for Qwen3."""
    on_policy: bool = True
    """Raise an error if the engine gives no token ids and log-probabilities, or if `temperature`
    or `top_p` change the distribution of the policy. Set it to false for evaluation."""
    transformers: TransformersOptions = TransformersOptions()
    """Options of that engine."""
    openai: OpenAIOptions = OpenAIOptions()
    """Options of that engine."""
    vllm: VllmOptions = VllmOptions()
    """Options of that engine."""
    recorded: RecordedOptions = RecordedOptions()
    """Options of that engine."""

    scope: ClassVar[Scope] = Scope.GROUP  # To detect prompts that occur twice.
    reasons: ClassVar[Mapping[str, str]] = {
        "no_prompt": "the prompt is null or empty, or a message lacks its role or content",
        "repeated_prompt": "the previous row has the same prompt_id: each prompt must be one row",
        "prompt_too_long": "the prompt leaves no room for a response in the policy's context",
        "template_refused": "the chat template refuses the messages",
        "not_recorded": "the recording does not contain the prompt",
        "request_refused": "the server refuses the request, such as a prompt that is too long",
        "content_refused": "the server's content filter, or a refusal instead of a response",
        "too_few_samples": "fewer than n responses came back, or were recorded",
        "bad_response": "the server's answers could not be read",
        "rate_limited": "the server was too busy at every attempt",
        "server_error": "the server failed at every attempt",
        "timeout": "the server took too long at every attempt",
        "connection_lost": "the connection broke at every attempt",
    }

    may_pass: ClassVar[frozenset[str]] = frozenset(
        {"request_refused", "too_few_samples", "bad_response", "rate_limited", "server_error"}
        | {"timeout", "connection_lost"}
    )
    """Reasons for which a prompt was dropped that it may not meet again, such as with another
    setting of the server: `--retry_dropped` samples these prompts once more."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.on_policy and (self.temperature, self.top_p) != (1, 1):
            raise ValueError("on_policy needs temperature: 1 and top_p: 1; or set on_policy: false")
        if self.temperature == 0 and self.n > 1:
            raise ValueError("temperature: 0 always gives the same response: it needs n: 1")
        if self.engine == "openai" and self.model == "embedded" and self.openai.tokenizer is None:
            raise ValueError(
                "engine openai needs model, its name on the server; where that is 'embedded', set "
                "openai: {tokenizer: embedded} too"
            )
        self._check_server()
        if self.engine == "recorded" and self.recorded.path is None:
            raise ValueError(
                "engine recorded needs recorded: {path: …}, the responses of an earlier run"
            )
        return self

    def opened_thought(self) -> str | None:
        """The tag that opens a thought at the end of each prompt, such as `<think>`; None: the chat
        template has none, or is not in a folder of this machine."""
        if self.engine == "recorded":
            return None

        folder = (self.openai.tokenizer if self.engine == "openai" else None) or self.model
        return opened_thought(folder, self.chat_template_kwargs)

    def _check_server(self) -> None:
        kind, api = self.openai.server.kind, self.openai.api
        if self.engine != "openai" or kind is None:
            return
        if api == "completions" and kind in TAKES_NO_TOKEN_IDS:
            raise ValueError(f"{kind} takes no token ids as a prompt: set openai: {{api: chat}}")
        if api == "generate" and kind != "vllm":
            raise ValueError("api: generate is an endpoint of vllm: set openai: {api: chat}")
        if self.on_policy and kind in GIVES_NO_TOKEN_IDS:
            raise ValueError(
                f"{kind} does not give the token ids that on_policy: true needs; set on_policy: "
                "false, or sample from vllm"
            )

    def cache_key_fields(self) -> Mapping[str, Any]:
        # The options of the other engines are left out.
        fields = self.model_dump(mode="json", exclude=set(get_args(EngineName)))
        return {**fields, **cache_key_state(self._engine_spec())}

    def check_files(self) -> None:
        check_installed(self._engine_spec())

    def preflight(self) -> None:
        preflight(self._engine_spec())

    def largest_result(self) -> tuple[int, int]:
        return self.n, self.n * self.max_tokens * TOKEN_BYTES

    def has_results(self) -> bool:
        return self.engine == "recorded"

    def close(self) -> None:
        release(self._engine_spec())
        _first_failures.clear()

    def _engine_spec(self) -> EngineSpec:
        options = getattr(self, self.engine)
        kwargs = self.chat_template_kwargs
        return EngineSpec(self.model, self.policy_version, self.on_policy, kwargs, options)

    def prompts_of(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Prompt | Failure]]:
        """The prompt of each of these rows, or why there is none."""
        repeated_N = Groups.of(table).position() > 0
        seeds_N = prompt_seeds(table["prompt_id"], self.seed)
        chosen = table["prompt"].take(pa.array(rows, pa.int64())).to_pylist()
        for row, messages in zip(rows, chosen, strict=True):
            chat = tuple((each["role"], each["content"]) for each in messages or () if each)
            if repeated_N[row]:
                yield row, Failure("repeated_prompt", "")
            elif not chat or len(chat) < len(messages) or None in chain.from_iterable(chat):
                yield row, Failure("no_prompt", "")
            else:
                yield row, Prompt(chat, int(seeds_N[row]))

    def findable(self, table: pa.Table, rows: Sequence[int]) -> Sequence[int]:
        # A repeated prompt is dropped; the group of its first row is not that of another one.
        repeated_N = Groups.of(table).position() > 0
        return [row for row in rows if not repeated_N[row]]

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        for _, row, change in self.process_chunks(iter([RowsOfChunk(table, rows)])):
            yield row, change

    def _reported(self, results: Iterator[tuple[int, _R]]) -> Iterator[tuple[int, _R]]:
        for index, found in results:
            if isinstance(found, Failure):
                message = f"a prompt failed with {found.reason}: {found.detail}"
                _first_failures.report(found.reason, message)
            yield index, found

    def _change_of(
        self,
        prompt_ids: pa.ChunkedArray,
        found: Sequence[Sampled | Failure | None],
        samples: Sequence[tuple[int, int, Sampled]],
        columns: Mapping[str, pa.Array],
    ) -> Change:
        ids, texts = prompt_ids.to_pylist(), columns["response"].to_pylist()
        parts = ((ids[row], str(k), text) for (row, k, _), text in zip(samples, texts, strict=True))
        written = {
            "response_id": content_ids(parts),
            **columns,
            **column_of("policy", (group.policy for *_, group in samples)),
            **column_of("policy_version", (group.version for *_, group in samples)),
            **column_of("sampling", (self._sampling(group) for *_, group in samples)),
        }
        reasons = [each.reason if isinstance(each, Failure) else None for each in found]
        parents = np.array([row for row, *_ in samples], np.int64)
        return Change(written, pa.array(reasons, pa.string()), parents)

    def _sampling(self, group: Sampled) -> dict[str, float | None] | None:
        if group.seed is None and self.engine != "openai":  # A server may take no seed.
            return None  # If the seed is unknown, so are the other sampling parameters.
        settings = (self.temperature, self.top_p, self.max_tokens, group.seed)
        return dict(zip(("temperature", "top_p", "max_tokens", "seed"), settings, strict=True))


def column_of(name: str, values: Iterable[Any]) -> dict[str, pa.Array]:
    return {name: pa.array(list(values), ROW_CONTRACT[name])}
