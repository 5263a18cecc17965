"""What a run trains on: prompts of a dataset, or groups that were collected before."""

import json

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from rejuice.operators import DataError
from rejuice.operators.sampling.protocol import Settings
from rejuice.operators.sampling.tokenizer import TemplateRefusedError
from rejuice.pipelines.data_juicer.steps import step
from rejuice.pipelines.dataset.spec import DatasetPart, DatasetSpec
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.launch.prompts import (
    make_held_out,
    make_prompts,
    make_replay,
    write_held_out,
)
from rejuice.trainer.split import HeldOutSet

CHAT = [{"role": "user", "content": "?"}]


def rows(**changes):
    """Groups a (3 rows), b (2) and c (1), not next to each other."""
    table = pa.table(
        {
            "prompt_id": ["a", "b", "a", "c", "b", "a"],
            "prompt": [CHAT] * 6,
            "reference": ["1", "2", "1", "3", "2", "1"],
            "prompt_token_ids": pa.array([[5, 6]] * 6, pa.list_(pa.int32())),
            "response": list("uvwxyz"),
            "response_token_ids": pa.array([[k] for k in range(6)], pa.list_(pa.int32())),
            "response_logprobs": pa.array([[-1.0]] * 6, pa.list_(pa.float32())),
            "reward": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        }
    )
    for name, values in changes.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, table.schema.field(name).type))
    return table


def untyped(name):
    """As JSON lines where it is null in all rows."""
    table = rows()
    return table.set_column(table.column_names.index(name), name, pa.nulls(6))


@pytest.fixture
def made(tmp_path):
    def make(table, longest=(4, 4), most=8):
        pq.write_table(table, tmp_path / "collected.parquet")
        count = make_replay(
            tmp_path / "collected.parquet", tmp_path, source="x", longest=longest, most=most
        )
        found = {
            name: feather.read_table(tmp_path / f"{name}.arrow") for name in ("replay", "train")
        }
        dropped = pq.read_table(tmp_path / "train-decisions.parquet")["reason"].to_pylist()
        return count, found, dropped

    return make


@pytest.fixture
def prompts(tmp_path):
    """Write the prompts of rows that have some already; a chat template that refuses is `encode`."""

    def make(contents, **more):
        chats = [[{"role": "user", "content": content}] for content in contents]
        table = pa.table({"prompt_id": contents, "prompt": chats})
        pq.write_table(table, tmp_path / "rows.parquet")

        def encode(messages):
            ((_, content),) = messages
            if content == "refused":
                raise TemplateRefusedError("no")
            return [0] * len(content)

        given = {"source": "x", "encode": encode, "longest": 8, **more}
        return make_prompts(tmp_path / "rows.parquet", (), tmp_path / "made", "train", **given)

    return make


def reasons(folder):
    found = pq.read_table(folder / "made" / "train-decisions.parquet").to_pylist()
    return [(row["step"], row["reason"]) for row in found]


def test_a_prompt_that_the_template_refuses_is_dropped_as_offline(prompts, tmp_path):
    assert prompts(["short", "refused", "far too long", "other", "short"]) == 2
    assert reasons(tmp_path) == [
        ("training", "repeated_prompt"),
        ("training", "template_refused"),
        ("training", "prompt_too_long"),
    ]
    assert feather.read_table(tmp_path / "made" / "train.arrow")["prompt_id"].to_pylist() == [
        "short",
        "other",
    ]


def test_where_no_prompt_is_left_the_reasons_are_on_file(prompts, tmp_path):
    with pytest.raises(
        DataError, match=r"gives no prompt \(template_refused 1\); change the steps"
    ):
        prompts(["refused"])
    assert reasons(tmp_path) == [("training", "template_refused")]


def test_suffixes_say_which_files_are_read(tmp_path):
    table = pa.table({"prompt_id": ["a"], "prompt": [CHAT]})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "rows.parquet")
    (tmp_path / "data" / "notes.json").write_text("no rows")
    given = {"source": "x", "encode": lambda _: [], "longest": 8}
    dataset = DatasetSpec((DatasetPart(tmp_path / "data"),), (".parquet",))
    made = make_prompts(dataset, (), tmp_path / "made", "train", **given)
    assert made == 1


@pytest.mark.slow
def test_prompts_of_some_files_only(tmp_path):
    pytest.importorskip("data_juicer")
    (tmp_path / "data").mkdir()
    for name, write in (("a.parquet", pq.write_table), ("b.arrow", feather.write_feather)):
        write(pa.table({"prompt_id": [name], "prompt": [CHAT]}), tmp_path / "data" / name)
    steps = number_steps([step("suffix_filter", {"suffixes": [".parquet"]})])
    given = {"source": "x", "encode": lambda _: [], "longest": 8}
    made = make_prompts(tmp_path / "data", steps, tmp_path / "made", "train", **given)
    assert made == 1
    assert feather.read_table(tmp_path / "made" / "train.arrow")["prompt_id"].to_pylist() == [
        "a.parquet"
    ]


def test_too_few_prompts_leave_nothing_to_train_on(prompts, tmp_path):
    with pytest.raises(DataError, match=r"gives 2 prompts, a step takes 3; set prompts_per_step"):
        prompts(["one", "two"], least=3)
    assert not (tmp_path / "made" / "train.parquet").exists()


def test_groups_are_brought_together_and_those_of_one_left_out(made, tmp_path):
    count, found, dropped = made(rows())
    assert count == 2
    assert dropped == ["group_of_one"]
    assert found["replay"]["prompt_id"].to_pylist() == ["a", "a", "a", "b", "b"]
    assert found["replay"]["reward"].to_pylist() == [0.0, 2.0, 5.0, 1.0, 4.0]
    assert found["train"]["prompt_id"].to_pylist() == ["a", "b"]
    verl = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert [row["extra_info"] for row in verl] == [
        {"index": 0, "prompt_id": "a", "split": "train"},
        {"index": 1, "prompt_id": "b", "split": "train"},
    ]
    assert [row["reward_model"]["ground_truth"] for row in verl] == ["1", "2"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reward": [0.0, 1.0, None, 3.0, 4.0, 5.0]}, "no_reward"),
        ({"reward": [0.0, 1.0, float("nan"), 3.0, 4.0, 5.0]}, "no_reward"),
        ({"response_logprobs": [[-1.0], [-1.0], None, [-1.0], [-1.0], [-1.0]]}, "not_sampled"),
        ({"response_token_ids": [[0], [1], [], [3], [4], [5]]}, "not_sampled"),
        (
            {"response_logprobs": [[-1.0], [-1.0], [-1.0, -1.0], [-1.0], [-1.0], [-1.0]]},
            "not_sampled",
        ),
        ({"response_logprobs": [[-1.0], [-1.0], [None], [-1.0], [-1.0], [-1.0]]}, "not_sampled"),
        (
            {
                "response_token_ids": [[0], [1], [2] * 5, [3], [4], [5]],
                "response_logprobs": [[-1.0], [-1.0], [-1.0] * 5, [-1.0], [-1.0], [-1.0]],
            },
            "too_long",
        ),
        ({"prompt_token_ids": [[5], [5], [5] * 5, [5], [5], [5]]}, "too_long"),
    ],
)
def test_a_row_that_cannot_train_is_dropped_for_its_reason(made, changes, reason):
    _, found, dropped = made(rows(**changes))
    assert dropped == [reason, "group_of_one"]
    assert found["replay"]["response"].to_pylist() == ["u", "z", "v", "y"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (rows().drop_columns("reward"), "has no column 'reward'; replay needs what policy_rollout"),
        (rows(reward=[None] * 6), "gives no group to train on; it needs two responses or more"),
        (
            untyped("response_logprobs"),
            "gives no group to train on; it needs two responses or more",
        ),
        (
            rows().set_column(5, "response_token_ids", pa.array([["x"]] * 6)),
            "column 'response_token_ids' of .*: Failed to parse string: 'x' .*; replay needs what",
        ),
    ],
)
def test_a_dataset_that_cannot_train_is_refused_in_one_line(made, table, message):
    with pytest.raises(DataError, match=message):
        made(table)


@pytest.mark.parametrize(
    "turns",
    [None, [{"role": "policy", "prompt_token_ids": [1], "token_ids": None, "logprobs": None}]],
)
def test_trajectories_that_have_no_tokens_in_any_row_are_refused_in_one_line(tmp_path, turns):
    row = {"prompt": CHAT, "response": "u", "finish_reason": "stop", "turns": turns, "reward": 1.0}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps({'prompt_id': name, **row})}\n" for name in "aabb"))
    with pytest.raises(DataError, match="gives no group to train on"):
        make_replay(path, tmp_path, source="x", longest=(4, 4), most=8, of_agents=True)


def test_a_group_larger_than_n_is_refused(made):
    with pytest.raises(DataError, match="has 3 responses to one prompt, policy_rollout_mapper has"):
        made(rows(), most=2)


@pytest.mark.parametrize(("most", "drawn"), [(None, 40), (7, 7), (100, 40)])
def test_a_validation_set_has_no_more_prompts_than_it_may(tmp_path, most, drawn):
    names = [f"q{number}" for number in range(40)]
    pq.write_table(pa.table({"prompt_id": names, "prompt": [CHAT] * 40}), tmp_path / "rows.parquet")
    settings = Settings(1, 1.0, 1.0, 8)
    held_out = HeldOutSet("a", tmp_path / "rows.parquet", "of-a", "a", (), settings, most)
    count = make_held_out(held_out, tmp_path, encode=lambda messages: [1], longest=4)
    made = pq.read_table(tmp_path / "of-a.parquet")["extra_info"].to_pylist()
    assert count == len(made) == drawn
    assert feather.read_table(tmp_path / "of-a.arrow")["prompt_id"].to_pylist() == names
    # Each is the row that it says, in the order of the dataset; a draw is not the beginning.
    rows = [each["index"] for each in made]
    assert [names[row] for row in rows] == [each["prompt_id"] for each in made]
    assert rows == sorted(rows)
    assert (rows == list(range(drawn))) == (drawn == 40)
    # A resumed run validates on the same.
    assert write_held_out(held_out, tmp_path) == drawn
    assert pq.read_table(tmp_path / "of-a.parquet")["extra_info"].to_pylist() == made
