"""The embedded engine: a policy in the Hugging Face format, sampled in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .protocol import Failure, Group, Prompt, Sample, Settings
from .tokenizer import NO_KWARGS, TemplateRefusedError, chat_encoder, decoded

if TYPE_CHECKING:
    from .decode import Answer, Ask


class TransformersEngine:
    """Samples from whatever transformers' AutoModelForCausalLM loads, on a CPU or a GPU.

    In float32 the tokens of a sample depend on (seed, prompt, weights) alone; in other types also,
    now and then, on what else is in the batch. Log-probabilities are those of the policy itself,
    before temperature and top_p.

    Args:
        policy: folder or hub name, with a tokenizer that has a chat template.
        name: of the policy; None: `policy`.
        device: as torch names it.
        dtype: of weights and computation.
        rows: responses in work at a time, but at least those to one prompt. Each needs memory for
            the keys and values of its own tokens; a prompt's are kept once for up to 8 responses.
        version: of the weights.
        chat_template_kwargs: what the chat template is told beside the chat.

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
            path: a policy, or a `.safetensors` file with other weights for the one that is loaded,
                which takes no time.
            version: of the weights.

        Raises:
            EngineError: there are none, or they do not fit.
        """
        if str(path).endswith(".safetensors"):
            self._replace_weights(path, version)
            return
        from transformers import AutoModelForCausalLM

        from .key_values import store_for

        try:
            model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=self._dtype)
        except (OSError, ValueError) as error:
            said = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot load the policy '{path}'", said) from error
        try:
            self._model = model.to(self._device).eval().requires_grad_(False)
        except (AssertionError, RuntimeError) as error:  # Torch has no error of its own for it.
            said = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot use device '{self._device}'", said) from error
        self._store, self._version = store_for(self._model), version
        ends = self._model.generation_config.eos_token_id
        self._ends: list[int] = ends if isinstance(ends, list) else [] if ends is None else [ends]

    def _replace_weights(self, path: str | Path, version: int) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            self._model.load_state_dict(load_file(path), strict=True)
        except (OSError, SafetensorError, RuntimeError) as error:
            said = str(error).strip().partition("\n")[0]
            raise EngineError(f"cannot load the weights '{path}'", said) from error
        self._version = version

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        from .decode import decode

        asks: list[Ask] = []
        for index, prompt in enumerate(prompts):
            ask = self._ask(index, prompt, settings)
            if isinstance(ask, Failure):
                yield index, ask
            else:
                asks.append(ask)
        store = self._store(self._model, settings.n, max(1, self._rows // settings.n))
        for ask, answers in decode(self._model, store, asks, settings, self._ends):
            samples = tuple(self._sample(answer) for answer in answers)
            yield ask.place, Group(self.policy, self._version, ask.seed, tuple(ask.ids), samples)

    def close(self) -> None:
        self._model = None

    def _ask(self, index: int, prompt: Prompt, settings: Settings) -> Ask | Failure:
        from .decode import Ask

        try:
            ids = self._encode(prompt.messages)
        except TemplateRefusedError as error:
            return Failure("template_refused", str(error))
        context = getattr(self._model.config, "max_position_embeddings", None) or 1 << 30
        if len(ids) >= context:
            said = f"{len(ids)} tokens of {context} that the policy takes with a response"
            return Failure("prompt_too_long", said)
        return Ask(index, tuple(ids), prompt.seed, min(settings.max_tokens, context - len(ids)))

    def _sample(self, answer: Answer) -> Sample:
        ids, logprobs, stopped = answer
        text = decoded(self._tokenizer, ids[:-1] if stopped else ids)
        return Sample(text, ids, logprobs, "stop" if stopped else "length")
