import pyarrow as pa
import pytest
from each import check_each
from hostile_text import in_linear_time
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper, has_one_box, is_tagged
from rejuice.operators.registry import build

THINK_ANSWER = [("<think>", "</think>"), ("<answer>", "</answer>")]


def table(*responses):
    return pa.table({"response": pa.array(responses, pa.string())})


def test_values_and_reasons():
    right = "<think>a</think><answer>b</answer>"
    change = check_operator(FormatRewardMapper(), table(right, "b", "", None))
    assert change.columns["reward_format"].to_pylist() == [0.1, -0.1, -0.1, None]
    assert change.columns["reward_format_missing"].to_pylist() == [None] * 3 + ["no_response"]


def test_the_right_form():
    cases = [
        "<think>a</think><answer>b</answer>",
        " \n<think>\na\n</think>\n\n<answer> b </answer>\n",
        "<think>a < b > c</think><answer>1</answer>",
        "<think>a</Think><THINK></think><answer>1</answer>",
    ]

    def check(text):
        assert is_tagged(text, THINK_ANSWER)

    check_each(cases, check)


def test_the_wrong_form():
    cases = [
        "",
        "b",
        "<think>a</think>",
        "<answer>b</answer>",
        "<think>a</think><answer>b</answer> and more",
        "first <think>a</think><answer>b</answer>",
        "<think>a</think> so <answer>b</answer>",
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a</think><answer>b<answer>c</answer>",
        "<think><think>a</think><answer>b</answer>",
        "<think>a</think></think><answer>b</answer>",
        "<think><think>a</think></think><answer>b</answer>",
        "<think>a<answer>b</answer></think>",
        "<think>a<answer></think>b</answer>",
        "<think>a</answer></think><answer>b",
        "<think></think><answer>b</answer>",
        "<think> \n</think><answer>b</answer>",
        "<think>a</think><answer>\u00a0</answer>",
        "<think>a</think><answer>b",
        "< think>a</think><answer>b</answer>",
    ]

    def check(text):
        assert not is_tagged(text, THINK_ANSWER)

    check_each(cases, check)


def test_own_tags():
    operator = build(FormatRewardMapper, {"style": "tags", "tags": ["plan", "final"]})
    responses = table(
        "<plan>a</plan>\n<final>b</final>",
        "<final>b</final><plan>a</plan>",
        "<think>a</think><answer>b</answer>",
    )
    change = check_operator(operator, responses)
    assert change.columns["reward_format"].to_pylist() == [0.1, -0.1, -0.1]


def test_own_rewards():
    operator = FormatRewardMapper(style="boxed", right=1, wrong=0)
    change = check_operator(operator, table(r"so \boxed{4}", "so 4"))
    assert change.columns["reward_format"].to_pylist() == [1.0, 0.0]


def test_one_box():
    cases = [
        r"\boxed{4}",
        r"It is \boxed{\frac{1}{2}}, as said.",
        r"\boxed{\{1, 2\}}",
        r"\boxed{\left\{x}",
        r"set} of {braces \boxed{4} in the text}",
    ]

    def check(text):
        assert has_one_box(text)

    check_each(cases, check)


def test_not_one_box():
    cases = [
        "",
        "4",
        r"\boxed 4",
        r"\boxed{}",
        r"\boxed{ }",
        r"\boxed{4",
        r"\boxed{4\}",
        r"\boxed{{4}",
        r"\boxed{4} or \boxed{5}",
        r"\boxed{\boxed{4}}",
        r"\boxed{4} \boxed{",
    ]

    def check(text):
        assert not has_one_box(text)

    check_each(cases, check)


@pytest.mark.parametrize(
    "text",
    [
        "<think>a b c d e f g h i j k l m n</think>\n" * 30_000,
        "<think>" * 150_000,
        "<think>a</think><answer>b" * 40_000,
        " " * 1_000_000,
    ],
)
def test_hostile_tags_take_no_time(text):
    # A megabyte, on which peers' regular expressions take minutes to hours.
    assert not in_linear_time(is_tagged, text, THINK_ANSWER)


@pytest.mark.slow
def test_hostile_braces_take_linear_time():
    assert not in_linear_time(has_one_box, "\\boxed{" + "{" * 1_000_000)


def test_a_column_of_nulls_is_all_missing():
    change = FormatRewardMapper().apply(pa.table({"response": pa.nulls(2)}))
    assert change.columns["reward_format"].to_pylist() == [None, None]
    assert change.columns["reward_format_missing"].to_pylist() == ["no_response"] * 2


def test_responses_that_are_no_text_are_an_error():
    message = r"^column 'response' is int64, not text; give the responses as strings$"
    with pytest.raises(DataError, match=message):
        FormatRewardMapper().apply(pa.table({"response": [1]}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"style": "tags"}, r"^tags go with style tags, and only with it$"),
        ({"tags": ["a"]}, r"^tags go with style tags, and only with it$"),
        ({"style": "tags", "tags": ["a", "a"]}, r"^a tag is listed twice$"),
        (
            {"style": "tags", "tags": ["<a>"]},
            r"^'<a>' is not the name of a tag, such as think$",
        ),
        ({"right": float("nan")}, r"^field 'right' is nan; input should be a finite number$"),
    ],
)
def test_wrong_fields_are_errors(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(FormatRewardMapper, fields)


PIECES = ["<think>", "</think>", "<answer>", "</answer>", "a", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_it_agrees_with_a_plain_reading_of_the_rule(pieces):
    marks = [piece for piece in pieces if piece in PIECES[:4]]
    parts, part = [], ""
    for piece in pieces:
        if piece in PIECES[:4]:
            parts, part = [*parts, part], ""
        else:
            part += piece
    parts.append(part)
    expected = (
        marks == PIECES[:4]
        and bool(parts[1].strip() and parts[3].strip())
        and not (parts[0] + parts[2] + parts[4]).strip()
    )
    assert is_tagged("".join(pieces), THINK_ANSWER) == expected


@given(st.text(st.sampled_from("{}\\a ")))
def test_a_box_ends_where_its_braces_balance(text):
    # Reference: walk over the characters, jumping over escaped ones.
    depth, at, end = 1, 0, None
    while at < len(text) and end is None:
        if text[at] == "\\":
            at += 2
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        end = at if depth == 0 else None
        at += 1
    expected = end is not None and bool(text[:end].strip())
    assert has_one_box("so \\boxed{" + text) == expected
