"""Chats as a policy receives them: the chat template of a tokenizer, applied once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from ..errors import EngineError, first_line, needs
from .protocol import Failure, Prompt

Messages: TypeAlias = tuple[tuple[str, str], ...]
"""A chat, as (role, content) pairs."""
Encode: TypeAlias = Callable[[Messages], Sequence[int]]
"""From a chat to its token ids, with the chat template applied. Raises TemplateRefusedError."""
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
"""No further arguments for a chat template."""


_HUB_TIMEOUT_S = 5.0
_CONFIG = "tokenizer_config.json"


class TokenizerNotFoundError(EngineError):
    """There is no tokenizer of that name: no folder, and nothing that the hub or its cache has."""


class TemplateRefusedError(Exception):
    """The chat template rejects this chat: a role that it does not support, or a wrong order."""


def chat_encoder(name: str, kwargs: Mapping[str, Any] = NO_KWARGS, *, opens: bool = True) -> Encode:
    """Token ids of chats by the tokenizer and the chat template of `name`, a folder or hub name.

    `kwargs` are further arguments of the template. If it `opens`, a chat ends with the beginning of
    the answer that is to follow. An EngineError: no such tokenizer or template, or wrong `kwargs`.
    """
    tokenizer = _with_template(name)
    _check(tokenizer, kwargs)

    def encode(messages: Messages) -> list[int]:
        return list(map(int, _apply(tokenizer, messages, kwargs, tokenize=True, opens=opens)))

    return encode


def prompt_ids(prompt: Prompt, encode: Encode) -> list[int]:
    """int[P], the tokens that a prompt is sampled from: its own, or else those of its chat."""
    return list(encode(prompt.messages) if prompt.token_ids is None else prompt.token_ids)


def fitting_ids(prompt: Prompt, encode: Encode, context: int) -> list[int] | Failure:
    """`prompt_ids`, or why they cannot be sampled from: `context` includes the response."""
    try:
        ids = prompt_ids(prompt, encode)
    except TemplateRefusedError as error:
        return Failure("template_refused", str(error))
    if len(ids) >= context:
        detail = f"{len(ids)} tokens; the policy's context of {context} includes the response"
        return Failure("prompt_too_long", detail)
    return ids


def chat_text(
    name: str, messages: Messages, kwargs: Mapping[str, Any] = NO_KWARGS, *, opens: bool = True
) -> str:
    """The text that the policy continues, for display; arguments are those of `chat_encoder`."""
    tokenizer = _with_template(name)
    _check(tokenizer, kwargs)
    return str(_apply(tokenizer, messages, kwargs, tokenize=False, opens=opens))


def text_encoder(name: str) -> Callable[[str], list[int]]:
    """Token ids of texts that are no chats, with the special tokens that the tokenizer adds."""
    tokenizer = _load(name)
    return lambda text: list(map(int, tokenizer(text)["input_ids"]))


def decoded(name: str, token_ids: Sequence[int]) -> str:
    """Tokens as text, special ones included: for display."""
    return str(_with_template(name).decode(list(token_ids), clean_up_tokenization_spaces=False))


def displayed(name: str, token_ids: Sequence[int]) -> str:
    """As `decoded`, without transformers, whose import takes seconds, where its file is there."""
    with suppress(Exception):  # Its errors have no class of their own; `decoded` reports them.
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(Path(name) / "tokenizer.json"))
        return str(tokenizer.decode(list(token_ids), skip_special_tokens=False))
    return decoded(name, token_ids)


def content_encoder(name: str) -> Encode:
    """Token ids of what the messages of chats say, without a template and without transformers;
    none where the tokenizer has no file of its own on this machine."""
    file = Path(name) / "tokenizer.json"
    if not file.is_file():
        return lambda messages: ()
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # It has no class of its own.
        raise EngineError(f"cannot load the tokenizer '{name}'", first_line(error)) from None
    tokenizer.no_truncation()
    return lambda messages: (
        tokenizer.encode("".join(content for _, content in messages), add_special_tokens=False).ids
    )


def _with_template(name: str) -> Any:
    tokenizer = _load(name)
    if tokenizer.chat_template is None:
        raise EngineError(
            f"the tokenizer of '{name}' has no chat template", "choose an instruction-tuned one"
        )
    return tokenizer


def check_tokenizers() -> None:
    needs("a chat template", "rejuice[policy]", "transformers", "jinja2")


@lru_cache(maxsize=2)
def _load(name: str) -> Any:
    check_tokenizers()
    cached_only = not Path(name).is_dir() and _is_not_on_hub(name)
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(
            name,
            # No limit: the engine enforces the policy's own, and the tokenizer would only warn.
            model_max_length=1 << 60,
            local_files_only=cached_only,
        )
    except Exception as error:  # Those of a broken file are of many classes, or of none.
        raise EngineError(f"cannot load the tokenizer '{name}'", first_line(error)) from error
    return tokenizer


def _is_not_on_hub(name: str) -> bool:
    """Whether only the hub's cache on this machine has a tokenizer of that name. One request tells:
    transformers would retry each of a tokenizer's files for many seconds."""
    from httpx import HTTPError
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        get_hf_file_metadata(hf_hub_url(name, _CONFIG), timeout=_HUB_TIMEOUT_S)
        return False
    except errors.EntryNotFoundError:
        return False  # An old tokenizer has no such file.
    except errors.GatedRepoError:
        reason = "its repository on the hub is gated: `hf auth login` gives access"
    except (errors.HFValidationError, errors.RepositoryNotFoundError):
        reason = "the hub has no such repository"
    except errors.OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set"
    except (HTTPError, OSError) as error:
        reason = f"the hub cannot be reached ({' '.join(str(error).split()) or 'no answer'})"
    with suppress(errors.HFValidationError):
        if any(try_to_load_from_cache(name, file) is not None for file in (_CONFIG, "config.json")):
            return True
    right = f"it is no folder, and {reason}"
    raise TokenizerNotFoundError(f"cannot load the tokenizer '{name}'", right)


def _check(tokenizer: Any, kwargs: Mapping[str, Any]) -> None:
    # `tokenize` and the like control how a template is applied, which is decided here.
    reserved = inspect.signature(tokenizer.apply_chat_template).parameters.keys()
    wrong = sorted(kwargs.keys() & (reserved - {"tools", "documents"}))
    if wrong:
        found = f"chat_template_kwargs cannot contain '{wrong[0]}'"
        raise EngineError(
            found, "give arguments that the template itself reads, such as enable_thinking"
        )


def _apply(
    tokenizer: Any,
    messages: Messages,
    kwargs: Mapping[str, Any],
    *,
    tokenize: bool,
    opens: bool = True,
) -> Any:
    from jinja2 import TemplateError

    chat = [{"role": role, "content": content} for role, content in messages]
    try:
        return tokenizer.apply_chat_template(
            chat, add_generation_prompt=opens, tokenize=tokenize, return_dict=False, **kwargs
        )
    except TemplateError as error:
        raise TemplateRefusedError(f"the chat template refuses: {error}") from error
