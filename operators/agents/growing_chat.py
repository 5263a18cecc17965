"""A chat that grows by token ids: what was sampled is never tokenised again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..errors import EngineError
from ..sampling.tokenizer import Encode, Messages, TemplateRefusedError
from ..thoughts import TAGS

_ASK, _MORE = ("user", "a"), ("user", "d")


class GrowingChat:
    """Prompts of a policy that sees the whole chat so far, and below it one more message.

    A template has the prefix property if the tokens of a chat begin with those of each shorter one.
    Then a prompt is the one before it, the action as it was sampled, and what the template writes
    from the end of the action to the beginning of the next one.

    Args:
        encode: applies the template.

    Raises:
        EngineError: the template lacks the prefix property, or leaves out the thoughts of
            earlier messages, as that of Qwen3 does.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        try:
            start = self._ids(())
            one, other = (self._ids((("assistant", word), _MORE)) for word in "bc")
            longer = self._ids((("assistant", "b"), _MORE) * 2)
        except TemplateRefusedError as error:
            raise _unfit(str(error)) from error
        size = _common_suffix(one[len(start) :], other[len(start) :])
        self._before = one[: len(one) - size]
        """Tokens of the chat up to the end of its action."""
        grows = one[: len(start)] == start == other[: len(start)]
        if not (grows and size and longer == one + one[len(start) :]):
            raise _unfit("it writes earlier messages differently when others follow")
        if any(self._leaves_out_thought(*tags) for tags in TAGS):
            raise _unfit("it leaves out the thoughts of earlier messages")

    def after(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], stopped: bool, text: str
    ) -> tuple[int, ...]:
        """The next prompt.

        Args:
            prompt_ids: int[P], the prompt before it.
            token_ids: int[T], the action.
            stopped: whether it has an end-of-sequence token.
            text: of the message from the user that follows.
        """
        ids = self._ids((("assistant", "b"), ("user", text)))
        between = ids[len(self._before) :]
        if stopped and list(token_ids[-1:]) == between[:1]:
            between = between[1:]  # The action has this token itself.
        return (*prompt_ids, *token_ids, *between)

    def _leaves_out_thought(self, opened: str, closed: str) -> bool:
        """Whether a message with a thought is written as one with another thought."""
        texts = (f"{opened}\n{thought}\n{closed}\n\nb" for thought in "ce")
        one, other = (self._ids((("assistant", text), _MORE)) for text in texts)
        return one == other

    def _ids(self, messages: Messages) -> list[int]:
        return list(self._encode((_ASK, *messages)))


@lru_cache(maxsize=4)
def growing_chat(encode: Encode | None) -> GrowingChat:
    """The `GrowingChat` of a template, which is checked once.

    Raises:
        EngineError: it lacks the prefix property, or None: the template is on the server.
    """
    if encode is None:
        found = "context: append needs the policy's tokenizer, which only the server has"
        raise EngineError(found, "choose another api than chat, or set context: memory")
    return GrowingChat(encode)


def _common_suffix(one: Sequence[int], other: Sequence[int]) -> int:
    size = 0
    while size < min(len(one), len(other)) and one[-1 - size] == other[-1 - size]:
        size += 1
    return size


def _unfit(reason: str) -> EngineError:
    found = f"the policy's chat template does not suit context: append: {reason}"
    return EngineError(found, "set context: memory")
