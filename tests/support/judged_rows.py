"""Made-up responses with judgements of them, in the columns that both samplings write."""

from __future__ import annotations

import pyarrow as pa

JUDGEMENTS = {"Y": "Yes", "N": "No", "-": None}
COLUMNS = (
    "prompt_id", "response_id", "task", "extracted_answer", "response", "judged_response_id", "judgement",
)  # fmt: skip


def judged_rows(*groups: str) -> pa.Table:
    """Groups of words such as `7:YN-`: an answer, and what was judged of it, `-` is malformed.

    Responses of group 0 have the ids 0.0, 0.1 ...; judgements stand after the group that they are
    about, those of one response as a group of their own.
    """
    rows = [row for at, group in enumerate(groups) for row in _group(at, group)]
    types = [(name, pa.string()) for name in COLUMNS]
    return pa.Table.from_pylist(rows, schema=pa.schema(types))


def _group(at: int, group: str) -> list[dict[str, str | None]]:
    answering, judging = [], []
    for k, word in enumerate(group.split()):
        answer, _, letters = word.partition(":")
        own = f"{at}.{k}"
        answering.append(
            {"prompt_id": f"p{at}", "response_id": own, "task": "generate",
             "extracted_answer": answer or None, "response": f"I say {answer}"}
        )  # fmt: skip
        judging += [
            {"prompt_id": f"v{own}", "response_id": f"{own}-{i}", "task": "verify",
             "response": "a judgement", "judged_response_id": own, "judgement": JUDGEMENTS[letter]}
            for i, letter in enumerate(letters)
        ]  # fmt: skip
    return [*answering, *judging]


def generated(table: pa.Table, column: pa.Array) -> list:
    """The values of a column on the rows with `task: generate`."""
    pairs = zip(table["task"].to_pylist(), column.to_pylist(), strict=True)
    return [value for task, value in pairs if task == "generate"]
