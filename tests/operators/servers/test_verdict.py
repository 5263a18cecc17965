import json
import math

import jsonschema
import pytest
from each import check_each
from hypothesis import assume, given
from hypothesis import strategies as st

from rejuice.operators.chats import answer_part
from rejuice.operators.servers.verdict import (
    AnswerToken,
    MalformedError,
    ScorerAnswer,
    read_verdict,
    schema,
)

TWO = ("accuracy", "grammar")
VERDICT = '{"accuracy": 4, "grammar": 2}'


def read(text, *, expected=False, tokens=None, finish="stop"):
    return read_verdict(ScorerAnswer(text, finish, tokens), TWO, expected=expected)


def message_about(text, **fields):
    with pytest.raises(MalformedError) as error:
        read(text, **fields)
    assert "\n" not in str(error.value)
    return str(error.value)


def tokens_of(*texts, **tops):
    """Tokens; those named by their place, such as `t3`, with these tokens at their place."""
    return tuple(
        AnswerToken(text, tuple(tops.get(f"t{place}", {text: 0.0}).items()))
        for place, text in enumerate(texts)
    )


def test_the_schema_is_exact():
    right = {"accuracy": 1, "grammar": 5}
    jsonschema.validate(right, schema(TWO))
    for wrong in (
        {"accuracy": 1},
        {**right, "x": 1},
        {**right, "grammar": 6},
        {**right, "grammar": "5"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema(TWO))


no_digits = st.text(st.characters(exclude_categories=["N", "Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | no_digits,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TWO, "x"]), inner)
    ),
    max_leaves=5,
)


@given(json_values | st.fixed_dictionaries({name: st.integers(0, 6) for name in TWO}))
def test_what_is_read_is_what_the_schema_allows(value):
    """But for further fields, and what is no JSON value of the schema and still says a number; see
    below."""
    text = json.dumps(value)
    try:
        jsonschema.validate(value, schema(TWO) | {"additionalProperties": True})
        valid = True
    except jsonschema.ValidationError:
        valid = False
    try:
        found = read(text)
    except MalformedError:
        found = None
    assert found == ((float(value["accuracy"]), float(value["grammar"])) if valid else None)


@given(st.text(max_size=30), st.text(alphabet=st.characters(exclude_characters="{}")))
def test_text_around_a_verdict_does_not_matter(before, after):
    text = f'{before}{{"accuracy": 4, "grammar": 2}}{after}'
    assume(answer_part(text) == text)  # Hypothesis draws texts of the sources, too: `<thinking>`.
    assert read(text) == (4.0, 2.0)


def test_what_says_a_score_beyond_doubt_is_one():
    cases = ["4", "4.0", '"4"', '"4.0"', '" 4 "', "4/5", '"4/5"', '"4 / 5"']

    def check(score):
        assert read(f'{{"accuracy": {score}, "grammar": 2}}') == (4.0, 2.0)

    check_each(cases, check)


def test_what_does_not_is_malformed():
    cases = ["4.5", "7", "0", "-4", '"four"', '""', '"4/10"', "4/10", "14/5", '"4.5/5"', '"4 or 5"',
     "null", "true", "[4]", "1e999", '"nan"']  # fmt: skip

    def check(score):
        assert message_about(f'{{"accuracy": {score}, "grammar": 2}}')

    check_each(cases, check)


MALFORMED = [
    "",
    "good",
    "[1, 2]",
    "4",
    "null",
    "{}",
    '{"accuracy": 4}',
    VERDICT[:-1],
    VERDICT[:-1] + ', "accuracy": 1}',
    f"<think>{VERDICT}",
    f"<think>so</think><think>{VERDICT}",
    VERDICT.replace("4", "9" * 5000),
    "[" * 100_000,
]


@pytest.mark.parametrize("expected", [False, True])
def test_what_is_no_verdict_is_malformed(expected):
    def check(text):
        assert message_about(text, expected=expected)
        tokens = tokens_of(*text[:9999])
        assert message_about(text, expected=expected, tokens=tokens)

    check_each(MALFORMED, check)


AROUND = [
    ("```json\n", "\n```"),
    ("```\n", "```"),
    ("Here is my assessment:\n", ""),
    ("", "\nThe response is mostly right [sic]."),
    ("[Assessment] ", "\n\nLet me know!"),
]


def test_one_verdict_with_text_around_it():
    def check(before, after):
        assert read(f"{before}{VERDICT}{after}") == (4.0, 2.0)

    check_each(AROUND, check)


def test_further_fields_do_no_harm():
    cases = ['"why": "so"', '"why": "{so}"', '"why": {"x": [1]}', '"why": "4/5 of it"', '"x": 7']

    def check(field):
        for text in (f'{{{field}, "accuracy": 4, "grammar": 2}}', f"{VERDICT[:-1]}, {field}}}"):
            assert read(text) == (4.0, 2.0)

    check_each(cases, check)


def test_what_is_thought_before_the_verdict_does_not_count():
    other = VERDICT.replace("4", "1")
    cases = [f"<think>\nmaybe {other}\n</think>\n\n", f"{other}</think>", "<think></think>"]

    def check(thought):
        assert read(thought + VERDICT) == (4.0, 2.0)

    check_each(cases, check)


@pytest.mark.parametrize("text", ['{"scores": {v}}', '{"accuracy": {v}, "grammar": 2}'])
def test_a_verdict_within_something_else_is_malformed(text):
    assert message_about(text.replace("{v}", VERDICT))


OTHER = VERDICT.replace("4", "5")


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("{v} or {v}", True),
        ("[{v}]", True),
        ("{v}}", True),
        ("{{v}", True),
        ('{v} {"note": 1}', True),
        ('{"accuracy": 9, "grammar": 1} is out of range, so {v}', True),
        ("{o} or {v}", False),
        ("The response claims {o}.\n{v}", False),
        ("{v}\nIt had claimed {o}", False),
        ("{o} {v} {v}", False),
    ],
)
def test_verdicts_that_differ_are_malformed_wherever_they_stand(text, counts):
    """A judge that quotes what a response has written must not pay it."""
    text = text.replace("{v}", VERDICT).replace("{o}", OTHER)
    if counts:
        assert read(text) == (4.0, 2.0)
    else:
        assert message_about(text).startswith("two verdicts that differ: ")


def test_a_quoted_score_has_its_token():
    tokens = tokens_of('{"accuracy": "', "4", '/5", "grammar": ', "2", "}",
                       t1={"4": 0.0, "5": 0.0}, t3={"2": 0.0})  # fmt: skip
    text = '{"accuracy": "4/5", "grammar": 2}'
    assert read(text, expected=True, tokens=tokens) == pytest.approx((4.5, 2.0))


def test_the_order_of_the_scores_does_not_matter():
    assert read(' {"grammar":2,"accuracy":4}\n') == (4.0, 2.0)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("fine", ["accuracy, grammar", "fine"]),
        ("", ["empty"]),
        ("[1]", ["accuracy, grammar", "[1]"]),
        ('{"accuracy": 1}', ["grammar is missing", "an integer from 1 to 5", '{"accuracy": 1}']),
        ('{"accuracy": 1, "grammar": 7}', ["grammar is 7", "an integer from 1 to 5"]),
        ('{"accuracy": 1, "grammar": "4/9"}', ['grammar is "4/9"']),
        ('{"accuracy": 1, "grammar": NaN}', ["grammar is NaN"]),
        ("Let me think. " * 100, ["Let me think. Let me"]),
    ],
)
def test_messages_about_malformed_verdicts(text, facts):
    message = message_about(text)
    assert all(fact in message for fact in facts)
    assert len(message) < 260
    assert "truncated at max_tokens" in message_about(text, finish="length")


def test_the_expected_score_is_the_mean_by_probability():
    half, quarter = math.log(0.5), math.log(0.25)
    tokens = tokens_of(
        '{"', "accuracy", '": ', "4", ', "grammar": ', "2", "}",
        t3={"4": half, "5": quarter, "x": quarter},
        t5={"2": quarter, "3": quarter, "1": half},
    )  # fmt: skip
    assert read(VERDICT, expected=True, tokens=tokens) == pytest.approx((13 / 3, 1.75))


def test_tokens_for_one_score_add_up():
    tokens = tokens_of(
        '{"accuracy":', " 4", ', "grammar": ', "2}", t1={" 4": -1.0, "4": -1.0, " 5": -1.0, "45": 0.0}
    )  # fmt: skip
    found = read(VERDICT, expected=True, tokens=tokens)
    assert found == pytest.approx((13 / 3, 2.0))


def test_very_improbable_scores():
    tokens = tokens_of(
        '{"accuracy": ', "4", ', "grammar": ', "2", "}",
        t1={"4": -9999.0, "5": -9999.0}, t3={"2": 0.0, "5": -9999.0},
    )  # fmt: skip
    assert read(VERDICT, expected=True, tokens=tokens) == pytest.approx((4.5, 2.0))


def test_a_thought_before_the_verdict_is_not_the_verdict():
    thought = ("<think>", VERDICT, "</think>")
    rest = ('{"accuracy": ', "4", ', "grammar": ', "2", "}", "<|im_end|>")
    tokens = tokens_of(*thought, *rest, t4={"4": 0.0, "5": 0.0}, t6={"2": 0.0, "1": 0.0})
    found = read(VERDICT, expected=True, tokens=tokens)
    assert found == pytest.approx((4.5, 1.5))
    whole = "".join(thought) + VERDICT
    assert read(whole, expected=True, tokens=tokens) == found


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (None, "the server gives no log-probabilities: " + VERDICT),
        ((), "the tokens are not those of the text: " + VERDICT),
        (
            tokens_of('{"accuracy": 5, "grammar": 2}'),
            "the tokens are not those of the text: " + VERDICT,
        ),
        (tokens_of(VERDICT), "a score shares its token: " + VERDICT),
    ],
)
def test_no_place_no_expectation(tokens, why):
    assert message_about(VERDICT, expected=True, tokens=tokens) == why


def test_a_name_that_occurs_twice_has_no_place():
    text = '{"why": {"accuracy": 1}, "accuracy": 4, "grammar": 2}'
    assert read(text) == (4.0, 2.0)
    tokens = tokens_of(*text)
    found = message_about(text, expected=True, tokens=tokens)
    assert found == f"the tokens are not those of the text: {text}"


def test_a_name_that_is_escaped_has_no_place():
    text = VERDICT.replace("accuracy", "\\u0061ccuracy")
    assert read(text) == (4.0, 2.0)
    assert (
        message_about(text, expected=True, tokens=tokens_of(text))
        == f"the tokens are not those of the text: {text}"
    )
