"""The requests to servers of scalar reward models, and their answers, as JSON.

    | api | server | posted to | text of a row | answer |
    |---|---|---|---|---|
    | classify | vLLM | /classify | messages, or input | data[0].probs |
    | pooling | vLLM | /pooling | messages, or input | data[0].data |
    | sglang | SGLang | /classify | input_ids, or text | embedding |
    | openrlhf | OpenRLHF's serve_rm | /get_reward | query, prompts, labels | rewards[0] |

Each request is about one row, so that no row's value depends on the others'. Sources: vLLM's
`entrypoints/pooling/{classify,pooling}/protocol.py`, SGLang's `EmbeddingReqInput` and its page on
native APIs, OpenRLHF's `openrlhf/cli/serve_rm.py` and `utils/remote_rm_utils.py`.

vLLM puts probabilities into `probs` unless `use_activation: false` asks for the logits, as it does
here. SGLang's /v1/classify always gives probabilities, which for a single logit are 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Strict, TypeAdapter

from .client import Request
from .verdict import MalformedError, ScorerAnswer
from .wire import AttemptError, ReportedUsage, RetryClass, bad_response

RewardApi: TypeAlias = Literal["classify", "pooling", "sglang", "openrlhf"]
"""How a server of a reward model is asked."""
TAKES_CHATS: frozenset[RewardApi] = frozenset({"classify", "pooling"})
"""Those that render a chat by the chat template of their model."""

_PATHS: Mapping[RewardApi, str] = {
    "classify": "/classify",
    "pooling": "/pooling",
    "sglang": "/classify",
    "openrlhf": "/get_reward",
}
_MOST_SHOWN = 80  # characters of an answer in a message


class RewardInput(NamedTuple):
    """What a reward model is shown of a row: a chat, or its text, or the tokens of that."""

    messages: tuple[tuple[str, str], ...] | None = None  # (role, content)
    text: str = ""
    token_ids: Sequence[int] | None = None  # of the text
    prompt: str = ""  # the text before the response
    label: str = ""  # the reference; only OpenRLHF's servers get it


def reward_url(base: str, api: RewardApi) -> str:
    """The address to post to.

    >>> reward_url("http://localhost:8000/v1", "classify")
    'http://localhost:8000/classify'
    >>> reward_url("http://localhost:5000/get_reward", "openrlhf")
    'http://localhost:5000/get_reward'
    """
    path = _PATHS[api]
    return base if base.endswith(path) else base.removesuffix("/v1") + path


def reward_body(api: RewardApi, model: str, shown: RewardInput) -> dict[str, Any]:
    ids = shown.token_ids
    if api == "openrlhf":
        asked: dict[str, Any] = {"query": [shown.text], "prompts": [shown.prompt]}
        asked["labels"] = [shown.label]
    elif api == "sglang":
        asked = {"text": shown.text} if ids is None else {"input_ids": [*ids]}
    elif shown.messages is not None:
        chat = [{"role": role, "content": content} for role, content in shown.messages]
        asked = {"messages": chat, "use_activation": False}
    else:
        asked = {"input": shown.text if ids is None else [*ids], "use_activation": False}
    return {"model": model, **asked}


def reward_request(
    api: RewardApi, body: Mapping[str, Any], label: int | None
) -> Request[ScorerAnswer]:
    """A request with that body; `label` is which of the outputs is the reward, None: it has one."""
    if api == "openrlhf":  # It has one model, without a name.
        body = {name: value for name, value in body.items() if name != "model"}
    hint = f"does it serve a reward model, and is api: {api} right?"
    read = partial(read_reward, api=api, label=label)
    return Request(partial(reward_url, api=api), body, read, hint)


def read_reward(body: bytes, api: RewardApi, label: int | None = None) -> ScorerAnswer:
    """The outputs of the model in an answer, as a JSON list, which `reward_in` reads; an
    AttemptError if it is not about one row, or has several outputs, and `label` does not say which
    counts."""
    results, tokens = _results(body, api)
    if len(results) != 1 or not results[0]:
        raise bad_response(f"{len(results)} results with a number for one response")
    (outputs,) = results
    text = json.dumps(outputs)
    if label is None and len(outputs) != 1:
        right = "set label to the one that is the reward, counted from 0"
        raise _refused(f"the model has {len(outputs)} outputs, {_shown(text)}", right)
    if label is not None and label >= len(outputs):
        found = f"label is {label}, and the model has {len(outputs)} outputs"
        raise _refused(f"{found}, {_shown(text)}", "count from 0, or leave label out")
    return ScorerAnswer(text, "stop", prompt_tokens=tokens)


def reward_in(answer: ScorerAnswer, label: int | None) -> tuple[float]:
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


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


_OUTPUTS = TypeAdapter(list[Annotated[float, Strict()] | None])
"""Null stands for NaN, as some servers write it."""


def _results(body: bytes, api: RewardApi) -> tuple[list[list[float | None]], int]:
    """The outputs for each row, and the tokens of all."""
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
