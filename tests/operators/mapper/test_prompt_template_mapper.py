import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.chats import fill
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES, content_ids
from rejuice.operators.fields import build
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper


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
        " (its question: 'What is 1 + 1?');"
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
            table(["a"], [["1"]]),
            "column 'answer' is list<item: string>; "
            "set `reference` to a column of strings or numbers",
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
