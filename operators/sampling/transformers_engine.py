"""The embedded engine: samples from a policy in the Hugging Face format, in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from ..feed import Feed
from .protocol import Failure, Group, Prompt, Sample, Settings
from .tokenizer import NO_KWARGS, TemplateRefusedError, chat_encoder, decoded, prompt_ids

if TYPE_CHECKING:
    from .decode import SampledResponse, SamplingRequest

_BLOCKS = 4
"""Prompts are put in order of length in blocks of so many times what is decoded at a time."""


class TransformersEngine:
    """Samples from any model that AutoModelForCausalLM of transformers loads, on a CPU or a GPU.

    In float32 the tokens of a sample depend on (seed, prompt, weights) alone; in other types, they
    occasionally depend on what else is in the batch. Log-probabilities are those of the policy
    itself, before temperature and top_p.

    Args:
        policy: folder or hub name, with a tokenizer that has a chat template.
        name: of the policy; None: `policy`.
        device: of torch, such as `cuda:0`.
        dtype: of weights and computation.
        rows: responses decoded at a time, but at least those to one prompt. Each needs memory for
            the keys and values of its own tokens; a prompt's are stored once for up to 8 responses.
        version: of the weights.
        chat_template_kwargs: further arguments of the chat template.

    Raises:
        EngineError: there is no such policy, or it has no chat template.
    """

    def __init__(
        self,
        policy: str | Path,
        *,
        name: str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        rows: int = 512,
        version: int = 0,
        chat_template_kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> None:
        self.policy = name or str(policy)
        self._device, self._dtype, self._rows = device, dtype, rows
        self._tokenizer = str(policy)
        self._encode = chat_encoder(self._tokenizer, chat_template_kwargs)
        self.load_weights(policy, version)

    def load_weights(self, path: str | Path, version: int) -> None:
        """Sample from the weights at `path` from now on; the tokenizer stays.

        Args:
            path: a policy, or a `.safetensors` file with new weights for the loaded policy, which
                is fast; of weights that are tied it has one or all.
            version: of the weights.

        Raises:
            EngineError: there are no such weights, or they do not fit.
        """
        if str(path).endswith(".safetensors"):
            self._replace_weights(path, version)
            return
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        from .key_values import store_for

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=self._dtype)
        except (OSError, ValueError, SafetensorError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot load the policy '{path}'", reason) from error
        try:
            self._model = model.to(self._device).eval().requires_grad_(False)
        except (AssertionError, RuntimeError) as error:  # Torch has no specific error.
            reason = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot use device '{self._device}'", reason) from error
        self._store, self._version = store_for(self._model), version
        ends = self._model.generation_config.eos_token_id
        self._ends: list[int] = ends if isinstance(ends, list) else [] if ends is None else [ends]

    def _replace_weights(self, path: str | Path, version: int) -> None:
        from safetensors import SafetensorError, safe_open

        own = self._model.state_dict()
        error = f"cannot load the weights '{path}'"
        try:
            with safe_open(path, framework="pt") as file:
                found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
                there = {own[name].data_ptr() for name in found.keys() & own.keys()}
                wanted = {
                    name: tuple(tensor.shape)
                    for name, tensor in own.items()
                    if name in found or tensor.data_ptr() not in there  # Of tied ones, one will do.
                }
                if found != wanted:
                    raise EngineError(error, "they are those of another policy")
                # One by one: all of them at once would take as much memory again.
                for name in found:
                    own[name].copy_(file.get_tensor(name))
        except (OSError, SafetensorError) as cause:
            raise EngineError(error, str(cause).strip().partition("\n")[0]) from cause
        self._version = version

    def sample(
        self, prompts: Iterable[Prompt | None], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        from .decode import decode

        feed, failures = Feed(prompts), deque[tuple[int, Failure]]()

        def failed() -> Iterator[tuple[int, Failure]]:
            while failures:
                feed.finish()
                yield failures.popleft()

        def block() -> list[SamplingRequest]:
            """The next requests; none if there are none at present, or none at all."""
            requests: list[SamplingRequest] = []
            for index, prompt in feed.take_up_to(_BLOCKS * self._groups(settings)):
                request = self._request(index, prompt, settings)
                if isinstance(request, Failure):
                    failures.append((index, request))
                else:
                    requests.append(request)
            return requests

        while not feed.exhausted:
            first = block()
            # Memory is reserved for all groups: fewer where there are no more.
            most = len(first) if feed.exhausted else self._groups(settings)
            store = self._store(self._model, settings.n, max(1, min(most, self._groups(settings))))
            for request, responses in decode(
                self._model, store, first, block, settings, self._ends
            ):
                feed.finish()
                yield request.prompt_index, self._group(request, responses)
                yield from failed()
            yield from failed()

    def capacity(self, settings: Settings) -> int:
        return (1 + _BLOCKS) * self._groups(settings)

    def close(self) -> None:
        self._model = None

    def _request(self, index: int, prompt: Prompt, settings: Settings) -> SamplingRequest | Failure:
        from .decode import SamplingRequest

        try:
            ids = prompt_ids(prompt, self._encode)
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        context = getattr(self._model.config, "max_position_embeddings", None) or 1 << 30
        if len(ids) >= context:
            detail = f"{len(ids)} tokens; the policy's context of {context} includes the response"
            return Failure("prompt_too_long", detail)
        max_tokens = min(settings.of(prompt).max_tokens, context - len(ids))
        return SamplingRequest(index, tuple(ids), prompt.seed, max_tokens)

    def _groups(self, settings: Settings) -> int:
        """How many groups are decoded at a time."""
        return max(1, self._rows // settings.n)

    def _group(self, request: SamplingRequest, responses: Iterable[SampledResponse]) -> Group:
        samples = tuple(self._sample(response) for response in responses)
        ids = tuple(request.prompt_ids)
        return Group(self.policy, self._version, request.seed, ids, samples)

    def _sample(self, response: SampledResponse) -> Sample:
        ids, logprobs, stopped = response
        text = decoded(self._tokenizer, ids[:-1] if stopped else ids)
        return Sample(text, ids, logprobs, "stop" if stopped else "length")
