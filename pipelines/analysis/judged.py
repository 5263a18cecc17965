"""What a judge answered, as it came."""

from __future__ import annotations

import pyarrow as pa

from ...operators.servers.failures import raw_answers
from ...operators.servers.judged_mapper import JudgedMapper


def judge_evidence(operator: JudgedMapper, table: pa.Table) -> dict[str, pa.Array]:
    """`raw_answer` where there is a score, `raw_failure` where there is none; texts.

    A failure is the malformed answer, or the message of a request that got none. Both are null
    where the cache of the judge does not have them.

    Args:
        operator: which judged the rows.
        table: with the columns that it reads.
    """
    found = raw_answers(operator, table)
    scored = [each.text if each and each.reason is None else None for each in found]
    failed = [each.text if each and each.reason is not None else None for each in found]
    return {
        "raw_answer": pa.array(scored, pa.string()),
        "raw_failure": pa.array(failed, pa.string()),
    }
