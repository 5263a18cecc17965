"""How much the loss of a response counts in training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pydantic import Field

from ..operator import Columns, Mapper


class LossWeightMapper(Mapper):
    """Write `loss_weight`, float64[N]: what the loss of each row is multiplied by in training.

    Its `where` says in which rows. The others have no weight of their own (null), which is 1:

        - loss_weight_mapper:
            where: {finish_reason: length}
            weight: 0

    is the overlong filtering of DAPO (https://arxiv.org/abs/2503.14476, section 3.4): the loss of
    truncated responses is masked. Such a row keeps its reward, and counts in the mean and the
    deviation of its group. At exactly 0, its tokens also leave the denominators of the loss; at any
    other weight they count there as before.
    """

    weight: float = Field(0.0, ge=0, le=1)
    """What the loss of the rows is multiplied by, from 0 to 1; at 0 they are masked."""

    def writes(self) -> Columns:
        return ("loss_weight",)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        return {"loss_weight": pa.array(np.full(table.num_rows, self.weight), pa.float64())}
