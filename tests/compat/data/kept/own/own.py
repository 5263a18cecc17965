"""A user's own resumable operators: one from scratch, and one that extends a built-in."""

from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from rejuice.operators import Change, PolicyRolloutMapper, ResumableOperator, drop


class GreetedRolloutMapper(PolicyRolloutMapper):
    """Samples as its base class does."""

    greeting: str


class OpinionMapper(ResumableOperator):
    """Looks up what costs something: the file is there only while the data is written."""

    reasons: ClassVar = {"no_opinion": "nobody has one"}

    def reads(self):
        return ("response_id",)

    def writes(self):
        return ("opinion",)

    def apply(self, table):
        return self._change(table["response_id"].to_pylist())

    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for row in rows:
            yield row, self._change(ids[row : row + 1])

    def _change(self, ids):
        words = Path("opinions.txt").read_text().split()
        opinions = [words[int(each, 16) % len(words)] for each in ids]
        reasons = drop({"no_opinion": [each == "none" for each in opinions]})
        return Change({"opinion": pa.array(opinions, pa.string())}, reasons)
