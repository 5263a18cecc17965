import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.chats import fill
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, content_ids
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.registry import build


def table(questions, answers=None):
    answers = ["1"] * len(questions) if answers is None else answers
    return pa.table({"question": questions, "answer": answers})


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def prompts(change):
    return change.columns["prompt"].to_pylist()


def test_a_question_becomes_one_user_message():
    change = check_operator(PromptTemplateMapper(), table(["1 + 1?", "2 + 2?"], ["2", " 4\n"]))
    assert prompts(change) == [[user("1 + 1?")], [user("2 + 2?")]]
    assert change.columns["prompt"].type == MESSAGES
    assert change.columns["reference"].to_pylist() == ["2", "4"]
    assert change.reasons.null_count == 2


def test_the_id_is_the_hash_of_roles_contents_and_reference():
    change = PromptTemplateMapper(system="s").apply(table(["q"], ["2"]))
    assert change.columns["prompt_id"] == content_ids([("system", "s", "user", "q", "2")])


def test_rows_of_one_question_share_an_id_and_other_references_do_not():
    ids = (
        PromptTemplateMapper().apply(table(["q", "q", "q"], ["2", "2 ", "3"])).columns["prompt_id"]
    )
    first, second, third = ids.to_pylist()
    assert first == second != third


def test_only_the_question_is_filled_in():
    operator = PromptTemplateMapper(template="{question}\nEnd with \\boxed{}, not {answer} or {0}.")
    change = check_operator(operator, table(["Is {x} in {question}?"]))
    assert prompts(change) == [
        [user("Is {x} in {question}?\nEnd with \\boxed{}, not {answer} or {0}.")]
    ]


def test_the_system_message_goes_first():
    change = check_operator(PromptTemplateMapper(system="Be brief."), table(["a", "b"]))
    assert prompts(change) == [
        [system("Be brief."), user("a")],
        [system("Be brief."), user("b")],
    ]


def test_chat_messages_are_taken_as_they_are():
    chat = [
        [user("hi"), {"role": "assistant", "content": "yes?"}, user("1 + 1?")],
        [system("mine"), user("b")],
    ]
    rows = table(pa.array(chat, MESSAGES))
    assert prompts(check_operator(PromptTemplateMapper(), rows)) == chat
    with_system = check_operator(PromptTemplateMapper(system="Be brief."), rows)
    assert prompts(with_system) == [[system("Be brief."), *chat[0]], chat[1]]


def test_chat_messages_may_have_their_fields_in_any_order():
    kind = pa.list_(pa.struct([("content", pa.large_string()), ("role", pa.string())]))
    change = PromptTemplateMapper().apply(table(pa.array([[user("a")]], kind)))
    assert prompts(change) == [[user("a")]]
    assert change.columns["prompt"].type == MESSAGES


@pytest.mark.parametrize(
    ("pattern", "reference"),
    [
        ("#### (.*)", "1,234"),
        ("####.*", "####  1,234"),
        ("[0-9,]+", "1,234"),
        ("(?:A|####): ?(x)?", None),
    ],
)
def test_the_last_match_gives_the_reference(pattern, reference):
    operator = PromptTemplateMapper(reference_pattern=pattern, on_bad_row="drop_row")
    change = operator.apply(table(["q"], ["#### 7 is wrong, A: so\n####  1,234 "]))
    assert change.columns["reference"].to_pylist() == [reference]


def test_numbers_are_references_too():
    change = check_operator(PromptTemplateMapper(), table(["a", "b"], [73, 204]))
    assert change.columns["reference"].to_pylist() == ["73", "204"]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_numbers_that_are_not_finite_are_no_reference(kind):
    numbers = pa.array(np.array([1.5, np.nan, np.inf, -np.inf]), pa.float64()).cast(kind)
    rows = table(["a", "b", "c", "d"], numbers)
    change = check_operator(PromptTemplateMapper(on_bad_row="drop_row"), rows)
    assert change.reasons.to_pylist() == [None, *["no_reference"] * 3]
    assert change.columns["reference"].to_pylist() == ["1.5", None, None, None]


def test_bad_rows_are_dropped_with_a_reason():
    rows = table(
        ["a", None, "  ", "d", "e", "f"], ["#### 1", "#### 2", "#### 3", "no mark", None, "####  "]
    )
    operator = PromptTemplateMapper(reference_pattern="#### (.*)", on_bad_row="drop_row")
    change = check_operator(operator, rows)
    assert change.reasons.to_pylist() == [
        None,
        "no_question",
        "no_question",
        "no_reference",
        "no_reference",
        "no_reference",
    ]


def test_messages_that_are_empty_are_no_question():
    rows = table(pa.array([[user("a")], [], None], MESSAGES))
    change = check_operator(PromptTemplateMapper(on_bad_row="drop_row", system="s"), rows)
    assert change.reasons.to_pylist() == [None, "no_question", "no_question"]
    assert prompts(change)[1:] == [None, None]


def test_a_row_without_a_reference_stops_the_run():
    rows = table(["What is\n1 + 1?"], ["It is 2."])
    with pytest.raises(DataError) as error:
        PromptTemplateMapper(reference_pattern="#### (.*)").apply(rows)
    assert str(error.value) == (
        "no reference in column 'answer': 'It is 2.', '#### (.*)' not found"
        r" (its question: 'What is\n1 + 1?');"
        " fix the row, or set on_bad_row: drop_row to leave such rows out"
    )


def test_a_row_without_a_question_stops_the_run():
    with pytest.raises(DataError) as error:
        PromptTemplateMapper().apply(table(["a", None], ["1", "It is 2."]))
    assert str(error.value) == (
        "a row has no text in column 'question' (its answer: 'It is 2.');"
        " fix the row, or set on_bad_row: drop_row to leave such rows out"
    )


def test_prompts_may_have_no_reference():
    change = check_operator(PromptTemplateMapper(reference=None), table(["a", "b"]))
    assert change.columns["reference"].to_pylist() == [None, None]
    assert change.columns["prompt_id"] == content_ids([("user", "a", None), ("user", "b", None)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"reference_pattern": "#### (.*"},
            "field 'reference_pattern' is '#### (.*'; not a regular expression: missing ), "
            "unterminated subpattern at position 5",
        ),
        ({"template": "Solve {qestion}."}, "it must contain {question}"),
        *(
            ({"question": rf"{{question}}\n{next_line}"}, "put it in double quotes")
            for next_line in ("Answer:", "answer:", "{hint}", "nu", "I", "")
        ),
        (
            {"reference_pattern": "\boxed{(.*)}"},
            "it has a control character, as YAML reads \\b in double quotes; put the pattern in single quotes",
        ),
        (
            {"reference": None, "reference_pattern": "x"},
            "reference_pattern needs a reference column",
        ),
        ({"on_bad_row": "skip"}, "'fail' or 'drop_row'"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(PromptTemplateMapper, fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "rows", "message"),
    [
        (
            {},
            table([1, 2]),
            "column 'question' is int64; "
            "set `question` to a column of strings or of chat messages (role, content)",
        ),
        (
            {},
            table(["a"], [[["1"]]]),
            "column 'answer' is list<item: string>; "
            "set `reference` to a column of strings, numbers or lists of them",
        ),
        (
            {"template": "Q: {question}"},
            table(pa.array([[user("a")]], MESSAGES)),
            "column 'question' contains chat messages; leave out `template`",
        ),
    ],
)
def test_columns_of_the_wrong_type_stop_the_run(fields, rows, message):
    with pytest.raises(DataError) as error:
        PromptTemplateMapper(**fields).apply(rows)
    assert str(error.value) == message


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=8))
def test_equal_prompts_and_only_they_have_equal_ids(rows):
    questions, answers = ([row[i] for row in rows] for i in (0, 1))
    operator = PromptTemplateMapper(on_bad_row="drop_row", system="s", template="{question}?")
    columns = pa.table(
        {"question": pa.array(questions, pa.string()), "answer": pa.array(answers, pa.string())}
    )
    change = operator.apply(columns)
    seen = list(
        zip(map(str, prompts(change)), change.columns["reference"].to_pylist(), strict=True)
    )
    ids = change.columns["prompt_id"].to_pylist()
    assert len(set(zip(seen, ids, strict=True))) == len(set(seen)) == len(set(ids))


def test_fill_puts_values_in_at_once():
    values = {"{a}": pa.array(["{b}", None]), "{b}": pa.array(["x", "y"])}
    assert fill("{b}{a}{b} {c}", values).to_pylist() == ["x{b}x {c}", None]


def test_fields_of_structs_are_named_with_dots_as_verl_keeps_them():
    rows = pa.table(
        {
            "prompt": pa.array([[user("1 + 1?")]], MESSAGES),
            "reward_model": [{"style": "rule", "ground_truth": "2"}],
        }
    )
    operator = PromptTemplateMapper(question="prompt", reference="reward_model.ground_truth")
    change = check_operator(operator, rows)
    assert operator.reads() == ("prompt", "reward_model")
    assert change.columns["reference"].to_pylist() == ["2"]
    with pytest.raises(
        DataError, match=r"^there is no 'reward_model.truth': column 'reward_model' is"
    ):
        PromptTemplateMapper(question="prompt", reference="reward_model.truth").apply(rows)


def template(column, **fields):
    """The prompts of a column of questions, as pairs of role and content."""
    rows = pa.table({"question": column, "answer": ["1"] * len(column)})
    found = PromptTemplateMapper(**fields).apply(rows).columns["prompt"].to_pylist()
    return [[(m["role"], m["content"]) for m in chat or ()] for chat in found]


CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "2 + 2?"}]
READ = [("system", "s"), ("user", "2 + 2?")]


@pytest.mark.parametrize(
    "column",
    [
        [CHAT],
        [[{**m, "content": [{"type": "text", "text": m["content"]}]} for m in CHAT]],
        [[{"from": m["role"].replace("user", "human"), "value": m["content"]} for m in CHAT]],
        [json.dumps(CHAT)],
        [[json.dumps(message) for message in CHAT]],
        [json.dumps([CHAT[0], {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}])],
        [[*CHAT, {"role": "assistant", "content": "4"}]],
        [[{**message, "name": None, "tool_calls": []} for message in CHAT]],
        pa.array([CHAT]).cast(pa.large_list(pa.struct([("role", pa.string()), ("content", pa.large_string())]))),
    ],
    ids=["plain", "parts", "sharegpt", "json", "json_by_message", "json_mixed", "response", "empty", "large"],
)  # fmt: skip
def test_a_chat_is_read_however_it_is_written(column):
    assert template(column) == [READ]


def test_what_a_policy_would_not_see_is_refused():
    call = [*CHAT, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]
    image = [{"role": "user", "content": [{"type": "image", "text": None, "image": "a.png"}]}]
    asked = [{"role": "user", "content": [*image[0]["content"], {"type": "text", "text": "x?"}]}]
    for chats, name in (([call], "tool_calls"), ([image], "image"), ([asked], "image")):
        with pytest.raises(DataError) as raised:
            template(chats)
        found = str(raised.value)
        assert found.startswith(f"messages in column 'question' have a field '{name}', which the")
        assert found.endswith("leave such rows out, or set other_fields: leave_out")
    assert template([call], other_fields="leave_out") == [READ]
    assert template([asked], other_fields="leave_out") == [[("user", "x?")]]
    bare = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "x?"}]}]
    with pytest.raises(DataError, match="have a field 'image', which the policy would not see"):
        template([bare])
    with pytest.raises(DataError, match="a chat in column 'question' ends with the assistant's"):
        template([[*CHAT, {"role": "assistant", "content": "Well,"}]], final_message="fail")
    with pytest.raises(DataError, match="but not this one: 'x'"):
        template([json.dumps(CHAT), "x"])


@pytest.mark.parametrize(
    "chat",
    [
        [{"role": "user", "content": None}],
        [{"role": "user", "content": " "}],
        [{"role": "system", "content": "Be brief."}],
    ],
)
def test_a_chat_in_which_nobody_asks_is_no_question(chat):
    with pytest.raises(DataError, match="a row has no text in column 'question'"):
        template([chat])


def test_half_a_character_in_a_chat_as_json_is_a_question_mark():
    assert template([r'[{"role": "user", "content": "x\ud83d"}]']) == [[("user", "x?")]]


def test_roles_are_read_however_they_are_written():
    chat = [{"role": "System", "content": "s"}, {"role": "human", "content": "x?"}]
    assert template([chat]) == [[("system", "s"), ("user", "x?")]]
    for nobody in ({"role": None, "content": "x?"}, {"role": None, "content": "x?", "from": 5}):
        with pytest.raises(DataError, match="a message in column 'question' has no role"):
            template([chat, [nobody]], other_fields="leave_out")


def test_messages_of_two_forms_are_read_each_by_its_own():
    one = {"role": "user", "content": "x?", "from": None, "value": None}
    other = {"role": None, "content": None, "from": "human", "value": "y?"}
    assert template([[one], [other]]) == [[("user", "x?")], [("user", "y?")]]
    both = {"role": "user", "content": "x?", "from": "human", "value": "y?"}
    with pytest.raises(DataError, match="have a field 'from', which the policy would not see"):
        template([[both]])


def test_columns_of_the_identity_distinguish_prompts():
    rows = pa.table(
        {"question": ["x?"] * 3, "answer": ["1"] * 3, "image": ["a", "b", "a"], "more": [[1], [1], [1]]}
    )  # fmt: skip
    ids = PromptTemplateMapper().apply(rows).columns["prompt_id"].to_pylist()
    assert len(set(ids)) == 1
    ids = PromptTemplateMapper(identity=["image", "more"]).apply(rows).columns["prompt_id"]
    one, other, again = ids.to_pylist()
    assert one == again != other


@pytest.mark.parametrize(
    ("answers", "fields", "found"),
    [
        ([["12", "twelve"], ["3"]], {}, ['["12", "twelve"]', "3"]),
        (['["12", "twelve"]', '["\\\\frac12"]', "[1, 2]"], {}, ['["12", "twelve"]', "\\frac12", "[1, 2]"]),
        ([[12, 13], [4, 4]], {}, ['["12", "13"]', "4"]),
        ([r"So $\boxed{\frac{1}{2}}$ for {x}.", r"\boxed{1}, no: \boxed{2}"], {}, [r"\frac{1}{2}", "2"]),
        (["4", r"\boxed{5}", '["a", "a"]'], {"reference_form": "text"}, ["4", r"\boxed{5}", '["a", "a"]']),
        ([r"\boxed 5"], {}, [r"\boxed 5"]),
        (["4", r"\boxed{5}", r"\boxed{\frac{1}"], {"reference_form": "boxed", "on_bad_row": "drop_row"}, [None, "5", None]),
    ],
)  # fmt: skip
def test_references_of_several_answers_and_in_boxes(answers, fields, found):
    rows = pa.table({"question": [f"q{n}" for n in range(len(answers))], "answer": answers})
    change = check_operator(PromptTemplateMapper(**fields), rows)
    assert change.columns["reference"].to_pylist() == found


# --- Questions of several columns -----------------------------------------------------


def texts_of(question, rows, **fields):
    """The texts of the prompts."""
    operator = PromptTemplateMapper(question=question, **{"reference": None, **fields})
    return [chat and chat[-1]["content"] for chat in prompts(check_operator(operator, rows))]


ALPACA = pa.table(
    {
        "instruction": ["Add the numbers.", "Add the numbers.", "Say {hello}.", "Say {hello}."],
        "input": ["2 and 3", "4 and 4", "", None],
    }
)


def test_a_text_over_columns():
    texts = texts_of("{instruction}\n{input}", ALPACA)
    assert texts == [
        "Add the numbers.\n2 and 3",
        "Add the numbers.\n4 and 4",
        "Say {hello}.",
        "Say {hello}.",
    ]
    operator = PromptTemplateMapper(question="{instruction}\n{input}", reference=None)
    first, second, *same = operator.apply(ALPACA).columns["prompt_id"].to_pylist()
    assert len({first, second, *same}) == 3
    assert operator.paths() == operator.questions() == ("instruction", "input")
    # The same text in one column makes the same prompt.
    one = pa.table({"question": texts})
    ids = PromptTemplateMapper(reference=None).apply(one).columns["prompt_id"]
    assert ids.to_pylist() == [first, second, *same]


def test_what_a_text_over_columns_may_have():
    rows = pa.table(
        {
            "doc": [{"q": "x?", "level": 3}],
            "Support Text": ["so"],
            "n": [2.5],
            "nothing": pa.array([float("nan")]),
        }
    )
    question = "Level {doc.level}: {doc.q} {Support Text} {n}{nothing}\nEnd in \\boxed{} or {{n}}."
    assert texts_of(question, rows) == ["Level 3: x? so 2.5\nEnd in \\boxed{} or {n}."]
    # Braces in which no name is are text, and so is a command of LaTeX; `\\n` in quotes with breaks.
    for text in (
        r"in {1, 2}, {}, {x | x > 0}, \boxed{n}, $\nu \neq \notin \nabla$",
        '{"a": {"b": 1}} }} {{ { n }',
        "x^{2}\n split at \\n or \\nx",
    ):
        assert texts_of(f"{{n}} {text}", rows) == [f"2.5 {text}"]
    assert texts_of("{n}^{2} {{{n}}} {{1}}", rows) == ["2.5^{2} {{2.5}} {1}"]
    assert texts_of("{n}", rows, template="Q: {question}!", system="s") == ["Q: 2.5!"]
    # A text that looks like a chat is a text.
    chat = json.dumps([user("x")])
    assert texts_of("{c}", pa.table({"c": [chat]})) == [chat]


def test_a_row_without_a_question_in_any_column():
    rows = pa.table({"a": ["", "x"], "b": [None, ""]})
    with pytest.raises(DataError, match=r"no text in column 'a', 'b'; fix the row"):
        PromptTemplateMapper(question="Q: {a} {b}", reference=None).apply(rows)
    kept = PromptTemplateMapper(question="Q: {a} {b}", reference=None, on_bad_row="drop_row")
    assert check_operator(kept, rows).reasons.to_pylist() == ["no_question", None]


@pytest.mark.parametrize("cell", [[user("x")], {"x": 1}])
def test_only_texts_and_numbers_go_into_a_question(cell):
    with pytest.raises(DataError, match=r"column 'a' is .*; .*a chat is all of `question`"):
        PromptTemplateMapper(question="Q: {a}", reference=None).apply(pa.table({"a": [cell]}))


@pytest.mark.parametrize(
    ("cell", "text"),
    [([3, 4, 7, 8], "[3, 4, 7, 8]"), (["é", "y"], '["é", "y"]'), ([[0, 1], [1]], "[[0, 1], [1]]"), ([], ""), (None, "")],
)  # fmt: skip
def test_a_list_in_a_question(cell, text):
    rows = pa.table({"a": pa.array([cell, [cell[0]] if cell else [1]]), "n": [24, 1]})
    assert texts_of("Using {a}, make {n}.", rows)[0] == f"Using {text}, make 24."


@pytest.mark.parametrize(
    "fields",
    [
        {"question": "{problem} {answer}"},
        {"question": "{problem} {doc.gold}", "reference": "doc.gold"},
        {"system": "Say {answer}."},
        {"question": "answer"},
    ],
)
def test_a_prompt_does_not_show_the_reference(fields):
    with pytest.raises(ValueError, match=r"would show column '(answer|doc.gold)', .*reference"):
        PromptTemplateMapper(**fields)
    PromptTemplateMapper(**fields | {"reference": "other"})
    PromptTemplateMapper(question="{problem} {{answer}} in \\boxed{answer}")


def test_a_text_over_the_prompt_replaces_it():
    operator = PromptTemplateMapper(question="{prompt}\n{input}", reference="reference")
    assert operator.replaces() == ("prompt", "reference")


# --- Options of multiple choice -------------------------------------------------------

MMLU = {"question": "Which is prime?", "choices": ["4", "7", "9", "12"]}
ARC = {"question": "What?", "choices": {"text": ["ice", "fire"], "label": ["A", "B"]}}
SHOWN = "{question}\n{choices}"
OPTIONS = ["choices"]


@pytest.mark.parametrize(
    ("row", "fields", "reference"),
    [
        ({**MMLU, "answer": 1}, {}, ["B", "7"]),
        ({**MMLU, "answer": "7"}, {}, ["B", "7"]),
        ({**MMLU, "answer": "(b)"}, {}, ["B", "7"]),
        ({**MMLU, "answer": "#### B"}, {"reference_pattern": "#### (.*)"}, ["B", "7"]),
        ({**MMLU, "choices": "['4', '7']", "answer": 1}, {}, ["B", "7"]),
        ({"question": "A man", "endings": ["sits.", "runs.", "eats."], "label": "2"}, {"choices": ["endings"], "reference": "label"}, ["C", "eats."]),
        ({**ARC, "answerKey": "B"}, {"reference": "answerKey"}, ["B", "fire"]),
        ({"question": "What?", "choices": {"text": ["ice", "fire"], "label": ["1", "2"]}, "answerKey": "1"}, {"reference": "answerKey"}, ["A", "ice"]),
        ({"question": "q", "doc": {"choices": [{"label": "A", "text": "ice"}, {"label": "B", "text": "fire"}]}, "answer": "B"}, {"choices": ["doc.choices"]}, ["B", "fire"]),
        ({"question": "q", "options": {"A": "ice", "B": "fire", "C": None}, "answer": "B"}, {"choices": ["options"]}, ["B", "fire"]),
        ({"question": "S _", "option1": "Ann", "option2": "Bob", "answer": "2"}, {"choices": ["option1", "option2"], "first_choice": 1}, ["B", "Bob"]),
        ({"question": "q", "sol1": "do", "sol2": "do not", "answer": 0}, {"choices": ["sol1", "sol2"]}, ["A", "do"]),
        ({**MMLU, "choices": ["b", "a"], "answer": 1}, {}, ["B"]),  # A text that is another letter.
        ({**MMLU, "choices": ["a1", "b1", "", None], "answer": 1}, {}, ["B", "b1"]),
        ({**MMLU, "choices": "[4, 7]", "answer": 1}, {}, ["B", "7"]),
        ({**MMLU, "choices": ["N/A", "y"], "answer": "N/A"}, {}, ["A", "N/A"]),
        ({"question": "q", "e1": "true", "e2": "false", "e3": None, "answer": True}, {"choices": ["e1", "e2", "e3"]}, ["A", "true"]),
        ({"question": "q", "choices": [{"key": "A", "value": "ice"}, {"key": "B", "value": "fire"}], "answer": "B"}, {}, ["B", "fire"]),
        # A list of numbers that is no list of marks, as in lighteval; it may be one text.
        ({**MMLU, "answer": [1]}, {}, ["B", "7"]),
        ({**MMLU, "answer": "[1]"}, {}, ["B", "7"]),
        ({**MMLU, "answer": [3]}, {"first_choice": 1}, ["C", "9"]),
        ({**MMLU, "answer": ["B"]}, {}, ["B", "7"]),
        ({**MMLU, "choices": ["[0, 1]", "[1, 2]"], "answer": "[1, 2]"}, {}, ["B", "[1, 2]"]),
        # Options that bring their labels.
        ({**MMLU, "choices": ["A)21", "B)21.5", "C)22"], "answer": "B"}, {}, ["B", "21.5"]),
        ({**MMLU, "choices": ["(A)4", "(B)7"], "answer": "B"}, {}, ["B", "7"]),
        ({**MMLU, "choices": ["A. x", "B. y"], "answer": "B. y"}, {}, ["B", "y"]),
        ({**MMLU, "choices": ["a ) 38", "b ) 30"], "answer": "b"}, {}, ["B", "30"]),
        ({**MMLU, "choices": ["1. ice", "2. fog"], "answer": 1}, {}, ["B", "fog"]),
        ({**MMLU, "choices": ["1.5", "2.5"], "answer": 1}, {}, ["B", "2.5"]),
        ({**MMLU, "choices": ["A. Lincoln", "J. Adams"], "answer": 1}, {}, ["B", "J. Adams"]),
        ({**MMLU, "choices": [" A", " B"], "answer": [1]}, {}, ["B"]),
        ({**MMLU, "choices": ["(A)", "(B)"], "answer": "B"}, {}, ["B", "(B)"]),
    ],
)  # fmt: skip
def test_a_reference_that_names_an_option(row, fields, reference):
    operator = PromptTemplateMapper(**{"question": SHOWN, "choices": OPTIONS, **fields})
    change = check_operator(operator, pa.Table.from_pylist([row]))
    (found,) = change.columns["reference"].to_pylist()
    assert found == (json.dumps(reference) if len(reference) > 1 else reference[0])
    ((message,),) = prompts(change)
    assert message["content"].count(f"\n{reference[0]}. {''.join(reference[1:])}") == 1


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        # GPQA and SciQ have a column for each, TruthfulQA marks the right one: it is the first.
        ({"question": "q{}", "Correct Answer": "r{}", "Incorrect Answer 1": "v{}", "Incorrect Answer 2": "w{}"}, {"choices": ["Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2"], "reference": "Correct Answer"}),
        ({"question": "q{}", "mc1_targets": {"choices": ["r{}", "v{}", "w{}"], "labels": [1, 0, 0]}}, {"choices": ["mc1_targets.choices"], "reference": "mc1_targets.labels"}),
    ],
)  # fmt: skip
def test_an_order_is_drawn_where_the_right_option_is_the_first(row, fields):
    numbered = [json.loads(json.dumps(row).replace("{}", str(n))) for n in range(30)]
    change = PromptTemplateMapper(question=SHOWN, **fields).apply(pa.Table.from_pylist(numbered))
    letters = set()
    for n, chat in enumerate(prompts(change)):
        letter, text = json.loads(change.columns["reference"][n].as_py())
        assert text == f"r{n}"
        lines = chat[0]["content"].split("\n")
        assert f"{letter}. {text}" in lines
        assert sorted(line[3:] for line in lines[1:]) == [f"r{n}", f"v{n}", f"w{n}"]
        letters.add(letter)
    assert letters == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("row", "fields", "reference"),
    [
        ({"choices": {"text": ["ice", "fog"], "label": ["1", "2"]}, "answer": "2"}, {}, ["B", "fog", "2"]),
        ({"choices": ["dog", "car"], "answer": "2"}, {"first_choice": 1}, ["B", "car", "2"]),
        ({"choices": {"text": ["2", "3"], "label": ["1", "2"]}, "answer": "2"}, {}, ["B", "3"]),
        ({"choices": ["dog", "car"], "answer": 1}, {}, ["B", "car"]),
    ],
)  # fmt: skip
def test_labels_of_the_dataset_where_the_question_has_the_options(row, fields, reference):
    rows = pa.Table.from_pylist([{"question": "Which? 1. .. 2. ..", **row}])
    found = PromptTemplateMapper(choices=OPTIONS, **fields).first_references(rows)
    assert found == [json.dumps(reference)]


@pytest.mark.parametrize("answer", [4, -1, "E", "8", None, "", True, [0, 2], [4], []])
def test_a_reference_that_names_no_option(answer):
    rows = pa.Table.from_pylist([{**MMLU, "answer": answer}])
    with pytest.raises(DataError) as raised:
        PromptTemplateMapper(choices=OPTIONS).apply(rows)
    assert "no option by text, letter, number (first_choice: 0)" in str(raised.value)
    assert "its choices: " in str(raised.value)
    dropped = check_operator(PromptTemplateMapper(choices=OPTIONS, on_bad_row="drop_row"), rows)
    assert dropped.reasons.to_pylist() == ["no_reference"]


@pytest.mark.parametrize(
    ("cell", "answer", "found"),
    [
        (None, 0, "no options"),
        ([], 0, "no options"),
        ("a ) 38 , b ) 27.675", "a", "no options in a text that is no list"),
        ([{"id": 1, "name": "x"}], 0, "no options"),
        ([["a"]], 0, "options that are not texts"),
        ([str(n) for n in range(27)], 0, "27 options"),
        (["a", "", "c"], 2, "an option before other options is empty"),
        (["a", None, "c"], "c", "an option before other options is empty"),
        ([{"label": "A", "text": "a"}, {"label": "B", "text": None}, {"label": "C", "text": "c"}], "C", "is empty"),
        ({"text": ["a", "b", "c"], "label": ["A", "B"]}, "A", "2 labels for 3 options"),
        (["a", "b", "c", "d"], [1, 0], "or several"),
        (["a", "b", "c"], [1, 1, 0], "or several"),
        (["a", "", "c", "d"], [0, 0, 1, 0], "is empty"),
        (["a", "b"], [True, False], "one label 1"),
    ],
)  # fmt: skip
def test_cells_that_are_no_options(cell, answer, found):
    rows = pa.table({"question": ["q"], "choices": [cell], "answer": [answer]})
    with pytest.raises(DataError, match=f"no reference in column 'answer': .*{found}.*choices: "):
        PromptTemplateMapper(question=SHOWN, choices=OPTIONS).apply(rows)
    kept = PromptTemplateMapper(question=SHOWN, choices=OPTIONS, on_bad_row="drop_row")
    assert kept.apply(rows).reasons.to_pylist() == ["no_reference"]


def test_options_without_a_question():
    rows = pa.table({"question": [None, "q"], "choices": [["x", "y"]] * 2, "answer": [0, 0]})
    kept = PromptTemplateMapper(question=SHOWN, choices=OPTIONS, on_bad_row="drop_row")
    assert check_operator(kept, rows).reasons.to_pylist() == ["no_question", None]
    assert texts_of("{choices}", rows, choices=OPTIONS) == ["A. x\nB. y"] * 2


def test_a_system_message_of_columns():
    system_, chat = ["Be brief.", "", None], [[user("x")], [system("own"), user("x")], [user("y")]]
    for question in (["x", "x", "y"], chat):
        rows = pa.table({"question": question, "system": system_, "answer": ["1"] * 3})
        operator = PromptTemplateMapper(system="{system}")
        first, second, third = prompts(check_operator(operator, rows))
        assert first == [system("Be brief."), user("x")]
        assert second == ([user("x")] if question is not chat else chat[1])
        assert third == [user("y")]
    assert "system" in operator.reads()
    # Without a column it is as it is.
    text = 'In \\boxed{answer}, {{x}}, {"a": {"b": 1}}'
    for message, _ in prompts(check_operator(PromptTemplateMapper(system=text), table(["x"]))):
        assert message == system(text)


def test_booleans_are_texts():
    rows = pa.table({"question": ["q", "r", "s"], "answer": [True, False, None]})
    change = check_operator(PromptTemplateMapper(on_bad_row="drop_row"), rows)
    assert change.columns["reference"].to_pylist() == ["true", "false", None]


@pytest.mark.parametrize("value", ["n/a", " N/A", "<NA>"])
def test_n_a_is_no_reference(value):
    rows = pa.table({"question": ["1?", "2?"], "answer": [value, value[:0]]})
    with pytest.raises(DataError, match=r"(?i)no reference in column 'answer': .*n/?a") as raised:
        PromptTemplateMapper().first_references(rows.slice(0, 1))
    assert "on_bad_row: drop_row" in str(raised.value)
    assert "reference_form: text" in str(raised.value)
    change = PromptTemplateMapper(on_bad_row="drop_row").apply(rows)
    assert change.reasons.to_pylist() == ["no_reference"] * 2
    other = pa.table({"question": ["1?"], "answer": ["None"]})
    assert PromptTemplateMapper().first_references(other) == ["None"]


@pytest.mark.parametrize(
    ("value", "fields", "reference"),
    [
        ("N/A", {"reference_form": "text"}, "N/A"),
        (["N/A", "not available"], {}, '["N/A", "not available"]'),
        ("['N/A', 'none']", {}, '["N/A", "none"]'),
    ],
)
def test_n_a_may_be_meant(value, fields, reference):
    rows = pa.table({"question": ["1?"], "answer": [value]})
    assert PromptTemplateMapper(**fields).first_references(rows) == [reference]


def test_options_may_be_letters_or_several_of_them():
    rows = pa.Table.from_pylist(
        [{"question": "q", "choices": ["A", "B", "AB", "O"], "answer": "AB"}]
    )
    change = PromptTemplateMapper(question=SHOWN, choices=OPTIONS).apply(rows)
    assert change.columns["reference"].to_pylist() == ['["C", "AB"]']


def test_a_reference_in_the_last_message_of_a_dialogue():
    chat = json.dumps([user("2 + 2?"), {"role": "assistant", "content": "#### 4"}])
    rows = pa.table({"m": [chat]})
    fields = {"question": "m", "reference": "m", "reference_pattern": "#### ([0-9]+)"}
    change = PromptTemplateMapper(**fields).apply(rows)
    assert prompts(change) == [[user("2 + 2?")]]
    assert change.columns["reference"].to_pylist() == ["4"]


def test_texts_that_python_cannot_make_a_list_of():
    text = '[{{"role": "user", "content": "hi"}}]'
    change = check_operator(PromptTemplateMapper(reference=None), pa.table({"question": [text]}))
    assert prompts(change) == [[user(text)]]
