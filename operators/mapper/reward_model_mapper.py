"""Reward responses by a scalar reward model, behind a server or in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt, PrivateAttr, model_validator
from typing_extensions import Self

from ..chats import check_chats
from ..columns import component, component_columns, is_text
from ..operator import Change, Columns
from ..sampling.tokenizer import (
    Encode,
    TemplateRefusedError,
    chat_encoder,
    chat_text,
    text_encoder,
)
from ..servers.judge import REASONS, ScoringOutcome, ScoringRequest, key_of
from ..servers.judged_mapper import ScoringMapper, summed_notes, texts_of
from ..servers.options import Dialect, DialectServer, ServerOptions
from ..servers.reward_api import (
    TAKES_CHATS,
    RewardApi,
    RewardInput,
    reward_body,
    reward_in,
    reward_request,
)
from ..text.reward_model import (
    RewardModel,
    check_is_folder,
    check_reward_model,
    facts_of,
    release,
    shared_reward_model,
    state_of,
)

_NAME = re.compile(r"[A-Za-z_]\w*")
_HUB_NAME = re.compile(r"(?:\w[\w.-]*/)?\w[\w.-]*")
_AT_ONCE = 256  # texts, among which a model on this machine chooses its batches
_PROBE = ({"role": "user", "content": "Hi"},)


class RewardModelMapper(ScoringMapper):
    """Write a reward component by a scalar reward model: a classifier of chats with one output.

    It is behind a server (`model`, `api`), or a folder of transformers on this machine (`folder`).
    It sees the chat in `prompt` with the response as the assistant's message, by its own chat
    template and without the beginning of a further answer; where `prompt` has texts, prompt and
    response one after the other. The reward is its output, before any activation.

    On this machine it computes in float32. Texts are sorted by length and batched, and on a CPU a
    response has the same reward in any batch and chunk, to the bit; on a GPU up to rounding. Behind
    a server each response is a request, so that no other one decides its padding; how far the
    server's own batches matter is its affair. No request is sent twice: answers are stored in
    `cache` under everything that determines them, and equal requests, also of several threads, are
    sent once. Each row is committed as it finishes.

    A `/v1` at the end of a server's address does no harm; changes in `folder` are detected.

    Nothing is truncated, and what has no number is never 0, but missing, with a reason in
    `reward_NAME_missing`. A server of OpenRLHF cuts off at its own `--max_len`: set `max_length`.
    """

    model: str | None = None
    """Name of the reward model on the server. A server of OpenRLHF has one model without a name:
    give any, which tells its stored answers from those of others."""
    folder: Path | None = None
    """Folder of a reward model and its tokenizer, as `save_pretrained` writes them for
    `AutoModelForSequenceClassification`. Needs `rejuice[policy]`."""
    api: RewardApi = "classify"
    """How the server is asked: `classify` and `pooling` are vLLM's; of a model whose `/pooling`
    gives each token an output, the last one counts. `sglang` is SGLang's `/classify`, `openrlhf`
    the `/get_reward` of OpenRLHF, which gets the `reference`, too, if there is one."""
    tokenizer: str | None = None
    """Folder or hub name of the reward model's tokenizer: its chat template is applied here, and
    tokens are sent. Null: the server applies it, as vLLM can; `sglang` and `openrlhf` need it."""
    component: str = "model"
    """The component: the reward is `reward_NAME`."""
    label: int | None = None
    """Which output is the reward, from 0, of a model with several. Null: it has one."""
    activation: Literal["none", "sigmoid"] = "none"
    """`none` gives the output itself, `sigmoid` its logistic function, in (0, 1)."""
    max_length: PositiveInt | None = None
    """Longest text of prompt and response, in tokens of the reward model; a longer one is missing.
    Null: as `folder` says; behind a server, what that refuses (`scorer_refused`). With a server it
    needs `tokenizer`."""

    # Whether the last prompts were texts, and not chats.
    _of_texts: bool = PrivateAttr(False)

    # Change it with what the model is shown and with how its answers are read.
    code: ClassVar[str | None] = "1"
    missing: ClassVar[Mapping[str, str]] = {
        "no_response": "the response is null",
        "no_prompt": "the prompt is null or empty",
        "too_long": "prompt and response have more tokens than the model takes, or `max_length`",
        "template_refused": "the chat template refuses the chat",
        "not_a_number": "the output is NaN or infinite",
        **REASONS,
    }
    """Why the reward may be missing."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not _NAME.fullmatch(self.component):
            raise ValueError(f"component: '{self.component}' cannot be part of a column's name")
        if (self.model is None) == (self.folder is None):
            raise ValueError("give either model, a name on a server, or folder, on this machine")
        if self.label is not None and self.label < 0:
            raise ValueError(f"label: {self.label} is below 0, the first output")
        if self.folder is not None:
            plain = {"api": "classify", "revision": "", "tokenizer": None}
            given = [name for name, value in plain.items() if getattr(self, name) != value]
            if given:
                raise ValueError(f"{given[0]} is for a server; a folder has its own")
            return self
        if self.tokenizer is None and self.api not in TAKES_CHATS:
            raise ValueError(
                f"api: {self.api} takes no chats; set tokenizer to that of the reward model"
            )
        if self.tokenizer is None and self.max_length is not None:
            raise ValueError("max_length counts tokens; set tokenizer to that of the reward model")
        if self.label is not None and self.api == "openrlhf":
            raise ValueError("label: a server of OpenRLHF gives one number; leave it out")
        return self

    def reads(self) -> Columns:
        return ("prompt", "response")

    def optional_reads(self) -> Mapping[str, str]:
        return {"reference": "reference"} if self.api == "openrlhf" else {}

    def writes(self) -> Columns:
        return component_columns(self.component)

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = self.model_dump(mode="json", exclude={"server", "cache", "folder"})
        place = self.folder or (Path(self.tokenizer) if self.tokenizer else None)
        return fields if place is None else {**fields, "files": state_of(place)}

    def check_files(self) -> None:
        if self.folder is not None:
            check_reward_model(self.folder)
        if self.tokenizer is not None and not _HUB_NAME.fullmatch(self.tokenizer):
            check_is_folder(Path(self.tokenizer), "a tokenizer")

    def preflight(self) -> None:
        if self.folder is not None:
            facts_of(self.folder).output(self.folder, self.label)
            return
        if self.tokenizer is not None:
            _texts_encoded(self.tokenizer)
        super().preflight()

    def close(self) -> None:
        super().close()
        if self.folder is not None:
            release()

    # --- behind a server --------------------------------------------------------------

    def _server(self) -> ServerOptions:
        if self.api != "openrlhf":
            return self.server
        fields = self.server.model_dump()
        return DialectServer(**fields, server=Dialect(models=False))  # It lists none.

    def _cache_file(self) -> Path | None:
        return None if self.folder is not None else super()._cache_file()

    def _probe(self) -> ScoringRequest:
        # Of the kind that rows have: a server without a chat template refuses chats alone.
        shown = self._shown("Hi" if self._of_texts else _PROBE, "Hi")
        if isinstance(shown, ScoringOutcome):
            shown = RewardInput((*((each["role"], each["content"]) for each in _PROBE),), "Hi")
        return self._request(shown)

    def _request(self, shown: RewardInput) -> ScoringRequest:
        body = reward_body(self.api, self.model or "", shown)
        key = key_of({"api": self.api, "body": body}, self.revision)
        sent = reward_request(self.api, body, self.label)
        return ScoringRequest(key, [sent], partial(reward_in, label=self.label))

    # --- what it is shown -------------------------------------------------------------

    def _requests(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ScoringRequest | ScoringOutcome]:
        taken = table.take(pa.array(rows, pa.int64()))
        self._of_texts = is_text(taken["prompt"].type)
        if not self._of_texts:
            check_chats(taken["prompt"])
        responses = texts_of(taken, "response")
        labels: list[str | None] = [None] * len(rows)
        if "reference" in table.column_names and self.api == "openrlhf":
            labels = texts_of(taken, "reference")
        for prompt, response, label in zip(
            taken["prompt"].to_pylist(), responses, labels, strict=True
        ):
            if response is None:
                yield ScoringOutcome(None, "no_response")
            elif not prompt:
                yield ScoringOutcome(None, "no_prompt")
            else:
                shown = self._shown(prompt, response)
                if isinstance(shown, ScoringOutcome):
                    yield shown
                else:
                    yield self._request(shown._replace(label=label or ""))

    def _shown(self, prompt: Any, response: str) -> RewardInput | ScoringOutcome:
        name = self._tokenizer_name()
        if isinstance(prompt, str):
            text = prompt + response
            ids = None if name is None else _texts_encoded(name)(text)
            return self._if_short(RewardInput(None, text, ids, prompt))
        before = tuple((each["role"] or "", each["content"] or "") for each in prompt if each)
        messages = (*before, ("assistant", response))
        if name is None:
            return RewardInput(messages)
        try:
            shown = RewardInput(None, "", _chats_encoded(name)(messages))
            if self.api == "openrlhf":
                text, opened = chat_text(name, messages, opens=False), chat_text(name, before)
                shown = shown._replace(text=text, prompt=opened)
        except TemplateRefusedError as error:
            return ScoringOutcome(None, "template_refused", str(error))
        return self._if_short(shown)

    def _if_short(self, shown: RewardInput) -> RewardInput | ScoringOutcome:
        longest = self.max_length
        if self.folder is not None:
            own = self._loaded().facts.longest
            longest = own if longest is None else min(longest, own)
        length = 0 if shown.token_ids is None else len(shown.token_ids)
        if longest is None or length <= longest:
            return shown
        return ScoringOutcome(None, "too_long", f"{length} tokens, and at most {longest} are read")

    def _tokenizer_name(self) -> str | None:
        return self.tokenizer if self.folder is None else str(self.folder)

    # --- on this machine --------------------------------------------------------------

    def _loaded(self) -> RewardModel:
        assert self.folder is not None
        return shared_reward_model(self.folder)

    def _scored(self, requests: Iterable[ScoringRequest]) -> Iterator[tuple[int, ScoringOutcome]]:
        if self.folder is None:
            yield from super()._scored(requests)
            return
        numbered = enumerate(requests)
        while taken := list(islice(numbered, _AT_ONCE)):
            which = self._loaded().facts.output(self.folder, self.label)
            texts = [(request.sent[0].body or {})["input"] for _, request in taken]
            for rows, outputs_BK in self._loaded().outputs_of(texts):
                for row, outputs in zip(rows, outputs_BK.tolist(), strict=True):
                    notes = {"asked": 1.0, "prompt_tokens": float(len(texts[row]))}
                    yield taken[row][0], ScoringOutcome((outputs[which],), notes=notes)

    # --- the columns ------------------------------------------------------------------

    def _change(self, table: pa.Table, outcomes: Sequence[ScoringOutcome]) -> Change:
        reward_N = np.array([each.scores[0] if each.scores else 0.0 for each in outcomes], float)
        finite_N = np.isfinite(reward_N)
        if self.activation == "sigmoid":
            reward_N = 0.5 * (1.0 + np.tanh(0.5 * reward_N))  # Which does not overflow.
        missing = [
            each.reason or (None if finite else "not_a_number")
            for each, finite in zip(outcomes, finite_N, strict=True)
        ]
        columns = component(self.component, reward_N, pa.array(missing, pa.string()))
        return Change(columns, notes=summed_notes(outcomes))


@lru_cache(maxsize=2)
def _chats_encoded(name: str) -> Encode:
    return chat_encoder(name, opens=False)


@lru_cache(maxsize=2)
def _texts_encoded(name: str) -> Callable[[str], list[int]]:
    return text_encoder(name)
