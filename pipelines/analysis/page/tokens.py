"""Log-probabilities and weights of the tokens of responses, by the characters of each token.

Runs store token ids and log-probabilities, not the texts of tokens. Those come from the tokenizer,
where its file is on this machine: nothing is downloaded, and no weights are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ....operators.columns import is_list, is_text
from ....operators.sampling.engines import policy_path

COLUMN = "tokens of the response"
STORED = ("response_token_ids", "response_logprobs")
"""The columns that are needed."""
WEIGHTS = "token_weight"
"""The column of weights, which may be there."""
_HUNDREDTHS = pa.list_(pa.int32())
_KIND = pa.struct({"lengths": _HUNDREDTHS, "logprobs": _HUNDREDTHS, "weights": _HUNDREDTHS})
_UNIT = 100
"""Log-probabilities and weights are in hundredths."""


class ShadedTokens(NamedTuple):
    # of each row, UTF-16 units of each token, as a browser counts, hundredths of its ln p and, if
    # it has weights, of its weight; null where they are not known. None: of no row
    column: pa.ChunkedArray | None
    note: str = ""  # why there are none, though they are stored


def tokenizer_file(model: str) -> Path | None:
    """The tokenizer of a policy that is embedded or a local folder; None without one."""
    file = Path(policy_path(model)) / "tokenizer.json"
    return file if model and file.is_file() else None


def response_tokens(
    ids: pa.ChunkedArray,
    logprobs: pa.ChunkedArray,
    responses: pa.ChunkedArray,
    model: str,
    weights: pa.ChunkedArray | None = None,
) -> ShadedTokens:
    """The tokens of responses, by lists of ids, logprobs and weights (null: all are 1).

    A row whose tokens do not give its text has none.
    """
    columns = (ids, logprobs)
    if not is_text(responses.type) or not all(is_list(each.type) for each in columns):
        return ShadedTokens(None)
    if all(each.null_count == len(each) for each in columns):
        return ShadedTokens(None)
    file = tokenizer_file(model)
    if file is None or find_spec("tokenizers") is None:
        found = f"the tokenizer of {model or 'the policy'} is not in a local folder"
        if file is not None:
            found = "tokenizers is not installed; pip install 'rejuice[policy]'"
        return ShadedTokens(None, f"Log-probabilities are stored but not shown: {found}.")
    decode = _decoder(file)
    rows = zip(ids.to_pylist(), logprobs.to_pylist(), responses.to_pylist(), strict=True)
    weighed = weights if weights is not None and is_list(weights.type) else pa.nulls(len(ids))
    found_N = [
        _row(decode, *row, weight) for row, weight in zip(rows, weighed.to_pylist(), strict=True)
    ]
    return ShadedTokens(pa.chunked_array([pa.array(found_N, _KIND)]))


def _decoder(file: Path) -> Callable[[Sequence[int]], list[str]]:
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream

    tokenizer = Tokenizer.from_file(str(file))

    @cache
    def alone(token_id: int) -> str:
        return str(tokenizer.decode([token_id]))

    def in_order(token_ids: Sequence[int]) -> list[str]:
        # A character of several tokens belongs to the last of them.
        stream = DecodeStream(skip_special_tokens=True)
        return [stream.step(tokenizer, each) or "" for each in token_ids]

    def pieces(token_ids: Sequence[int]) -> list[str]:
        found = [alone(each) for each in token_ids]
        return found if "".join(found) == tokenizer.decode(token_ids) else in_order(token_ids)

    return pieces


def _row(
    decode: Callable[[Sequence[int]], list[str]], ids: Any, logprobs: Any, text: Any, weights: Any
) -> Any:
    if not ids or not logprobs or text is None or len(ids) != len(logprobs) or None in ids:
        return None
    if not all(each is not None and math.isfinite(each) for each in logprobs):
        return None
    pieces = decode(ids)
    if "".join(pieces) != text:
        return None
    lengths = [len(piece.encode("utf-16-le")) // 2 for piece in pieces]
    found = {"lengths": lengths, "logprobs": [round(_UNIT * each) for each in logprobs]}
    if weights is not None and len(weights) == len(ids) and None not in weights:
        found["weights"] = [round(_UNIT * each) for each in weights]
    return found
