"""Chats as the policy reads them: the chat template of a tokenizer, applied once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import EngineError

Messages: TypeAlias = tuple[tuple[str, str], ...]
"""A chat, as (role, content) pairs."""
Encode: TypeAlias = Callable[[Messages], Sequence[int]]
"""Token ids of a chat, the chat template applied. Raises TemplateRefusedError."""


class TemplateRefusedError(Exception):
    """The chat template cannot say this chat: a role that it does not know, or a wrong order."""


def chat_encoder(name: str) -> Encode:
    """Token ids of chats by the tokenizer and the chat template of `name`, a folder or hub name.

    Raises:
        EngineError: there is no such tokenizer, or it has no chat template.
    """
    tokenizer = _load(name)

    def encode(messages: Messages) -> list[int]:
        return list(map(int, _apply(tokenizer, messages, tokenize=True)))

    return encode


def chat_text(name: str, messages: Messages) -> str:
    """What the policy is to continue, as text: for reading, not for encoding.

    Raises:
        EngineError: there is no such tokenizer, or it has no chat template.
        TemplateRefusedError: the template cannot say this chat.
    """
    return str(_apply(_load(name), messages, tokenize=False))


def decoded(name: str, token_ids: Sequence[int]) -> str:
    """Tokens as text, special ones included: for reading, such as a prompt as it was sampled from.

    Raises:
        EngineError: there is no such tokenizer, or it has no chat template.
    """
    return str(_load(name).decode(list(token_ids), clean_up_tokenization_spaces=False))


@lru_cache(maxsize=2)
def _load(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        found = "a chat template needs transformers, which is not installed"
        raise EngineError(found, "pip install 'rejuice[policy]'") from None
    try:
        # No limit: the engine knows the policy's own, and the tokenizer would only warn.
        tokenizer: Any = AutoTokenizer.from_pretrained(name, model_max_length=1 << 60)
    except (OSError, ValueError, KeyError) as error:
        said = str(error).strip().partition("\n")[0]
        raise EngineError(f"cannot load the tokenizer '{name}'", said) from error
    if tokenizer.chat_template is None:
        raise EngineError(
            f"the tokenizer of '{name}' has no chat template", "name an instruction-tuned one"
        )
    return tokenizer


def _apply(tokenizer: Any, messages: Messages, *, tokenize: bool) -> Any:
    from jinja2 import TemplateError

    chat = [{"role": role, "content": content} for role, content in messages]
    try:
        return tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=tokenize, return_dict=False
        )
    except TemplateError as error:
        raise TemplateRefusedError(f"the chat template says: {error}") from error
