"""What Data-Juicer keeps beside the rows goes through steps of ours in `dj-process` unharmed."""

import random

import pyarrow as pa
import pytest

from rejuice.operators import get
from rejuice.pipelines.data_juicer.tables import META, STATS
from rejuice.pipelines.recipe.steps import Step

pytest.importorskip("data_juicer")
pytest.importorskip("ray")
from data_juicer.core.data import NestedDataset
from datasets import Dataset, Json

from rejuice.pipelines.dj_process import on_ray, plugin

pytestmark = pytest.mark.slow

NAMES = [
    "pass_rate_filter",
    "grpo_advantage_mapper",
    "self_verification_mapper",
    "label_balance_selector",
    "exact_deduplicator",
]
HASH = "__dj__hash"


def rollouts() -> pa.Table:
    draw = random.Random(5)
    rows = [
        {
            "prompt_id": f"p{group}",
            "response_id": f"p{group}-{index}",
            "prompt": [{"role": "user", "content": f"question {group}?"}],
            "response": draw.choice(["so \\boxed{1}", "<answer>2</answer>", "three"]),
            "extracted_answer": draw.choice(["1", "2", None]),
            "verdict": draw.choice(["correct", "wrong_answer", None]),
            "reward": draw.choice([0.1, 1.0, None]),
            "reference": "1",
            "task": "generate",
        }
        for group in range(12)
        for index in range(draw.choice([1, 2, 4]))
    ]
    return pa.Table.from_pylist(rows)


def run(name, before, **fields):
    theirs = {} if name in NAMES else {"auto_op_parallelism": False}
    return plugin.OPERATORS.modules[name](**theirs, **fields).run(before)


def by_response(table):
    columns = (STATS, META, HASH)
    keys = zip(*(table[name] for name in ("response_id", "task")), strict=True)
    return {key: tuple(table[name][at] for name in columns) for at, key in enumerate(keys)}


@pytest.fixture(scope="module")
def tagged():
    """Rows with what a filter, a tagging operator and a deduplicator have written."""
    rows = NestedDataset(Dataset(rollouts()))
    rows = run("text_length_filter", rows, text_key="response_id", min_len=1)
    rows = run("usage_counter_mapper", rows)
    rows = run("document_deduplicator", rows, text_key="response_id")
    # The rows in another order of prompts: indices of Hugging Face, and no longer the table's own.
    order = sorted(range(len(rows)), key=lambda at: rows["prompt_id"][at], reverse=True)
    return rows.select(order)


@pytest.mark.parametrize("name", NAMES)
def test_default_carries_statistics_tags_and_hashes(tagged, name):
    """Steps that drop rows, that write columns, and that add rows and put others between them."""
    before, out = by_response(tagged), run(name, tagged)
    assert out.features[STATS] == out.features[META] == Json()
    after = by_response(out)
    old = {key: found for key, found in after.items() if key in before}
    assert old == {key: found for key, found in before.items() if key in old}
    assert old
    # A row that a step has added begins without any.
    assert {repr(after[key]) for key in after.keys() - old.keys()} <= {repr(({}, {}, None))}
    lengths = run("text_length_filter", out, text_key="prompt_id", min_len=0)
    words = run("words_num_filter", lengths, text_key="prompt_id", min_num=0)
    assert len(words) == len(out)
    assert {stats["num_words"] for stats in words[STATS]} == {1}


@pytest.mark.parametrize("name", NAMES)
def test_ray_carries_statistics_tags_and_hashes(tagged, name):
    """A block of Ray's, whose statistics are a struct."""
    block = pa.Table.from_pylist(tagged.to_list())
    assert pa.types.is_struct(block[STATS].type)
    out, _ = on_ray._apply_to_block(Step(1, name, get(name)()), block, 0, None)
    before, after = by_response(block.to_pydict()), by_response(out.to_pydict())
    old = {key: found for key, found in after.items() if key in before}
    assert old == {key: found for key, found in before.items() if key in old}
    none = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}
    new = {repr(after[key]) for key in after.keys() - old.keys()}
    assert new <= {repr(({"text_len": None}, none, None))}
