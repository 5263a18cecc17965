"""A plain sampler and a plain grader: what the embedded policy can do, by no code of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from rejuice.operators.mapper.format_reward_mapper import is_tagged

EMBEDDED = Path(__file__).parents[2] / "operators" / "sampling" / "embedded"
"""The shipped policy."""

MARKS = [("<think>", "</think>"), ("<answer>", "</answer>")]
_LONGEST = 64
_AT_ONCE = 64
_ANSWER = re.compile(r"(?:<answer>|answer is )(\d+)(?:</answer>|\.)$")
_BOX = re.compile(r"\\boxed\{(Yes|No)\}$")
_STYLES = {
    "guess": re.compile(r"I guess|Maybe"),
    "hasty": re.compile(r"That is easy"),
    "ordered": re.compile(r"First "),
    "brief": re.compile(r"\d"),
}


class Sample(NamedTuple):
    """A response, as token ids and as text."""

    ids: list[int]
    text: str

    @property
    def answer(self) -> str | None:
        """The last number, or Yes or No, where the response ends in one."""
        found = _ANSWER.search(self.text) or _BOX.search(self.text)
        return found[1] if found else None

    @property
    def tidy(self) -> bool:
        """Whether it has the form that was asked for."""
        return is_tagged(self.text, MARKS)

    @property
    def style(self) -> str:
        """The style of the demonstrator that it follows."""
        text = self.text.removeprefix("<think>")
        return next((name for name, start in _STYLES.items() if start.match(text)), "worked")


def load(path: Path) -> tuple[Any, Any]:
    """The model in float32, and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(path)


def prompt_ids(tokenizer: Any, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of the chats that ask these."""
    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    ids: list[list[int]] = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, return_dict=False
    )
    return ids


def sample(
    model: Any, tokenizer: Any, prompts: Sequence[str], n: int, generator: torch.Generator
) -> list[list[Sample]]:
    """For every prompt `n` responses at temperature 1."""
    groups = []
    for some in _batched(prompts):
        ids = iter(_sample(model, tokenizer, prompt_ids(tokenizer, some), n, generator))
        for _ in some:
            group = [next(ids) for _ in range(n)]
            texts = tokenizer.batch_decode(group, skip_special_tokens=True)
            groups.append(list(map(Sample, group, texts)))
    return groups


def _batched(prompts: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(prompts)
    while some := list(islice(rest, _AT_ONCE)):
        yield some


@torch.no_grad()
def _sample(
    model: Any, tokenizer: Any, prompts: list[list[int]], n: int, generator: torch.Generator
) -> Iterator[list[int]]:
    length = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.pad_token_id] * (length - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts])
    places = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    out = model(ids, mask, places, cache, use_cache=True, logits_to_keep=1)
    cache.batch_repeat_interleave(n)
    logits, mask = (x.repeat_interleave(n, 0) for x in (out.logits[:, -1], mask))
    place = places[:, -1].repeat_interleave(n)
    rows, responses = torch.arange(len(place)), [list[int]() for _ in place]
    for _ in range(_LONGEST):
        noise = -torch.empty_like(logits).exponential_(generator=generator).log()
        token = (logits + noise).argmax(-1)
        for row, one in zip(rows.tolist(), token.tolist(), strict=True):
            responses[row].append(one)
        going = (token != tokenizer.eos_token_id).nonzero().flatten()
        if not len(going):
            break
        cache.batch_select_indices(going)
        rows, token, mask, place = (x[going] for x in (rows, token, mask, place + 1))
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        out = model(token[:, None], mask, place[:, None], cache, use_cache=True)
        logits = out.logits[:, -1]
    return iter(responses)
