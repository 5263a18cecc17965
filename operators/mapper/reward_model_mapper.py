"""Reward responses by a scalar reward model, behind a server or in a folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt, PrivateAttr, Strict, TypeAdapter, model_validator
from typing_extensions import Self

from ..cache_key import file_state
from ..chats import check_chats
from ..columns import component, component_columns, is_text
from ..errors import EngineError, first_line, needs
from ..groups import Array
from ..operator import Change, Columns
from ..sampling.tokenizer import Encode, TemplateRefusedError, chat_encoder, chat_text, text_encoder
from ..servers.client import Request
from ..servers.judge import REASONS, ScoringOutcome, ScoringRequest, key_of
from ..servers.judged_mapper import ScoringMapper, summed_notes, texts_of
from ..servers.options import Dialect, DialectServer, ServerOptions
from ..servers.verdict import MalformedError, ScorerAnswer
from ..servers.wire import AttemptError, ReportedUsage, RetryClass, bad_response
from ..text.embedding import Batching, TextBatch, of_fixed_shape, of_similar_length

# --- The requests to servers of reward models, and their answers, as JSON --------------
#
#     | api | server | posted to | text of a row | answer |
#     |---|---|---|---|---|
#     | classify | vLLM | /classify | messages, or input | data[0].probs |
#     | pooling | vLLM | /pooling | messages, or input | data[0].data |
#     | sglang | SGLang | /classify | input_ids, or text | embedding |
#     | openrlhf | OpenRLHF's serve_rm | /get_reward | query, prompts, labels | rewards[0] |
#
# Each request is about one row, so that no row's value depends on the others'. Sources: vLLM's
# `entrypoints/pooling/{classify,pooling}/protocol.py`, SGLang's `EmbeddingReqInput` and its page on
# native APIs, OpenRLHF's `openrlhf/cli/serve_rm.py` and `utils/remote_rm_utils.py`.
#
# vLLM puts probabilities into `probs` unless `use_activation: false` asks for the logits.
# SGLang's /v1/classify always gives probabilities, which for a single logit are 1.

RewardApi: TypeAlias = Literal["classify", "pooling", "sglang", "openrlhf"]
"""How a server of a reward model is asked."""
_TAKES_CHATS: frozenset[RewardApi] = frozenset({"classify", "pooling"})
"""Those that render a chat by the chat template of their model."""

_PATHS: Mapping[RewardApi, str] = {
    "classify": "/classify",
    "pooling": "/pooling",
    "sglang": "/classify",
    "openrlhf": "/get_reward",
}


class RewardInput(NamedTuple):
    """What a reward model is shown of a row: a chat, or its text, or the tokens of that."""

    messages: tuple[tuple[str, str], ...] | None = None  # (role, content)
    text: str = ""
    token_ids: Sequence[int] | None = None  # of the text
    prompt: str = ""  # the text before the response
    label: str = ""  # the reference; only OpenRLHF's servers get it


def _url(base: str, api: RewardApi) -> str:
    """The address to post to.

    >>> _url("http://localhost:8000/v1", "classify")
    'http://localhost:8000/classify'
    >>> _url("http://localhost:5000/get_reward", "openrlhf")
    'http://localhost:5000/get_reward'
    """
    path = _PATHS[api]
    return base if base.endswith(path) else base.removesuffix("/v1") + path


def _asked(api: RewardApi, shown: RewardInput) -> dict[str, Any]:
    ids = shown.token_ids
    if api == "openrlhf":
        return {"query": [shown.text], "prompts": [shown.prompt], "labels": [shown.label]}
    if api == "sglang":
        return {"text": shown.text} if ids is None else {"input_ids": [*ids]}
    if shown.messages is None:
        return {"input": shown.text if ids is None else [*ids], "use_activation": False}
    chat = [{"role": role, "content": content} for role, content in shown.messages]
    return {"messages": chat, "use_activation": False}


def read_reward(body: bytes, api: RewardApi, label: int | None = None) -> ScorerAnswer:
    """The outputs of the model in an answer, as a JSON list, which `_reward_in` reads; an
    AttemptError if it is not about one row, or has several outputs, and `label` does not say which
    counts."""
    results, tokens = _results(body, api)
    if len(results) != 1 or not results[0]:
        raise bad_response(f"{len(results)} results with a number for one response")
    (outputs,) = results
    text = json.dumps(outputs)
    if label is None and len(outputs) != 1:
        right = "set label to the one that is the reward, counted from 0"
        raise _refused(f"the model has {len(outputs)} outputs, {text[:80]}", right)
    if label is not None and label >= len(outputs):
        found = f"label is {label}, and the model has {len(outputs)} outputs"
        raise _refused(f"{found}, {text[:80]}", "count from 0, or leave label out")
    return ScorerAnswer(text, "stop", prompt_tokens=tokens)


def _reward_in(answer: ScorerAnswer, label: int | None) -> tuple[float]:
    """The reward in the outputs of a model, nan where the server gave none; a MalformedError if
    they are stored, and another label than this one was meant."""
    outputs = json.loads(answer.text)
    if not (len(outputs) == 1 if label is None else label < len(outputs)):
        raise MalformedError(f"{len(outputs)} outputs, and label is {label}", answer.text)
    output = outputs[label or 0]
    return (math.nan if output is None else float(output),)


def _refused(found: str, right: str) -> AttemptError:
    # Whichever row is asked about, the answer has this form.
    return AttemptError("request_refused", found, RetryClass.REFUSED, right=right)


_OUTPUTS = TypeAdapter(list[Annotated[float, Strict()] | None])
"""Null stands for NaN, as some servers write it."""


def _results(body: bytes, api: RewardApi) -> tuple[list[list[float | None]], int]:
    try:
        found = json.loads(body)
        if api == "openrlhf":
            outputs = [[each] for each in found["rewards"]]
        elif api == "sglang":
            found = found if isinstance(found, list) else [found]
            outputs = [each["embedding"] for each in found]
            tokens = [(each.get("meta_info") or {}).get("prompt_tokens", 0) for each in found]
            found = {"usage": {"prompt_tokens": sum(tokens)}}
        else:
            outputs = [each["probs" if api == "classify" else "data"] for each in found["data"]]
            # Where each token has its own, those of the last one.
            outputs = [each[-1] if isinstance(each[0], list) else each for each in outputs if each]
        usage = ReportedUsage.model_validate(found.get("usage") or {})
        return [_OUTPUTS.validate_python(each) for each in outputs], usage.prompt_tokens
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise bad_response(f"no answer of api: {api}: {body[:80]!r}") from None


# --- A reward model of transformers in a folder ---------------------------------------

# Otherwise a folder with code of its own would have the terminal asked about it.
_LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_UNLIMITED = 1 << 30  # tokens; a tokenizer has 10**30 for no limit
_HEAD = "ForSequenceClassification"
_MOST_NAMED = 8  # outputs, in a message
_LIMIT = "model_max_length"
_SUFFIXES = frozenset({".safetensors", ".bin", ".json", ".jinja", ".model", ".txt"})
_one_at_a_time = RLock()


class RewardModel:
    """A folder of `AutoModelForSequenceClassification` in float32, on a GPU where there is one.

    On a CPU a text has the same outputs in any batch, to the bit, on one machine: see
    `of_fixed_shape`. On a GPU texts are batched by length, and the last bits of an output depend on
    the texts in its batch. Texts are padded on the right, and padding is masked.
    """

    def __init__(self, folder: Path) -> None:
        self.facts = facts_of(folder)
        import torch
        from transformers import AutoModelForSequenceClassification

        try:
            with _quiet():
                model, info = AutoModelForSequenceClassification.from_pretrained(
                    folder, dtype=torch.float32, output_loading_info=True, **_LOCAL
                )
        except Exception as error:  # Of many kinds, some of them of other libraries.
            raise _does_not_load(folder, error) from error
        if info["missing_keys"]:
            # transformers makes them up: a policy would give random rewards.
            missing = ", ".join(sorted(info["missing_keys"])[:3])
            raise _no_classifier(folder, self.facts, f"no weights of {missing}")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._batching: Batching = of_fixed_shape if self._device == "cpu" else of_similar_length
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._pads = model.config.get_text_config().pad_token_id is not None

    def outputs_of(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Array]]:
        """The outputs of texts of at most `facts.longest` tokens, not activated, float32[B, K], by
        batches with their places among the texts."""
        lengths_N = np.array([len(ids) for ids in texts], np.int64)
        for batch in self._batching(lengths_N, self.facts.longest):
            with _one_at_a_time:  # torch uses all cores for one thread.
                found_BK = self._forward(batch, texts)
            yield batch.rows, found_BK

    def _forward(self, batch: TextBatch, texts: Sequence[Sequence[int]]) -> Array:
        import torch

        rows = [texts[row] for row in batch.rows + batch.rows[:1] * batch.copies]
        ids_BT = torch.full((len(rows), batch.length), self._padding(rows), dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for row, ids in enumerate(rows):
            ids_BT[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
            mask_BT[row, : len(ids)] = 1
        ids_BT, mask_BT = ids_BT.to(self._device), mask_BT.to(self._device)
        with torch.inference_mode():
            made = self._model(input_ids=ids_BT, attention_mask=mask_BT).logits
        outputs_BK: Array = made.float().cpu().numpy()[: len(batch.rows)]
        return outputs_BK

    def _padding(self, rows: Sequence[Sequence[int]]) -> int:
        """The id that fills texts up; the last other one is where the output is taken."""
        config = self._model.config.get_text_config()
        if self._pads:
            return int(config.pad_token_id)
        # Without one, transformers takes texts one by one: any id that is in none of them will do.
        used = {token for ids in rows for token in ids}
        config.pad_token_id = next(each for each in range(config.vocab_size) if each not in used)
        return int(config.pad_token_id)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing a bar, and from warning of what is an error here."""
    from transformers.utils import logging

    drew, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if drew:
            logging.enable_progress_bar()


class ModelFacts(NamedTuple):
    outputs: int
    longest: int  # text, in tokens
    labels: tuple[str, ...] = ()  # the names of the outputs, if they have names
    lacks_head: str = ""  # the classes of the weights, where none of them is of a classifier

    def output(self, folder: Path, label: int | None) -> int:
        """Which output is the reward; an EngineError if there is no such one, or several and no
        label."""
        which = 0 if label is None and self.outputs == 1 else label
        if which is not None and which < self.outputs:
            return which
        if self.lacks_head:  # Their number is a default.
            raise _no_classifier(folder, self, "no layer that gives a reward")
        named = ", ".join(f"{at} {name}" for at, name in enumerate(self.labels[:_MOST_NAMED]))
        count = f"{self.outputs} output{'s' if self.outputs > 1 else ''}"
        found = f"the reward model '{folder}' has {count}{': ' if named else ''}{named}"
        if which is None:
            right = f"set label to the one that is the reward, 0 to {self.outputs - 1}"
            raise EngineError(found, right)
        right = "count from 0" if self.outputs > 1 else "leave label out"
        raise EngineError(f"label is {which}, and {found}", right)


def _no_classifier(folder: Path, facts: ModelFacts, lacks: str) -> EngineError:
    own = f", a {facts.lacks_head} by its config.json," if facts.lacks_head else ""
    found = f"the folder '{folder}'{own} has {lacks}"
    return EngineError(found, f"name one of a model for sequence classification, ...{_HEAD}")


def facts_of(folder: Path) -> ModelFacts:
    check_reward_model(folder)
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder, **_LOCAL)
    except (OSError, ValueError) as error:
        raise _does_not_load(folder, error) from error
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    # The configuration counts the positions that some models, such as RoBERTa's, cannot use.
    with suppress(OSError, ValueError, AttributeError):
        limits.append(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get(_LIMIT))
    longest = min([_UNLIMITED, *(int(each) for each in limits if each)])
    names = {int(at): str(name) for at, name in (config.id2label or {}).items()}
    labels = tuple(name for _, name in sorted(names.items()))
    plain = all(name == f"LABEL_{at}" for at, name in enumerate(labels))
    classes = config.architectures or [_HEAD]
    lacks_head = "" if any(_HEAD in name for name in classes) else ", ".join(classes)
    return ModelFacts(int(config.num_labels), longest, () if plain else labels, lacks_head)


def check_reward_model(folder: Path) -> None:
    needs("a reward model in a folder", "rejuice[policy]", "torch", "transformers")
    check_is_folder(folder)


def check_is_folder(folder: Path, of: str = "a reward model") -> None:
    if not folder.is_dir():
        raise EngineError(f"there is no folder '{folder}'", f"name one with {of}")


def state_of(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.glob("*")) if file.suffix in _SUFFIXES)
    return {file.name: file_state(file) for file in files if file.is_file()}


def _does_not_load(folder: Path, error: Exception) -> EngineError:
    found = f"the reward model '{folder}' does not load: {first_line(error).rstrip('.')}"
    return EngineError(found, "name a folder that save_pretrained wrote")


@lru_cache(maxsize=1)
def _read_model(folder: Path) -> RewardModel:
    return RewardModel(folder)


# --- The mapper -----------------------------------------------------------------------

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
        if self.tokenizer is None and self.api not in _TAKES_CHATS:
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
            with _one_at_a_time:
                _read_model.cache_clear()

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
        body = {"model": self.model or "", **_asked(self.api, shown)}
        key = key_of({"api": self.api, "body": body}, self.revision)
        if self.api == "openrlhf":  # It has one model, without a name.
            del body["model"]
        hint = f"does it serve a reward model, and is api: {self.api} right?"
        read = partial(read_reward, api=self.api, label=self.label)
        sent = Request(partial(_url, api=self.api), body, read, hint)
        return ScoringRequest(key, [sent], partial(_reward_in, label=self.label))

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
        with _one_at_a_time:  # Otherwise each thread would load it.
            return _read_model(self.folder)

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
