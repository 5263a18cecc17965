import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.columns import content_ids
from rejuice.operators.json_text import list_in
from rejuice.operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from rejuice.operators.registry import build


def written(change):
    return {name: column.to_pylist() for name, column in change.columns.items()}


def test_several_columns_give_a_row_each_named_after_them():
    rows = pa.table({"prompt_id": ["p", "q"], "small": ["a", "c"], "large": ["b", None]})
    change = check_operator(RecordedRolloutMapper(columns=["small", "large"]), rows)
    columns = written(change)
    assert columns["response"] == ["a", "b", "c", None]
    assert columns["policy"] == ["small", "large", "small", "large"]
    assert change.parents.tolist() == [0, 0, 1, 1]
    assert change.without == ("small", "large")
    assert change.reasons.null_count == 2


def test_structs_give_their_text_and_the_fields_to_keep():
    cell = pa.struct([("solution", pa.string()), ("is_correct", pa.bool_())])
    rows = pa.table(
        {
            "prompt_id": ["p", "q"],
            "one": pa.array([{"solution": "a", "is_correct": True}, None], cell),
            "two": pa.array([{"solution": "b", "is_correct": False}] * 2, cell),
        }
    )
    operator = RecordedRolloutMapper(
        columns=["one", "two"], text="solution", keep_fields={"is_correct": "published"}
    )
    columns = written(check_operator(operator, rows))
    assert columns["response"] == ["a", "b", None, "b"]
    assert columns["published"] == [True, False, None, False]


def test_a_list_column_gives_a_row_per_item():
    rows = pa.table({"prompt_id": ["p", "q", "r"], "samples": [["a", "b"], ["c"], ["d", None]]})
    change = check_operator(RecordedRolloutMapper(columns=["samples"]), rows)
    assert written(change)["response"] == ["a", "b", "c", "d", None]
    assert set(change.columns) == {"response_id", "response"}
    assert change.parents.tolist() == [0, 0, 1, 2, 2]


def test_a_list_of_structs_may_name_the_policy_and_the_finish_reason():
    samples = [
        [
            {"text": "a", "model": "m", "stop": "stop", "version": 3},
            {"text": "b", "model": "n", "stop": "length", "version": 4},
        ]
    ]
    operator = RecordedRolloutMapper(
        columns=["samples"],
        text="text",
        keep_fields={"model": "policy", "stop": "finish_reason", "version": "policy_version"},
    )
    rows = pa.table({"prompt_id": ["p"], "samples": samples})
    columns = written(check_operator(operator, rows))
    assert columns["policy"] == ["m", "n"]
    assert columns["finish_reason"] == ["stop", "length"]
    assert columns["policy_version"] == [3, 4]


def test_a_row_per_response_keeps_its_rows():
    rows = pa.table({"prompt_id": ["p", "p", "q"], "output": ["a", "a", "b"]})
    change = check_operator(RecordedRolloutMapper(columns=["output"], policy="m"), rows)
    columns = written(change)
    assert columns["response"] == ["a", "a", "b"]
    assert columns["policy"] == ["m", "m", "m"]
    assert change.parents.tolist() == [0, 1, 2]
    assert change.without == ("output",)


def test_a_column_that_is_named_response_already_stays():
    rows = pa.table({"prompt_id": ["p"], "response": ["a"]})
    change = check_operator(RecordedRolloutMapper(columns=["response"]), rows)
    assert change.without == ()
    assert written(change)["response"] == ["a"]


def test_ids_hold_prompt_place_and_response():
    # Rows of one prompt are one group, also where each brings two responses.
    rows = pa.table({"prompt_id": ["p", "p", "q"], "x": ["a", "a", "a"], "y": ["b", "a", "b"]})
    change = check_operator(RecordedRolloutMapper(columns=["x", "y"]), rows)
    expected = [("p", "0", "a"), ("p", "1", "b"), ("p", "2", "a"), ("p", "3", "a")]
    expected += [("q", "0", "a"), ("q", "1", "b")]
    assert change.columns["response_id"] == content_ids(expected)
    assert len(set(written(change)["response_id"])) == 6


def test_a_prompt_without_responses_is_dropped_with_a_reason():
    samples = pa.array([["a"], [], None, ["b"]], pa.list_(pa.string()))
    rows = pa.table({"prompt_id": ["p", "q", "r", "s"], "samples": samples})
    change = check_operator(RecordedRolloutMapper(columns=["samples"]), rows)
    assert change.reasons.to_pylist() == [None, "no_responses", "no_responses", None]
    assert change.parents.tolist() == [0, 3]


def test_columns_may_lack_values_altogether():
    rows = pa.table({"prompt_id": ["p"], "x": ["a"], "y": pa.nulls(1)})
    change = check_operator(RecordedRolloutMapper(columns=["x", "y"]), rows)
    assert written(change)["response"] == ["a", None]


CELL = [{"text": "a", "n": 1}]


@pytest.mark.parametrize(
    ("fields", "cells", "message"),
    [
        (
            {},
            CELL,
            "column 'x' contains structs of text, n; set `text` to the field that contains the response",
        ),
        ({"text": "txt"}, CELL, "column 'x' has no field 'txt'; did you mean 'text'?"),
        ({"text": "answer"}, CELL, "column 'x' has no field 'answer'; its fields are: text, n"),
        ({"text": "text"}, ["a"], "column 'x' has no fields, it is string; leave out `text`"),
        (
            {"text": "n"},
            CELL,
            "responses in column 'x' are int64; name columns or a field of strings",
        ),
        (
            {"text": "text", "keep_fields": {"text": "policy_version"}},
            CELL,
            "field 'text' of column 'x' is string; "
            "'policy_version' is int64: give the column another name",
        ),
    ],
)
def test_columns_of_the_wrong_type_stop_the_run(fields, cells, message):
    with pytest.raises(DataError) as error:
        RecordedRolloutMapper(columns=["x"], **fields).apply(
            pa.table({"prompt_id": ["p"], "x": cells})
        )
    assert str(error.value) == message


def test_a_kept_field_of_two_types_stops_the_run():
    rows = pa.table(
        {"prompt_id": ["p"], "x": CELL, "y": [{"text": "b", "n": "one"}]},
    )
    operator = RecordedRolloutMapper(columns=["x", "y"], text="text", keep_fields={"n": "n"})
    with pytest.raises(DataError, match=r"^columns x, y differ in type: .*leave the field out"):
        operator.apply(rows)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"columns": ["x", "x"]}, "columns names a column twice"),
        (
            {"columns": ["x"], "keep_fields": {"n": "n"}},
            "keep_fields needs text, the field that contains the response",
        ),
        (
            {"columns": ["x"], "text": "t", "keep_fields": {"n": "response"}},
            "keep_fields or parallel writes 'response' a second time",
        ),
        (
            {"columns": ["x"], "text": "t", "keep_fields": {"n": "k", "m": "k"}},
            "keep_fields or parallel writes 'k' a second time",
        ),
        (
            {"columns": ["x"], "text": "t", "keep_fields": {"m": "policy"}, "policy": "m"},
            "policy is given by keep_fields or parallel already",
        ),
        ({}, "field 'columns' is missing; it has no default"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(RecordedRolloutMapper, fields)
    assert str(error.value) == message


@settings(max_examples=30)
@given(st.lists(st.none() | st.lists(st.none() | st.sampled_from("ab"), max_size=3), max_size=5))
def test_every_recorded_response_becomes_one_row_in_order(samples):
    rows = pa.table(
        {
            "prompt_id": pa.array([str(i) for i in range(len(samples))], pa.string()),
            "samples": pa.array(samples, pa.list_(pa.string())),
        }
    )
    change = check_operator(RecordedRolloutMapper(columns=["samples"]), rows)
    columns = written(change)
    assert columns["response"] == [item for items in samples for item in items or []]
    assert len(set(columns["response_id"])) == len(columns["response"])
    assert [reason is None for reason in change.reasons.to_pylist()] == [bool(x) for x in samples]


def test_a_recorded_score_is_a_reward_component_missing_with_a_reason():
    cell = pa.struct([("text", pa.string()), ("score", pa.float64())])
    rows = pa.table(
        {
            "prompt_id": ["p"],
            "samples": pa.array([[{"text": "a", "score": 0.5}, {"text": "b", "score": None}]], pa.list_(cell)),
        }
    )  # fmt: skip
    operator = RecordedRolloutMapper(
        columns=["samples"], text="text", keep_fields={"score": "reward_judge"}
    )
    columns = written(check_operator(operator, rows))
    assert columns["reward_judge"] == [0.5, None]
    assert columns["reward_judge_missing"] == [None, "no_value"]


def responses(samples, **fields):
    rows = pa.table({"prompt_id": [f"p{row}" for row in range(len(samples))], "samples": samples})
    operator = RecordedRolloutMapper(columns=["samples"], **fields)
    change = check_operator(operator, rows)
    return change.columns["response"].to_pylist(), change.parents.tolist()


def chat(*messages):
    return [dict(zip(("role", "content"), message, strict=True)) for message in messages]


def test_of_a_chat_the_final_message_is_the_response():
    one = chat(("user", "2 + 2?"), ("assistant", "4"))
    several = chat(("assistant", "Let me see."), ("tool", "4"), ("assistant", "It is 4."))
    without = chat(("user", "2 + 2?"))
    assert responses([one, several, without]) == (["4", "It is 4.", None], [0, 1, 2])
    assert responses([one, several, without], text="content")[0] == ["4", "It is 4.", None]
    assert responses([[one, several], [without]]) == (["4", "It is 4.", None], [0, 0, 1])
    shared = [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]
    assert responses([shared], text="value") == (["4"], [0])
    assert responses([json.dumps(one), "5", json.dumps(without)])[0] == ["4", "5", None]
    assert responses([[json.dumps(one)]])[0] == ["4"]
    assert responses([str(one)])[0] == ["4"]
    numbers = ('[{"from": "A", "value": 12}]', '[{"role": "user", "content": [5]}]')
    for other in (json.dumps(several), '[{"role": 1}]', '["a", "b"]', "[1, 2]", *numbers):
        assert responses([other])[0] == [other], "a response may be JSON"


def test_a_call_of_a_tool_is_no_response():
    call = {"role": "assistant", "content": "", "tool_calls": [{"name": "add"}]}
    answer = {"role": "assistant", "content": "4", "tool_calls": []}
    user = {"role": "user", "content": "2 + 2?", "tool_calls": None}
    assert responses([[user, call], [user, answer]])[0] == [None, "4"]
    each = [chat(("assistant", "a"), ("assistant", "b"))]
    assert responses(each, text="content") == (["a", "b"], [0, 0])
    with pytest.raises(DataError, match=r"one response or several; set text: content"):
        responses(each)


def test_content_parts_and_lists_in_lists_are_read():
    parts = [{"type": "text", "text": "It is"}, {"type": "text", "text": "4."}]
    assert responses([[{"role": "assistant", "content": parts}]]) == (["It is\n4."], [0])
    assert responses([[["a", "b"]], [["c"], None, []]]) == (["a", "b", "c"], [0, 0, 1])
    choices = [[{"index": 0, "message": {"role": "assistant", "content": "4"}}], None]
    rows = pa.table({"prompt_id": ["p", "q"], "response": [{"choices": each} for each in choices]})
    operator = RecordedRolloutMapper(columns=["response.choices"], text="message.content")
    change = check_operator(operator, rows)
    assert written(change)["response"] == ["4"]
    assert change.reasons.to_pylist() == [None, "no_responses"]


def test_lists_beside_the_responses_go_with_them():
    rows = pa.table(
        {
            "prompt_id": ["p", "q", "r"],
            "samples": [["a", "b"], ["c"], None],
            "ends": [["stop", "length"], None, []],
            "right": [[True, None], [False], None],
        }
    )
    parallel = {"ends": "finish_reason", "right": "reward_given"}
    operator = RecordedRolloutMapper(columns=["samples"], parallel=parallel)
    change = check_operator(operator, rows)
    columns = written(change)
    assert columns["finish_reason"] == ["stop", "length", None]
    assert columns["reward_given"] == [True, None, False]
    assert columns["reward_given_missing"] == [None, "no_value", None]
    assert change.without == ("samples", "ends", "right")
    torn = rows.set_column(2, "ends", pa.array([["stop"], None, []]))
    with pytest.raises(DataError) as raised:
        operator.apply(torn)
    assert str(raised.value) == (
        "column 'ends' has 1 items for 2 responses in column 'samples': ['stop']; "
        "give one for each response, or null"
    )


def test_a_rating_list_of_another_length_is_missing_in_all_of_the_row():
    rows = pa.table(
        {
            "prompt_id": ["p", "q", "r"],
            "samples": [["a", "b", "c"], ["d", "e"], ["f"]],
            "ratings": [["4", "2"], ["4.5", "N/A"], None],
        }
    )
    operator = RecordedRolloutMapper(columns=["samples"], parallel={"ratings": "reward_judge"})
    columns = written(check_operator(operator, rows))
    assert columns["reward_judge"] == [None, None, None, 4.5, None, None]
    reasons = ["uneven_lists"] * 3 + [None, "no_value", "no_value"]
    assert columns["reward_judge_missing"] == reasons


def test_ultrafeedback_has_ratings_as_texts_within_the_responses():
    def completion(text, rating, score):
        rated = {"Rating": rating, "Rationale": "..."}
        return {
            "annotations": {"helpfulness": {**rated, "Type": ["1"]}, "honesty": rated},
            "fine-grained_score": score,
            "model": "alpaca-7b",
            "overall_score": 7.5,
            "response": text,
        }

    cells = [[completion("a", "4", 4.25), completion("b", "N/A", 3.0)]]
    rows = pa.table({"prompt_id": ["p"], "completions": cells})
    fields = {
        "model": "policy",
        "annotations.helpfulness.Rating": "reward_helpful",
        "fine-grained_score": "reward_fine",
    }
    operator = RecordedRolloutMapper(columns=["completions"], text="response", keep_fields=fields)
    columns = written(check_operator(operator, rows))
    assert columns["response"] == ["a", "b"]
    assert columns["reward_helpful"] == [4.0, None]
    assert columns["reward_helpful_missing"] == [None, "no_value"]
    assert columns["reward_fine"] == [4.25, 3.0]
    rated = pa.table({"prompt_id": ["p"], "completions": [[completion("a", "good", 1.0)]]})
    with pytest.raises(DataError, match=r"'reward_helpful' is string, not numeric .*'good'"):
        operator.apply(rated)


ASKED = "Name a colour.\n"
PROGRAM = "def add(a, b):\n    # the sum\n"


def echoes(prompt, responses, **columns):
    """The responses to a prompt after the step, and its notes."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]
    n = len(responses)
    rows = pa.table(
        {"prompt_id": ["p"] * n, "prompt": [messages] * n, "response": responses, **columns}
    )
    change = check_operator(RecordedRolloutMapper(columns=["response"]), rows)
    return written(change)["response"], change.notes


INST = "[INST] " + ASKED + "[/INST] "
JOKE = "Tell me a joke now."


@pytest.mark.parametrize(
    ("prompt", "responses", "left", "count"),
    [
        (ASKED, [ASKED + "Red.", ASKED + "Blue.", None], ["Red.", "Blue.", None], 2),
        (ASKED, [ASKED + "Red.", ASKED], ["Red.", ASKED], 1),  # nothing is cut to nothing
        (ASKED, [ASKED], [ASKED], 0),
        ("早上好，请告诉我今天的天气怎么样以及明天的？", ["早上好，请告诉我今天的天气怎么样以及明天的？雨"], ["雨"], 1),
        ("Name a colour", ["Name a colour Red."], ["Name a colour Red."], 0),
        ("int add(int a, int b)", ["int add(int a, int b) {...}"], ["int add(int a, int b) {...}"], 0),
        ("The cat sat on the", ["The cat sat on the mat."], ["The cat sat on the mat."], 0),  # a sentence goes on
        ("Name the capital of France", [f"Name the capital of France{x}" for x in ("? Paris.", "\nx")],
         ["Name the capital of France? Paris.", "Name the capital of France\nx"], 0),
        ("Is it true that cat", ["Is it true that catfish bark"], ["Is it true that catfish bark"], 0),
        ("Answer the question:\n2 + 2?\nAnswer:", ["Answer the question:\n2 + 2?\nAnswer: 4"], ["4"], 1),
        ("Answer it, please.\nAnswer: ", ["Answer it, please.\nAnswer:1", "Answer it, please.\nAnswer: 2"], ["1", "2"], 2),
        (ASKED, [f" {ASKED}Red.", f"\nBe brief.\n{ASKED}Blue."], ["Red.", "Blue."], 2),
        # Without special tokens, as servers decode them: Qwen, Llama 3, Gemma; or in templates of texts.
        ("Hi", ["user\nHi\nassistant\nRed.", "system\nYou are Qwen.\nuser\nHi\nassistant\nRed."], ["Red."] * 2, 2),
        (JOKE, [f"system\n\nCutting Knowledge Date: x\n\nuser\n\n{JOKE}assistant\n\nRed."], ["Red."], 1),
        (JOKE, [f"user\n{JOKE}\nmodel\nRed."], ["Red."], 1),
        (PROGRAM, [f"user\n{PROGRAM}assistant\nRed."], ["Red."], 1),
        (ASKED, [f"{INST}Red. </s>", f"<s>[INST] <<SYS>>\ns\n<</SYS>>\n\n{ASKED} [/INST] Blue."], ["Red.", "Blue."], 2),
        (ASKED, [f"Below is an instruction.\n\n### Instruction:\n{ASKED}\n### Response:\nRed."], ["Red."], 1),
        (ASKED, [f"You asked: {ASKED}Red."], [f"You asked: {ASKED}Red."], 0),
        (ASKED, [f"Red.\nuser\n{ASKED}assistant\nBlue."], [f"Red.\nuser\n{ASKED}assistant\nBlue."], 0),
        (ASKED, [ASKED + "Red.", "Blue."], [ASKED + "Red.", "Blue."], 0),  # one restates it
        (ASKED, ["name a colour.\nRed."], ["name a colour.\nRed."], 0),
        ("Hi", ["Hi there", "Hi!"], ["Hi there", "Hi!"], 0),
        ("Good morning!", ["Good morning! How are you?"], ["Good morning! How are you?"], 0),
        *((code, [code + "x = 1"], [code + "x = 1"], 0) for code in (
            PROGRAM,
            "async def add(a, b, c):\n",
            "@cache\nasync def f(x, y):\n",
            "theorem two_is_two : 2 = 2 := by\n",
            "theorem two_is_two : 2 = 2 :=\n",
            "int main(int argc, char **argv) {\n",
            "#include <vector> and more\n",
            "const answer = 'a text';\n",
            "SELECT name FROM users WHERE ",
            "for each in all of them:\n",
            "Complete this program.\n```\nf x = ",
        )),
    ],
)  # fmt: skip
def test_a_prompt_that_all_its_responses_begin_with_is_cut(prompt, responses, left, count):
    found, notes = echoes(prompt, responses)
    assert found == left
    assert notes.get("prompt_cut", 0) == count


def test_earlier_messages_may_be_before_the_last_one():
    turns = [("user", JOKE), ("assistant", "No."), ("user", "Please tell me one.")]
    text = f"{JOKE}\nNo.\nPlease tell me one.\nKnock"
    rows = pa.table({"prompt_id": ["p"], "prompt": [chat(*turns)], "response": [text]})
    change = check_operator(RecordedRolloutMapper(columns=["response"]), rows)
    assert written(change)["response"] == ["Knock"]


@pytest.mark.parametrize(("prompt", "responses", "alone"), [
    (ASKED, [ASKED, "Red."], 1),
    ("Hi", ["Hi ", "Hi there"], 1),
    ("SYSTEM: Be kind.\n\nUSER: Convert?\n\nASSISTANT: Yes.", ["USER: Convert?\n\nASSISTANT: Yes."], 1),
    ("Is it red or blue", ["blue"], 0),
    (PROGRAM, [PROGRAM + "x = 1"], 0),
    (ASKED, ["", None], 0),
])  # fmt: skip
def test_responses_that_are_their_prompt_are_counted(prompt, responses, alone):
    found, notes = echoes(prompt, responses)
    assert (found, notes) == (responses, {"prompt_alone": alone} if alone else {})


def dialogue(*turns):
    return "".join(
        f"\n\n{by}: {text}" for by, text in zip(("Human", "Assistant") * 2, turns, strict=False)
    )


@pytest.mark.parametrize("form", [
    dialogue,
    lambda *turns: chat(*zip(("user", "assistant") * 2, turns, strict=False)),
    lambda *turns: json.dumps(chat(*zip(("user", "assistant") * 2, turns, strict=False))),
])  # fmt: skip
def test_a_row_whose_columns_answer_two_prompts_is_dropped(form):
    asked = [chat(("user", "a?"), ("assistant", "b"), ("user", "c?"))] * 3
    chosen = [form("a?", "b", "c?", "d")] * 3
    rejected = [form("a?", "b", "c?", "e"), form("a?", "x", "c?", "e"), form("a?", "e")]
    columns = {"prompt_id": ["p", "q", "r"], "chosen": chosen, "rejected": rejected}
    operator = RecordedRolloutMapper(columns=["chosen", "rejected"])
    change = check_operator(operator, pa.table({**columns, "prompt": asked}))
    assert change.reasons.to_pylist() == [None, "other_prompt", "other_prompt"]
    assert written(change)["response"] == ["d", "e"]
    # Of another prompt than either, as a template may have made it.
    change = check_operator(operator, pa.table({**columns, "prompt": [chat(("user", "z?"))] * 3}))
    assert change.reasons.null_count == 3


def test_a_response_with_token_ids_keeps_its_prompt():
    cells = [[{"text": ASKED + "Red.", "ids": [1, 2]}]]
    prompt = [[{"role": "user", "content": ASKED}]]
    rows = pa.table({"prompt_id": ["p"], "prompt": prompt, "samples": cells})
    fields = {"text": "text", "keep_fields": {"ids": "response_token_ids"}}
    change = check_operator(RecordedRolloutMapper(columns=["samples"], **fields), rows)
    assert written(change)["response"] == [ASKED + "Red."]
    for name, value in (("response_token_ids", [1, 2]), ("response_logprobs", [-0.1, -0.2])):
        assert echoes(ASKED, [ASKED + "Red."], **{name: [value]})[0] == [ASKED + "Red."]
    for prompts in (pa.nulls(1), pa.array([ASKED])):  # They are the user's own.
        rows = pa.table({"prompt_id": ["p"], "prompt": prompts, "response": [ASKED + "Red."]})
        change = check_operator(RecordedRolloutMapper(columns=["response"]), rows)
        assert written(change)["response"] == [ASKED + "Red."]


def test_messages_that_repeat_the_dialogue_give_their_last_one():
    asked = chat(("user", ASKED))
    both = {each: [[*asked, *chat(("assistant", each))]] for each in ("chosen", "rejected")}
    rows = pa.table({"prompt_id": ["p"], "prompt": [asked], **both})
    change = check_operator(RecordedRolloutMapper(columns=["chosen", "rejected"]), rows)
    assert written(change)["response"] == ["chosen", "rejected"]


LISTS = [["4", "it's 5"], [], ["a\nb", None]]


@pytest.mark.parametrize("cells", [
    [*map(str, LISTS), "", None],
    [*map(json.dumps, LISTS), None],
    [str([each]) for each in LISTS],
    [str(tuple(each)) for each in LISTS],
    ["['4'\n \"it's 5\"]", "['a\\nb']", "[None]"],
    ["[['4' \"it's 5\"]\n ['a\\nb', None]]"],
])  # fmt: skip
def test_texts_of_lists_are_lists_or_responses(cells):
    rows = pa.table({"prompt_id": [f"p{at}" for at in range(len(cells))], "out": cells})
    change = check_operator(RecordedRolloutMapper(columns=["out"], lists_as_text=True), rows)
    assert written(change)["response"] == ["4", "it's 5", "a\nb", None]
    change = check_operator(RecordedRolloutMapper(columns=["out"], lists_as_text=False), rows)
    assert written(change)["response"] == cells


@pytest.mark.parametrize("out", [["a", "b"], "['a', 'b']"])
@pytest.mark.parametrize(
    ("ratings", "rewards"),
    [
        ("[1, 2]", [1, 2]),
        ("[0.5, None]", [0.5, None]),
        ('["4", "N/A"]', [4, None]),
        ("", [None] * 2),
    ],
)
def test_parallel_lists_may_be_texts(out, ratings, rewards):
    rows = pa.table({"prompt_id": ["p"], "out": [out], "ratings": [ratings]})
    fields = {"columns": ["out"], "parallel": {"ratings": "reward_judge"}}
    change = check_operator(RecordedRolloutMapper(**fields, lists_as_text=True), rows)
    assert written(change)["reward_judge"] == rewards
    listed = rows.set_column(1, "out", pa.array([["a", "b"]]))
    with pytest.raises(DataError, match=r"'ratings' is string, .*; set lists_as_text: true"):
        RecordedRolloutMapper(**fields).apply(listed)


def lines_about(cells, **fields):
    operator = RecordedRolloutMapper(columns=["out"], **fields)
    return list(operator.lines_about(pa.table({"out": cells})))


LIKELIHOODS = [
    [[["-3.2", "False"]], [["-0.4", "True"]]],
    [["-3.2", "False"], ["-inf", "True"]],
    "[(-3.2, False), (-0.4, True)]",
    "[[-3.2, false]]",
    ["(-1e-05, True)"],
]


@pytest.mark.parametrize("cells", [
    ["['4']", None, "[]", '["it\'s 4"]'], ['["a", "b"]'], ["('a', 'b')"], ["[['a'], ['b']]"], ["['a', 'b']", "4"],
])  # fmt: skip
def test_a_column_of_lists_as_text_has_a_line(cells):
    (line,) = lines_about(cells)
    assert "'out' has lists as text in" in line
    assert "set lists_as_text: true" in line
    assert not lines_about(cells, lists_as_text=True) + lines_about(cells, lists_as_text=False)


@pytest.mark.parametrize("cells", [[str(LISTS[0])], ["['a' 'b']", "['c']", None]])
def test_nothing_but_lists_as_python_writes_them_is_refused(cells):
    with pytest.raises(
        DataError, match=r"'out' has lists as text .*lists_as_text: true .*or false"
    ):
        lines_about(cells)
    assert not lines_about(cells, lists_as_text=True) + lines_about(cells, lists_as_text=False)


@pytest.mark.parametrize(
    "cells", [["[1, 2]"], ["(a, b)"], ["['a', 1]"], ["['a']", "b", "c"], ['[{"role": "user"}]']]
)
def test_other_texts_have_no_line(cells):
    assert not lines_about(cells)


@pytest.mark.parametrize("cells", [
    ["['a']", "b"], ["['a']"], ['["a", "b"]', '["c"]'], ["[1, 2]", "[3]"], ["['a','b']"], ["[]"], ["['a'", ""],
    ["(-1.0, True)"], ["(-1.0, True)", "b"], LIKELIHOODS[2:4],
])  # fmt: skip
def test_texts_are_responses_whatever_they_look_like(cells):
    rows = pa.table({"prompt_id": [f"p{at}" for at in range(len(cells))], "out": cells})
    change = check_operator(RecordedRolloutMapper(columns=["out"]), rows)
    assert written(change)["response"] == cells


def test_a_text_that_is_no_list_is_a_response():
    rows = pa.table({"prompt_id": ["p", "q", "r", "s"], "out": ["['a', '1']", "b", None, "[]"]})
    change = check_operator(RecordedRolloutMapper(columns=["out"], lists_as_text=True), rows)
    assert written(change)["response"] == ["a", "1", "b"]
    mixed = pa.table({"prompt_id": ["p"] * 2, "out": ["['a', ['b']]", "['c']"]})
    with pytest.raises(DataError, match="'out' have items of several types"):
        RecordedRolloutMapper(columns=["out"], lists_as_text=True).apply(mixed)


@pytest.mark.parametrize("cell", LIKELIHOODS)
def test_nothing_but_log_likelihoods_is_refused_at_the_beginning(cell):
    with pytest.raises(DataError, match=r"^column 'out' has log-likelihoods .*; name a column"):
        lines_about([cell, None])
    assert "log-likelihoods" in lines_about(["(-1.0, True)", "a response"])[0]


@pytest.mark.parametrize(("text", "found"), [
    ("['4' '6'\n '8']", ["4", "6", "8"]),
    ("[ 1.   -2.5 3e-05]", [1, -2.5, 3e-05]),
    ("[[1 2]\n [3 4]]", [[1, 2], [3, 4]]),
    ("[\"a' 'b\", 'c\\' 1 2']", ["a' 'b", "c' 1 2"]),
    ('["1 2", "] [", 3]', ["1 2", "] [", 3]),
    ("(1, 'a')", [1, "a"]),
    ("4 6", None),
    ("[1 - 2]", None),
])  # fmt: skip
def test_lists_that_numpy_writes_have_no_commas(text, found):
    assert list_in(text) == found


def test_pairs_of_other_texts_are_responses():
    assert responses([[["-3.2", "so"], ["it is", "True"]]]) == (["-3.2", "so", "it is", "True"], [0] * 4)  # fmt: skip
    assert responses(["-3.2", "True"]) == (["-3.2", "True"], [0, 1])
