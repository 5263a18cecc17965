import pyarrow as pa
import pytest
from each import check_each
from hostile_text import in_linear_time
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.judgement_reward_mapper import JudgementRewardMapper, judgement_in
from rejuice.operators.registry import build

YES, NO = r"\boxed{Yes}", r"\boxed{No}"


def table(*rows):
    """Rows of (task, label, response)."""
    names = ("task", "label", "response")
    return pa.table({n: pa.array([r[i] for r in rows], pa.string()) for i, n in enumerate(names)})


def judged(*rows, **fields):
    change = check_operator(build(JudgementRewardMapper, fields), table(*rows))
    columns = {name: column.to_pylist() for name, column in change.columns.items()}
    assert change.reasons is None
    return columns, dict(change.notes)


def test_a_judgement_is_rewarded_for_being_the_label():
    columns, notes = judged(
        ("verify", "Yes", f"1 + 1 = 2. {YES}"),
        ("verify", "No", f"1 + 1 = 2. {YES}"),
        ("verify", "Yes", f"1 + 1 = 3. {NO}"),
        ("verify", "No", f"1 + 1 = 3. {NO}"),
        ("verify", "No", "It is right."),
    )
    assert columns == {
        "judgement": ["Yes", "Yes", "No", "No", None],
        "reward_verification": [1.0, 0.0, 0.0, 1.0, 0.0],
        "reward_verification_missing": [None] * 5,
    }
    assert notes == {"right": 2, "wrong": 2, "malformed": 1}


def test_a_malformed_judgement_has_a_reward_of_its_own():
    rows = [("verify", "Yes", text) for text in (YES, NO, "Yes", "")]
    columns, _ = judged(*rows, right=2, wrong=-0.5, malformed=-1)
    assert columns["reward_verification"] == [2, -0.5, -1, -1]
    assert columns["reward_verification_missing"] == [None] * 4


def test_what_is_not_known_is_missing_and_not_zero():
    columns, notes = judged(
        ("generate", None, YES),
        (None, "Yes", YES),
        ("generate", None, None),
        ("verify", "Yes", None),
        ("verify", None, YES),
        ("verify", "yes", NO),
        ("verify", "Yes", YES),
    )
    assert columns["reward_verification"] == [*[None] * 6, 1.0]
    assert columns["reward_verification_missing"] == [
        *["other_task"] * 3,
        "no_response",
        *["no_label"] * 2,
        None,
    ]
    # The judgement is written with or without a label.
    assert columns["judgement"] == [None, None, None, None, "Yes", "No", "Yes"]
    assert notes == {"right": 1, "wrong": 0, "malformed": 0}


def test_the_reasons_are_declared():
    columns, _ = judged(("generate", None, None), ("verify", "Yes", None), ("verify", None, YES))
    assert columns["reward_verification_missing"] == list(JudgementRewardMapper.missing)


def test_forms_of_a_judgement():
    cases = [
        (r"\boxed{Yes}", "Yes"),
        (r"\boxed{No}", "No"),
        (r"\boxed{YES}", "Yes"),
        (r"\boxed{no}", "No"),
        (r"\boxed{ Yes }", "Yes"),
        ("\\boxed{\nNo\n}", "No"),
        (r"\boxed{Yes.}", "Yes"),
        (r"\boxed{Yes .}", "Yes"),
        (r"\boxed{\text{Yes}}", "Yes"),
        (r"\boxed{\text{no.}}", "No"),
        (r"\boxed{\textbf{ No }.}", "No"),
        (r"\boxed{ \mathrm {Yes} }", "Yes"),
        (r"\boxed {Yes}", "Yes"),
        (r"$$\boxed{Yes}$$ is my judgement.", "Yes"),
        (r"\boxed{42} is what I get. \boxed{Yes}", "Yes"),
        (r"\boxed{\frac{1}{2}}, \boxed{{a}}, \boxed{}: \boxed{No}", "No"),
        (r"\boxed{Yes} and again \boxed{Yes}", "Yes"),
        (r"\boxed{Yes or No} \boxed{No}", "No"),
        (r"\boxed{the judgement: \boxed{No}}", "No"),
    ]

    def check(text, judgement):
        assert judgement_in(text) == judgement

    check_each(cases, check)


def test_malformed_judgements():
    cases = [
        "",
        "Yes",
        "The answer is right: Yes.",
        "boxed{Yes}",
        r"\fbox{Yes}",
        r"\boxed Yes",
        r"\boxed{}",
        r"\boxed{Yes",  # cut
        r"\boxed{Yes}. \boxed{N",
        r"\boxed{Yes}: \boxed{42}",
        r"\boxed{\frac{1}{2}}",
        r"\boxed{Yes or No}",
        r"\boxed{Yes, No}",
        r"\boxed{Yes..}",
        r"\boxed{Yes!}",
        r"\boxed{not No}",
        r"\boxed{\frac{Yes}}",
        r"\boxed{\text{Yes} or not}",
        r"\boxed{\text{Yes}\text{No}}",
        r"\boxed{{Yes}}",
        "\\boxed{ye\u017f}",  # a long s, whose upper case is S
    ]

    def check(text):
        assert judgement_in(text) is None

    check_each(cases, check)


def test_a_response_that_boxes_both_hedges():
    cases = [
        f"{YES} {NO}",
        f"{NO} {YES}",
        f"{YES} {NO} {YES}",
        f"{YES} \\boxed{{42}} {NO}",
        r"\boxed{yes.} … \boxed{\textbf{NO}}",
        r"\boxed{\boxed{Yes}} \boxed{No}",
        r"\boxed{Yes \boxed{No}} \boxed{Yes}",
        r"\boxed {No} \boxed{Yes}",
    ]

    def check(text):
        assert judgement_in(text) is None

    check_each(cases, check)


words = st.sampled_from(["Yes", "No", "yes.", r"\text{No}", "42", "", r"\frac{1}{2}", "Yes or No"])
MEANS = {"Yes": "Yes", "yes.": "Yes", "No": "No", r"\text{No}": "No"}


@given(st.lists(st.tuples(st.sampled_from(["so ", "} ", "{", "\\", "\n"]), words), max_size=5))
def test_it_is_the_last_box_unless_the_boxes_disagree(boxes):
    text = "".join(f"{before}\\boxed{{{word}}}" for before, word in boxes)
    judged_words = [MEANS.get(word) for _, word in boxes]
    hedges = {"Yes", "No"} <= set(judged_words)
    assert judgement_in(text) == (judged_words[-1] if judged_words and not hedges else None)


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 100_000,
        "\\boxed{\\text{" * 50_000,
        "\\boxed" * 100_000,
        "\\boxed{" + " " * 700_000,
        "\\boxed" + " " * 700_000,
        "\\boxed{Yes" + " " * 700_000 + "{",
        "\\boxed{\\text{Yes" + " " * 700_000 + "}",
        "{" * 700_000 + "\\boxed{" + "{" * 700_000,
        ("\\boxed{" + " " * 1000) * 700,
        ("\\boxed{" + " " * 1000 + "}") * 700 + "{",
    ],
    ids=lambda text: f"{text[:16]!r}",
)
def test_hostile_text_takes_linear_time(text):
    assert in_linear_time(judgement_in, text) is None


def test_columns_of_nulls():
    rows = pa.table({name: pa.nulls(2) for name in ("task", "response", "label")})
    change = JudgementRewardMapper().apply(rows)
    assert change.columns["judgement"].type == pa.string()
    assert change.columns["reward_verification_missing"].to_pylist() == ["other_task"] * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"wrong": 1}, r"^wrong 1.0 is not below right 1.0$"),
        ({"malformed": 2}, r"^malformed 2.0 is not below right 1.0$"),
        ({"right": float("nan")}, r"^field 'right' is nan; input should be a finite number$"),
    ],
)
def test_wrong_fields_are_errors(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(JudgementRewardMapper, fields)
