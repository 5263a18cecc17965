from typing import get_args

import pyarrow as pa
import pytest

from rejuice.operators import DataError, RecipeError, verifier
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.math_verify_mapper import AnswerTypeName, MathVerifyMapper
from rejuice.operators.registry import build
from rejuice.operators.verifier import AnswerType, Verdict

STRING = pa.string()
BOXED = r"\boxed{{{}}}"


def table(*rows):
    responses, references = zip(*rows, strict=True)
    return pa.table(
        {"response": pa.array(responses, STRING), "reference": pa.array(references, STRING)}
    )


def written(operator, rows):
    return {
        name: column.to_pylist() for name, column in check_operator(operator, rows).columns.items()
    }


@pytest.fixture
def slug_verifier(monkeypatch):
    """A verifier for which the response is the verdict."""
    calls = []

    def verify_batch(responses, references, *, timeout, **_):
        calls.append((len(responses), timeout))
        return [Verdict(text, None if text == "no_answer" else f"<{text}>") for text in responses]

    monkeypatch.setattr(verifier, "verify_batch", verify_batch)
    return calls


def test_right_answers_are_worth_one_and_wrong_ones_nothing():
    columns = written(
        MathVerifyMapper(),
        table(
            ("So it is 18.\n#### 18", "18"),
            (r"\boxed{19}", "18"),
            ("I cannot say.", "18"),
            ("", "18"),
        ),
    )
    assert columns["verdict"] == ["correct", "wrong_answer", "no_answer", "no_answer"]
    assert columns["extracted_answer"] == ["18", "19", None, None]
    assert columns["reward_accuracy"] == [1.0, 0.0, 0.0, 0.0]
    assert columns["reward_accuracy_missing"] == [None] * 4


def test_a_timeout_is_wrong_if_the_recipe_sets_it(slug_verifier):
    columns = written(
        MathVerifyMapper(on_timeout="wrong", wrong=-1.0),
        table(("timeout", "1"), ("verifier_error", "1"), ("correct", "1")),
    )
    assert columns["verdict"] == ["timeout", "verifier_error", "correct"]
    assert columns["reward_accuracy"] == [-1.0, None, 1.0]
    assert columns["reward_accuracy_missing"] == [None, "verifier_error", None]


def test_a_failure_of_the_verifier_is_never_a_zero(slug_verifier):
    columns = written(
        MathVerifyMapper(), table(("timeout", "1"), ("verifier_error", "1"), ("correct", "1"))
    )
    assert columns["reward_accuracy"] == [None, None, 1.0]
    assert columns["reward_accuracy_missing"] == ["timeout", "verifier_error", None]
    assert columns["verdict"] == ["timeout", "verifier_error", "correct"]


def test_what_is_not_there_is_not_graded_and_answers_are_extracted_all_the_same():
    rows = table((None, "1"), ("It is 7.", None), (None, None), ("It is 1.", "1"), ("So 8.", " "))
    columns = {k: v.to_pylist() for k, v in MathVerifyMapper().map(rows).items()}
    assert columns["verdict"] == [None, "verifier_error", None, "correct", "verifier_error"]
    assert columns["extracted_answer"] == [None, "7", None, "1", "8"]
    assert columns["reward_accuracy"] == [None, None, None, 1.0, None]
    assert columns["reward_accuracy_missing"] == [
        "no_response",
        "no_reference",
        "no_response",
        None,
        "bad_reference",
    ]
    assert set(columns["reward_accuracy_missing"]) - {None} <= set(MathVerifyMapper.missing)


def test_prompts_that_are_not_sampled_have_no_verdict():
    columns = written(MathVerifyMapper(), table((None, "Yes"), (None, "No")))
    assert columns["verdict"] == [None, None]
    assert columns["reward_accuracy_missing"] == ["no_response"] * 2


def test_right_and_wrong_may_be_worth_something_else(slug_verifier):
    operator = MathVerifyMapper(right=2, wrong=-0.5, timeout=0.1)
    rows = table(("correct", "1"), ("wrong_answer", "1"), ("no_answer", "1"), ("timeout", "1"))
    columns = operator.map(rows)
    assert columns["reward_accuracy"].to_pylist() == [2.0, -0.5, -0.5, None]
    assert slug_verifier == [(4, 0.1)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"right": 0}, "wrong 0.0 is not below right 0.0"),
        ({"timeout": 0}, "field 'timeout' is 0; input should be greater than 0"),
        ({"timout": 1}, "unknown field 'timout'; did you mean 'timeout'?"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(MathVerifyMapper, fields)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("worked_out", "right"), [(False, [1.0, 1.0, 1.0]), (True, [0.0, 1.0, 0.0])]
)
def test_a_formula_of_the_question_may_earn_nothing(worked_out, right):
    rows = table(
        (r"\boxed{\binom{9}{2}}", "36"),
        (r"\boxed{36}", "36"),
        (r"\boxed{\sqrt{50}+\sqrt{18}}", r"8\sqrt{2}"),
    )
    assert written(MathVerifyMapper(worked_out=worked_out), rows)["reward_accuracy"] == right


@pytest.mark.parametrize("references", [[42, 43], [42.0, 43.5]])
def test_references_that_are_numbers(references):
    rows = pa.table({"response": ["it is 42", "it is 42"], "reference": references})
    assert written(MathVerifyMapper(), rows)["verdict"] == ["correct", "wrong_answer"]


def test_right_answers_that_are_formulas_are_counted():
    rows = table(
        ("It is 3.", "3"), ("That is 1 + 2.", "3"), ("Who knows.", "3"), ("11", "11 or 13")
    )
    by_value = MathVerifyMapper(worked_out=False)
    assert by_value.apply(rows).notes == {"not_worked_out": 1}
    assert MathVerifyMapper().apply(rows).notes == {}
    assert by_value.apply(rows.slice(2)).notes == {}


def test_types_of_references_are_given_for_all_or_for_each_row():
    rows = table(("March 5, 2021", "2021-03-05"), ("none", "none"), (r"\boxed{2013}", "2021-03-05"))
    assert written(MathVerifyMapper(answer_type="date"), rows)["reward_accuracy"] == [1, None, 0]
    columns = written(MathVerifyMapper(answer_type="text"), rows)
    assert columns["verdict"] == ["wrong_answer", "correct", "wrong_answer"]
    rows = rows.append_column("meta", pa.array([{"kind": k} for k in (None, "text", "number")]))
    columns = written(MathVerifyMapper(answer_type_column="meta.kind"), rows)
    assert columns["verdict"] == ["correct", "correct", "verifier_error"]
    assert columns["reward_accuracy_missing"] == [None, None, "bad_reference"]
    both = MathVerifyMapper(answer_type="text", answer_type_column="meta.kind")
    assert written(both, rows)["verdict"] == ["wrong_answer", "correct", "verifier_error"]


def test_a_type_that_there_is_not():
    rows = table(("1", "1")).append_column("kind", pa.array(["word"]))
    with pytest.raises(DataError, match=r"row 1: column 'kind' is 'word'; .*expression.*text"):
        MathVerifyMapper(answer_type_column="kind").map(rows)
    assert set(get_args(AnswerTypeName)) == {each.value for each in AnswerType}


def test_several_answers_are_alternatives_unless_their_type_is_a_list():
    rows = table((r"\boxed{3, -3}", '["3", "-3"]'), (r"\boxed{3}", '["3", "-3"]'))
    assert written(MathVerifyMapper(), rows)["reward_accuracy"] == [0, 1]
    assert written(MathVerifyMapper(answer_type="list"), rows)["reward_accuracy"] == [1, 0]
    rows = table(*((text, '["a", "b"]') for text in ("['a', 'b']", "['b', 'a']", "a", "a and b")))
    listed = MathVerifyMapper(answer_type="list", ordered_lists=True)
    assert written(listed, rows)["reward_accuracy"] == [1, 0, 0, 1]


def test_a_tolerance_is_a_share_of_the_reference():
    rows = table(
        *((BOXED.format(answer), "0.0298") for answer in ("0.02981", "0.0301", "-0.0298")),
        *((BOXED.format(answer), "2.4e5 J") for answer in ("239.8 kJ", "242000", "230 kJ")),
        *((BOXED.format(answer), "12.5 ± 0.5") for answer in ("12.3", "13.1")),
    )
    near = [1, 0, 0, 1, 1, 0, 1, 0]
    assert written(MathVerifyMapper(tolerance=0.01), rows)["reward_accuracy"] == near
    assert written(MathVerifyMapper(), rows)["reward_accuracy"] == [0] * 8


def test_a_list_has_an_order_if_the_recipe_says_so():
    rows = table(
        *((answer, "red, green, blue") for answer in ("red, green, blue", "blue, green, red")),
        *((BOXED.format(answer), r"1, \sqrt{2}") for answer in (r"1,\sqrt 2", r"\sqrt{2}, 1")),
    )
    assert written(MathVerifyMapper(), rows)["reward_accuracy"] == [1, 1, 1, 1]
    ordered = MathVerifyMapper(ordered_lists=True)
    assert written(ordered, rows)["reward_accuracy"] == [1, 0, 1, 0]
