"""The prompt of Data-Juicer's `llm_quality_score_filter`, and its way to read the answers.

The texts are those of the Data-Juicer that is installed. They are read from its source files,
because importing them takes seconds.

An answer is read as `LLMAnalysisFilter.parse_output` of py-data-juicer 1.6.1 reads it
(https://github.com/datajuicer/data-juicer), with two differences: what is within `<think>` is no
answer; and where there is no number from 1 to 5 for each dimension, there is no score. There it is
0, or what the numbers outside of 1 to 5 give.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import EngineError
from .answer import ScorerAnswer
from .delimiters import escaped, lookalikes
from .quality import LEAST, MOST
from .verdict import MalformedError, without_thought
from .verdict import schema as schema_of_scores

DIMENSIONS = ("accuracy", "grammar", "informativeness", "coherence")
"""What the prompt asks to score, in the order in which Data-Juicer sums the scores."""

_SHOWN = ("prompt", "response")  # the names of the fields, as Trinity-RFT's recipe has them
_RECOMMENDATIONS = ("keep", "review", "discard")
_FIRST_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def messages(question: str, response: str) -> list[dict[str, str]]:
    """The chat that Data-Juicer sends for a sample with these two fields.

    What looks in them like a delimiter of that prompt, or like a special token, has a backslash.
    """
    texts = {**_texts("llm_analysis_filter"), **_texts("llm_quality_score_filter")}
    field, whole = texts["DEFAULT_FIELD_TEMPLATE"], texts["DEFAULT_INPUT_TEMPLATE"]
    titles = (field.replace("{field_name}", name) for name in _SHOWN)
    looks = lookalikes("\n".join((whole, *titles)), ("data", "field_data"))
    fields = (
        field.format(field_name=name, field_data=escaped(text, looks))
        for name, text in zip(_SHOWN, (question, response), strict=True)
    )
    shown = whole.format(data="\n\n".join(fields))
    return [
        {"role": "system", "content": texts["DEFAULT_SYSTEM_PROMPT"]},
        {"role": "user", "content": shown},
    ]


def schema() -> dict[str, Any]:
    """The JSON schema of an answer as the prompt describes it."""
    texts = {"type": "array", "items": {"type": "string"}}
    properties = {
        "dimension_scores": schema_of_scores(DIMENSIONS),
        "flags": texts,
        "rationale": {"type": "string"},
        "recommendation": {**texts, "items": {"type": "string", "enum": [*_RECOMMENDATIONS]}},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_scores(answer: ScorerAnswer, dimensions: Sequence[str]) -> tuple[float, ...]:
    """The score of each dimension; the first JSON object in the text counts.

    Raises:
        MalformedError: there is no number from 1 to 5 for one of them.
    """
    scores = _object(answer.text).get("dimension_scores")
    if not isinstance(scores, dict):
        raise MalformedError("no dimension_scores", answer.text)
    for name in dimensions:
        score: Any = scores.get(name)
        if type(score) not in (int, float) or not LEAST <= score <= MOST:
            found = f"{name} is {json.dumps(score)[:20]}"
            raise MalformedError(f"{found}, not a number from {LEAST} to {MOST}", answer.text)
    return tuple(float(scores[name]) for name in dimensions)


def record(text: str) -> str:
    """All that an answer with scores says, as Data-Juicer keeps it in `llm_quality_record`."""
    found = _object(text)
    found["recommendation"] = _as_texts(found.get("recommendation"))
    # Half of a surrogate pair, as of an emoji that was cut, is no text: it stays escaped.
    written = json.dumps(found, ensure_ascii=False)
    return written.encode(errors="backslashreplace").decode()


def _object(text: str) -> dict[str, Any]:
    found = _FIRST_OBJECT.search(without_thought(text))
    if found is None:
        raise MalformedError("no JSON object", text)
    try:
        value: dict[str, Any] = json.loads(found[0])
    except (ValueError, RecursionError):
        raise MalformedError("no JSON", text) from None
    return value


def _as_texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    texts = (str(each).strip() for each in values if each is not None)
    return [text for text in texts if text]


@cache
def _texts(operator: str) -> Mapping[str, str]:
    """The texts that the class of an operator gives a name to, such as `DEFAULT_SYSTEM_PROMPT`."""
    # `find_spec` of a package without a dot looks it up and does not import it.
    spec = importlib.util.find_spec("data_juicer")
    if spec is None or spec.origin is None:
        found = "prompt: data_juicer needs the package py-data-juicer, which is not installed"
        raise EngineError(found, "install it, or leave prompt out")
    file = Path(spec.origin).parent / "ops" / "filter" / f"{operator}.py"
    return {
        node.targets[0].id: node.value.value
        for kind in ast.parse(file.read_text("utf-8")).body
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
