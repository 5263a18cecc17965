"""Which response of its group a response is most similar to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...operators.groups import Groups
from ...operators.mapper.diversity_reward_mapper import DiversityRewardMapper
from ...operators.text.embedding import group_grams, usable_texts
from ...operators.text.tokens import texts_of


def diversity_evidence(operator: DiversityRewardMapper, table: pa.Table) -> dict[str, pa.Array]:
    """`nearest_response_id`, `nearest_cosine` and `mean_cosine`, to the others of the group.

    Null in rows without text, and where no other response of the group has any. A closed gate
    withholds the reward, not the cosines.

    Args:
        operator: which rewarded the rows.
        table: whole groups as the step had them: `response_id`, `prompt_id` and the text.

    Raises:
        RejuiceError: the model of the embeddings cannot be loaded.
    """
    groups, n = Groups.of(table), table.num_rows
    texts = texts_of(table[operator.column])
    used_N = usable_texts(texts)
    used_N &= (groups.sum(used_N) > 1)[groups.codes_N]
    near_N = np.full(n, -1)
    best_N, mean_N = np.full(n, np.nan), np.full(n, np.nan)
    for rows_BM, grams_BMM in group_grams(texts, groups, used_N, operator.embedder()):
        size = rows_BM.shape[1]
        own = np.arange(size)
        others_BMM = grams_BMM.copy()
        others_BMM[:, own, own] = -np.inf
        best_BM = others_BMM.argmax(axis=2)
        near_N[rows_BM] = np.take_along_axis(rows_BM, best_BM, axis=1)
        best_N[rows_BM] = others_BMM.max(axis=2)
        sums_BM = grams_BMM.sum(axis=2) - grams_BMM[:, own, own]
        mean_N[rows_BM] = sums_BM / (size - 1)
    absent_N = near_N < 0
    ids = table["response_id"].cast(pa.string()).combine_chunks()
    return {
        "nearest_response_id": ids.take(pa.array(near_N, mask=absent_N)),
        "nearest_cosine": pa.array(np.round(best_N, 12), mask=absent_N),
        "mean_cosine": pa.array(np.round(mean_N, 12), mask=absent_N),
    }
