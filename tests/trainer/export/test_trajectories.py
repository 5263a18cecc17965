"""Trajectories of agents as messages with tool calls, as TRL reads them."""

import json

import pyarrow.parquet as pq
import pytest
from tool_turns import ANSWER, CALL, policy, tool, trajectories
from typer.testing import CliRunner

from rejuice.operators import DataError
from rejuice.operators.agents.trajectory import TOOL, Turn
from rejuice.pipelines.cli.export import app
from rejuice.trainer.export.huggingface import export_hf
from rejuice.trainer.export.trl_formats import Completions, Pairs


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(content, **arguments):
    function = {"name": "calculator", "arguments": arguments or {"expression": "8 * 46"}}
    return message("assistant", content, tool_calls=[{"type": "function", "function": function}])


def result(content="368"):
    return message("tool", content, name="calculator")


@pytest.mark.parametrize(
    ("turns", "messages"),
    [
        # A call with thoughts before it, and the answer as it was sampled.
        (
            [policy(f"<think>Multiply.</think>\n{CALL}"), tool(), policy(ANSWER)],
            [call("<think>Multiply.</think>"), result(), message("assistant", ANSWER)],
        ),
        # A call as models were trained to write it.
        (
            [policy('<tool_call>\n{"name": "calculator", "arguments": {"expression": "8 * 46"}}\n</tool_call>'), tool(), policy("368")],
            [call(""), result(), message("assistant", "368")],
        ),
        # Arguments that are no JSON object, or not those of the text: the text is kept.
        (
            [policy("calculate: 8"), tool("8", arguments="8"), policy("answer: 8")],
            [message("assistant", "calculate: 8"), message("user", "8"), message("assistant", "answer: 8")],
        ),
        (
            [policy(CALL), tool(arguments='{"expression":"1"}'), policy("368")],
            [message("assistant", CALL), message("user", "368"), message("assistant", "368")],
        ),
        # Something after the call, no call at all, and two results of one call.
        (
            [policy(f"{CALL} I guess 368"), tool(), policy("368")],
            [message("assistant", f"{CALL} I guess 368"), message("user", "368"), message("assistant", "368")],
        ),
        (
            [policy("Hm."), Turn(TOOL, observation="expected one object"), policy(CALL), tool(), tool("2"), policy("368")],
            [message("assistant", "Hm."), message("user", "expected one object"), call(""), result(), message("user", "2"), message("assistant", "368")],
        ),
        # Nothing follows the last turn of the policy.
        ([policy(CALL), tool()], [call("")]),
    ],
)  # fmt: skip
def test_turns_are_messages(turns, messages):
    (row,) = Completions().convert(trajectories(turns)).table.to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "8 * 46?"}]
    assert list(map(json.loads, row["completion"])) == messages


def test_trajectories_that_are_no_chat_are_counted():
    whole = [policy(CALL), tool(), policy(ANSWER)]
    table = trajectories(
        whole, whole, [], [policy("x"), Turn("verifier", "CONTINUE")], [tool()], whole,
        response=["368", None, "1", "1", "1", "1"], verdict=["correct"] * 5 + ["wrong_answer"],
    )  # fmt: skip
    made = Completions().convert(table)
    assert made.table.num_rows == 1
    assert made.left_out == {"no_response": 1, "no_turn": 2, "frozen_model": 1, "wrong": 1}
    with pytest.raises(DataError, match=r"no completion is left of 1 rows \(no_turn 1\)"):
        Completions().convert(trajectories(None))


def test_pairs_are_of_whole_trajectories():
    good, bad = [policy(CALL), tool(), policy(ANSWER)], [policy(ANSWER)]
    (row,) = Pairs().convert(trajectories(good, bad, good)).table.to_pylist()
    assert list(map(json.loads, row["chosen"])) == [
        call(""),
        result(),
        message("assistant", ANSWER),
    ]
    assert list(map(json.loads, row["rejected"])) == [
        message("assistant", ANSWER)
    ]  # The same answer, by another way.
    with pytest.raises(DataError, match=r"no pair is left of 2 rows \(one_response 1\)"):
        Pairs().convert(trajectories(good, good))


def test_prompts_that_are_texts_become_chats():
    table = trajectories([policy(ANSWER)], prompt=["8 * 46?"])
    (row,) = Completions().convert(table).table.to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "8 * 46?"}]


def run_folder_of(path, tools):
    """A run folder with the recipe of a run that had these tools."""
    folder = path.with_suffix(".run")
    folder.mkdir()
    recipe = {"dataset_path": "p.jsonl", "export_path": str(path), "process": [{"agent_rollout_mapper": {"tools": tools}}]}  # fmt: skip
    (folder / "recipe.yaml").write_text(json.dumps(recipe))


@pytest.mark.parametrize("tools", [["calculator"], ["one_of_my_own"], None])
def test_the_tools_of_the_run_are_a_column_if_they_are_known(tools, tmp_path):
    from datasets import load_dataset

    path = tmp_path / "curated.parquet"
    pq.write_table(trajectories([policy(CALL), tool(), policy(ANSWER)]), path)
    if tools:
        run_folder_of(path, tools)
    done = CliRunner().invoke(app, ["hf", str(path), str(tmp_path / "hf"), "--as", "completions"])
    assert done.exit_code == 0, done.output
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "| `completion` | list of messages (role, content, tool_calls, name) |" in card
    found = load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))[0]
    assert found["completion"] == [call(""), result(), message("assistant", ANSWER)]
    if tools == ["calculator"]:
        (described,) = json.loads(found["tools"])
        assert described["function"]["parameters"]["required"] == ["expression"]
    else:
        assert "tools" not in found
        assert "The tools are not known: add a column 'tools'" in done.stdout


def test_tools_that_no_message_calls_are_no_column(tmp_path):
    path = tmp_path / "curated.parquet"
    turns = [policy("calculate: 8"), tool("8", arguments="8"), policy("answer: 8")]
    pq.write_table(trajectories(turns), path)
    run_folder_of(path, ["calculator"])
    made = export_hf(path, tmp_path / "hf", Completions())
    assert made.table.column_names == ["prompt", "completion"]
    assert list(made.sentences()) == [
        "No turn ends with a tool call in JSON: the messages are plain text."
    ]


TEMPLATE = """\
{% if tools %}[tools {% for t in tools %}{{ t.function.name }}{% endfor %}]{% endif %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.arguments | tojson }}</call>{% endfor %}
{%- endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


@pytest.mark.slow  # It loads TRL.
def test_trl_passes_tools_and_calls_to_the_chat_template(tmp_path, monkeypatch):
    import importlib
    import sys

    from datasets import load_dataset
    from transformers import AutoTokenizer

    from rejuice.operators.sampling.engines import EMBEDDED

    if sys.modules.get("trl", ...) is None:
        monkeypatch.delitem(sys.modules, "trl")
    path = tmp_path / "curated.parquet"
    good, bad = [policy(f"So: {CALL}"), tool(), policy(ANSWER)], [policy("calculate: 8"), tool("8", arguments="8")]  # fmt: skip
    pq.write_table(trajectories(good, bad), path)
    run_folder_of(path, ["calculator"])
    export_hf(path, tmp_path / "hf", Pairs())
    example = load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))[0]  # fmt: skip
    data_utils = importlib.import_module("trl.data_utils")
    assert data_utils.is_conversational(example)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    tokenizer.chat_template = TEMPLATE
    made = data_utils.maybe_apply_chat_template(example, tokenizer, json.loads(example["tools"]))
    assert made["prompt"] == "[tools calculator][user]8 * 46?[assistant]"
    assert made["chosen"] == f'So:<call>{{"expression": "8 * 46"}}</call>[tool]368[assistant]{ANSWER}'  # fmt: skip
    assert made["rejected"] == "calculate: 8"
