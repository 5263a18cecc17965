"""From the scores of a response to its reward: the same scale for all scorers.

Each dimension has a score from 1 to 5. With m their mean

    s      = m / 5                           in [0.2, 1]
    reward = (s - 0.2) / 0.8 - 0.5           in [-0.5, 0.5]

The first line is Data-Juicer's `llm_quality_score_filter`
(https://github.com/datajuicer/data-juicer), the second the normalisation that Trinity-RFT
describes (https://arxiv.org/abs/2505.17826).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ..columns import component, component_columns
from ..groups import Array
from ..operator import Columns

LEAST, MOST = 1, 5
WRITTEN: Columns = ("quality", "quality_score", *component_columns("quality"))
"""The columns of `quality_columns`."""


def reward_of(mean_N: Array) -> Array:
    """The reward of a mean score, float64[N]: (s - 0.2) / 0.8 - 0.5 with s = mean / 5.

    It is computed as (mean - 1) / 4 - 0.5, which is equal, and exact if the mean is.

    Example:
        >>> reward_of(np.array([1.0, 3.0, 5.0])).tolist()
        [-0.5, 0.0, 0.5]
    """
    reward_N: Array = (mean_N - LEAST) / (MOST - LEAST) - 0.5
    return reward_N


def quality_columns(scores: Mapping[str, Array], missing: pa.Array) -> dict[str, pa.Array]:
    """The columns in `WRITTEN`.

    Args:
        scores: dimension to float64[N], from 1 to 5; ignored where `missing` gives a reason.
        missing: string[N], null where there are scores.

    Returns:
        `quality` struct of float64, `quality_score` float64 s, `reward_quality` float64 and
        `reward_quality_missing` string; in a row without scores, only the last is not null.
    """
    absent_N = np.asarray(missing.is_valid())
    mean_N = sum(scores.values(), np.zeros(len(missing))) / len(scores)
    fields = [pa.array(each_N, pa.float64(), mask=absent_N) for each_N in scores.values()]
    return {
        "quality": pa.StructArray.from_arrays(fields, names=list(scores), mask=pa.array(absent_N)),
        "quality_score": pa.array(mean_N / MOST, pa.float64(), mask=absent_N),
        **component("quality", reward_of(mean_N), missing),
    }
