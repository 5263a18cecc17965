"""What a real language model answered to problems of GSM8K: tests/data/real_responses/README.md."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json

FOLDER = Path(__file__).resolve().parents[1] / "data" / "real_responses"
RECIPE = FOLDER.parents[2] / "recipes" / "gsm8k_qwen.yaml"
TEMPLATE = (
    "{question}\n\nSolve it in a few short steps, and put your final answer within \\boxed{}."
)
PROBLEMS = 200
N = 8


def overrides(gsm8k, folder):
    """What the shipped recipe needs to read the recorded responses; the data is written to a folder.

    Args:
        gsm8k: the test split of GSM8K, a JSON Lines or Parquet file, which is not part of the project.
        folder: an empty one.
    """
    read = pq.read_table if Path(gsm8k).suffix == ".parquet" else read_json
    problems = read(gsm8k).slice(0, PROBLEMS)
    pq.write_table(problems, folder / "problems.parquet")
    table = pq.read_table(FOLDER / "responses.parquet")
    questions = problems["question"].take(table["problem"]).to_pylist()
    prompts = [
        [{"role": "user", "content": TEMPLATE.replace("{question}", each)}] for each in questions
    ]
    pq.write_table(table.append_column("prompt", pa.array(prompts)), folder / "responses.parquet")
    step = "policy_rollout_mapper"
    return {
        "dataset_path": str(folder / "problems.parquet"),
        "export_path": str(folder / "curated.parquet"),
        "prompt_template_mapper.template": json.dumps(TEMPLATE),
        f"{step}.engine": "recorded",
        f"{step}.on_policy": "false",
        f"{step}.n": str(N),
        f"{step}.recorded.path": str(folder / "responses.parquet"),
    }


def right_by_math_verify(row):
    """Whether math-verify accepts a graded response, by the calls that its README has."""
    from math_verify import parse, verify

    return bool(verify(parse(f"${row['reference']}$"), parse(row["response"])))
