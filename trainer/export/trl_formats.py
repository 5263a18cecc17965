"""Rollouts as datasets for TRL: completions for supervised training, preference pairs for DPO.

The formats are described in https://huggingface.co/docs/trl/dataset_formats. Prompts that are chats
give its conversational format, prompts that are texts its standard one. Trajectories of agents are
chats, see `trajectories`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators import DataError, drop
from ...operators.columns import flat, is_list, is_text, numbers, right_and_wrong
from ...operators.groups import Array, hash_each
from ...pipelines.dataset.write import with_column
from .rows import as_chats, check_columns, messages_of, without_prompt
from .trajectories import chats_from, chats_of, has_trajectories

_TOKENS = "response_token_ids"
_PICTURE = r"(?i)^(?:https?:|data:image)|\.(?:png|jpe?g|gif|webp|bmp|tiff?)$"
"""Where a picture is, or that itself, in a text."""
_TOLERANCE = 1e-6
"""Rewards are equal up to this part of the largest one of their group: 0.3 beats 0.2 by 0.1, which
floating point denies, and 0.1 + 0.2 does not beat 0.3."""


class Converted(NamedTuple):
    table: pa.Table  # the rows to write
    rows: int  # how many rows the dataset has
    left_out: Mapping[str, int] = {}  # how many rows of the dataset were left out, by reason
    unpaired: Mapping[str, int] = {}  # how many groups gave no pair, by reason
    notes: tuple[str, ...] = ()  # what else there is to know about it, in sentences

    def sentences(self) -> Iterator[str]:
        if self.left_out:
            yield f"Rows left out: {counted(self.left_out)}."
        if self.unpaired:
            yield f"Groups without a pair: {counted(self.unpaired)}."
        yield from self.notes


@dataclass(frozen=True)
class Completions:
    """The columns `prompt` and `completion` of each response, for TRL's SFTTrainer.

    Rows are left out as `no_prompt`, `no_response`, `wrong` (which includes `no_answer`) or
    `ungraded`: a verifier that failed, or a row that no verifier has seen. Trajectories are also
    left out as `no_turn` or `frozen_model`.
    """

    correct_only: bool = True  # leave out responses whose verdict is not `correct`

    name: ClassVar[str] = "completions"

    def convert(self, rows: pa.Table, *, tool_calls: bool = True) -> Converted:
        """With `tool_calls`, messages of trajectories may have some."""
        rows, masks, answers = _usable(rows, tool_calls)
        grades = _grades(rows)
        if self.correct_only:
            if grades is None:
                what = "there is no column 'verdict', so nothing says which responses are correct"
                right = "run math_verify_mapper on them, or give --all to write them ungraded"
                raise DataError(what, right)
            masks |= {"wrong": grades["wrong"], "ungraded": grades["ungraded"]}
        kept, left_out = _split(rows, masks)
        if not kept.num_rows:
            graded = {"wrong", "ungraded"} & left_out.keys()
            raise DataError(
                f"no completion is left of {rows.num_rows:,} rows ({counted(left_out)})",
                "give --all to write wrong and ungraded ones too" if graded else "sample responses",
            )
        notes = []
        if not self.correct_only:
            found = _grades(kept)
            counts = {name: int(mask_N.sum()) for name, mask_N in (found or {}).items()}
            notes = [f"Completions by verdict: {counted(counts) if counts else 'none is graded'}."]
        completion = answers(kept["response"])
        table = pa.table({"prompt": kept["prompt"], "completion": completion, **pictures(kept)})
        return Converted(table, rows.num_rows, left_out, notes=tuple(notes))


@dataclass(frozen=True)
class Pairs:
    """The columns `prompt`, `chosen` and `rejected`, for TRL's DPOTrainer, and their rewards.

    A text is in one pair of its group at most. The pair with the largest difference of rewards
    comes first; what decides among equal ones is a hash of the texts, so that the order of rows
    does not matter.

    Rows are left out as `no_prompt`, `no_response` or `no_reward` (it is not finite), trajectories
    also as `no_turn` or `frozen_model`. A group gives no pair because it has `no_row_left`,
    `one_response` (all its texts are the same) or `equal_rewards`, or because no two of its rewards
    differ enough, `below_margin`.
    """

    min_margin: float = 0.0  # how much higher the reward of the chosen one has to be at least
    pairs_per_group: int = 1  # most pairs of one group
    # the pair whose responses are closest in length comes first, and among these the one with the
    # largest difference of rewards. Lengths are in tokens where all responses have their
    # `response_token_ids`, else in characters.
    match_length: bool = False

    name: ClassVar[str] = "pairs"

    def convert(self, rows: pa.Table, *, tool_calls: bool = True) -> Converted:
        check_columns(rows, "prompt_id", "reward")
        rows, masks, answers = _usable(rows, tool_calls)
        masks["no_prompt"] |= np.asarray(pc.is_null(rows["prompt_id"]))
        masks["no_reward"] = ~np.isfinite(numbers(rows, "reward"))
        kept, left_out = _split(rows, masks)
        best, worst, unpaired = self._pairs(kept)
        groups = pc.count_distinct(rows["prompt_id"]).as_py()
        empty = groups - pc.count_distinct(kept["prompt_id"]).as_py()
        unpaired |= {"no_row_left": empty} if empty else {}
        if not best:
            found = counted({**left_out, **unpaired})
            raise DataError(
                f"no pair is left of {rows.num_rows:,} rows ({found})",
                "give a smaller --min_margin"
                if "below_margin" in unpaired
                else "give rows with different rewards to one prompt",
            )
        chosen, rejected = kept.take(best), kept.take(worst)
        table = pa.table(
            {
                "prompt": chosen["prompt"],
                "chosen": answers(chosen["response"]),
                "rejected": answers(rejected["response"]),
                "score_chosen": numbers(chosen, "reward"),
                "score_rejected": numbers(rejected, "reward"),
                **pictures(chosen),
            }
        )
        gave = f"{groups - sum(unpaired.values()):,} of {groups:,} groups gave pairs."
        notes = (gave, *_notes(kept, best, worst))
        return Converted(table, rows.num_rows, left_out, unpaired, notes)

    def _pairs(self, rows: pa.Table) -> tuple[list[int], list[int], dict[str, int]]:
        """Rows of the chosen and of the rejected responses, and groups without them by reason."""
        reward_N, texts_N = numbers(rows, "reward"), hash_each(flat(rows["response"]))
        length_N = _lengths(rows)[0]
        best, worst = list[int](), list[int]()
        unpaired = Counter[str]()
        for group in _groups(rows["prompt_id"]):
            reward_K, texts_K = reward_N[group], texts_N[group]
            pairs, reason = self._of_group(reward_K, texts_K, length_N[group])
            best += [int(group[i]) for i, _ in pairs]
            worst += [int(group[j]) for _, j in pairs]
            if reason:
                unpaired[reason] += 1
        return best, worst, dict(unpaired.most_common())

    def _of_group(
        self, reward_K: Array, texts_K: Array, length_K: Array
    ) -> tuple[list[tuple[int, int]], str]:
        """The pairs (chosen, rejected) of a group, or the reason why it has none."""
        tolerance = _TOLERANCE * np.abs(reward_K).max()
        with np.errstate(over="ignore"):
            gap_KK = reward_K[:, None] - reward_K
        differ_KK = texts_K[:, None] != texts_K
        better_KK = differ_KK & (gap_KK > tolerance)
        enough_KK = better_KK & (gap_KK >= self.min_margin - tolerance)
        if not enough_KK.any():
            if not differ_KK.any():
                return [], "one_response"
            return [], "below_margin" if better_KK.any() else "equal_rewards"
        i_M, j_M = np.nonzero(enough_KK)
        apart_M = np.abs(length_K[i_M] - length_K[j_M]) if self.match_length else np.zeros(len(i_M))
        # The last key of lexsort is the first to decide.
        order = (texts_K[j_M], texts_K[i_M], -reward_K[i_M], -gap_KK[i_M, j_M], apart_M)
        pairs, used = list[tuple[int, int]](), set[int]()
        for m in np.lexsort(order):
            texts = {int(texts_K[i_M[m]]), int(texts_K[j_M[m]])}
            if used.isdisjoint(texts):
                pairs.append((int(i_M[m]), int(j_M[m])))
                used |= texts
            if len(pairs) >= self.pairs_per_group:
                break
        return pairs, ""


Format: TypeAlias = Completions | Pairs
"""What rows can be converted to."""


def converted(dataset: Path, rows: pa.Table, form: Format, *, tool_calls: bool = True) -> Converted:
    try:
        return form.convert(rows, tool_calls=tool_calls)
    except DataError as error:
        raise error.at(str(dataset)) from None


def counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def pictures(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The columns with pictures, of which TRL looks at `image` and `images`."""
    return {name: rows[name] for name in rows.column_names if _has_pictures(name, rows[name])}


def _has_pictures(name: str, column: pa.ChunkedArray) -> bool:
    while is_list(column.type):
        column = pc.list_flatten(column)
    fields = {each.name for each in column.type} if pa.types.is_struct(column.type) else set()
    if name not in ("image", "images") and not fields >= {"bytes", "path"}:
        return False
    if is_text(column.type):
        return bool(pc.any(pc.match_substring_regex(column, _PICTURE)).as_py())
    return bool(column.null_count < len(column))


class _Usable(NamedTuple):
    rows: pa.Table  # the `response` of trajectories is their messages, as JSON
    masks: dict[str, Array]  # which rows have none, each bool[N], by reason
    answers: Callable[[pa.ChunkedArray], pa.Array]  # responses in the form that prompts have


def _usable(rows: pa.Table, tool_calls: bool) -> _Usable:
    check_columns(rows, "prompt", "response")
    prompt, response = rows["prompt"], rows["response"]
    masks = {"no_prompt": without_prompt(prompt)}
    if not is_text(response.type) and not pa.types.is_null(response.type):
        raise DataError(f"column 'response' is {response.type}, not text", "give texts")
    masks["no_response"] = np.array(pc.is_null(response))
    if has_trajectories(rows):
        chats = chats_of(rows["turns"], tool_calls=tool_calls)
        rows = with_column(rows, "prompt", as_chats(prompt))
        rows = with_column(rows, "response", chats.texts).drop_columns("turns")
        return _Usable(rows, masks | chats.left_out, partial(chats_from, tool_calls=tool_calls))
    if is_text(prompt.type):
        return _Usable(rows, masks, lambda texts: flat(texts).cast(pa.string()))
    return _Usable(rows, masks, partial(messages_of, role="assistant"))


def _grades(rows: pa.Table) -> dict[str, Array] | None:
    """Which rows are correct, wrong and ungraded, each bool[N]; None without a verdict."""
    if "verdict" not in rows.column_names:
        return None
    verdicts = rows["verdict"]
    if not is_text(verdicts.type) and not pa.types.is_null(verdicts.type):
        raise DataError(
            f"column 'verdict' is {verdicts.type}, not text", "give it as math_verify_mapper does"
        )
    right_N, wrong_N = right_and_wrong(verdicts)
    return {"correct": right_N, "wrong": wrong_N, "ungraded": ~right_N & ~wrong_N}


def _split(rows: pa.Table, masks: Mapping[str, Array]) -> tuple[pa.Table, dict[str, int]]:
    """The rows that no mask leaves out, and how many each of the others does."""
    reasons = drop(masks)
    counts = Counter(reasons.to_pylist())
    left_out = {name: counts[name] for name in masks if counts[name]}
    return rows.filter(pc.is_null(reasons)), left_out


def _groups(prompt_ids: pa.ChunkedArray) -> list[Array]:
    """In the order in which prompts first occur."""
    codes_N = np.asarray(flat(prompt_ids).dictionary_encode().indices)
    by_group = np.argsort(codes_N, kind="stable")
    starts_G = np.flatnonzero(np.diff(codes_N[by_group], prepend=-1))
    return np.split(by_group, starts_G)[1:]


def _lengths(rows: pa.Table) -> tuple[Array, str]:
    """The length of each response, int64[N], and its unit."""
    if _TOKENS in rows.column_names:
        tokens = rows[_TOKENS]
        if is_list(tokens.type) and not tokens.null_count:
            return np.asarray(pc.list_value_length(tokens)).astype(np.int64), "tokens"
    lengths = pc.utf8_length(rows["response"].cast(pa.string()))
    return np.asarray(lengths).astype(np.int64), "characters"


def _notes(rows: pa.Table, best: list[int], worst: list[int]) -> Iterator[str]:
    """What a reader of pairs has to look at: lengths, which DPO learns easily, and verdicts."""
    length_N, unit = _lengths(rows)
    yield (
        f"Mean length in {unit}: chosen {length_N[best].mean():.1f}, "
        f"rejected {length_N[worst].mean():.1f}."
    )
    grades = _grades(rows)
    if grades is not None:
        counts = {name: int(mask_N[best].sum()) for name, mask_N in grades.items()}
        yield f"Chosen by verdict: {counted(counts)}."
