import collections
import time

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_letters import VERDICTS

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.mapper import verdict_recheck_mapper
from rejuice.operators.mapper.math_verify_mapper import MathVerifyMapper
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from rejuice.operators.mapper.verdict_recheck_mapper import VerdictRecheckMapper
from rejuice.operators.registry import build
from rejuice.operators.verifier.pool import GradingOutcome
from rejuice.pipelines.engine.steps import run_in_memory

NOTES = ("rechecked", "agree", "disagree", "right_to_wrong", "wrong_to_right", "recheck_failed")


def table(*rows):
    """Two rows a prompt, each the letter of the verdict, the answer, the reference, the response.

    Without a response, the answer is its first word.
    """
    rows = [(*row, f"{row[1]} is what I say.")[:4] for row in rows]
    letters, answers, references, responses = zip(*rows, strict=True) if rows else [()] * 4
    columns = {
        "prompt_id": [str(at // 2) for at in range(len(rows))],
        "verdict": [VERDICTS[letter] for letter in letters],
        "response": responses,
        "extracted_answer": answers,
        "reference": references,
    }
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def rechecked(operator, rows):
    change = check_operator(operator, rows)
    return change.columns["recheck"].to_pylist(), [change.notes[name] for name in NOTES]


class FakePool:
    """A verifier for which the first word of a response is the outcome."""

    def __init__(self):
        self.calls = []

    def run(self, pairs, *, timeout, workers, rule):
        self.calls.append((pairs, timeout, rule))
        return [GradingOutcome(response.split()[0]) for response, _ in pairs]


@pytest.fixture
def fake_pool(monkeypatch):
    pool = FakePool()
    monkeypatch.setattr(verdict_recheck_mapper, "shared_pool", lambda workers: pool)
    return pool


def test_each_verdict_is_compared_with_that_of_the_other_verifier(fake_pool):
    outcomes = ("correct", "wrong_answer", "timeout", "verifier_error")
    rows = table(*((letter, slug, "1") for letter in "cw" for slug in outcomes))
    recheck, notes = rechecked(VerdictRecheckMapper(), rows)
    assert recheck == [*outcomes, *outcomes]
    assert notes == [8, 2, 2, 1, 1, 4]


def test_what_the_verifier_gave_no_verdict_on_is_not_graded_again(fake_pool):
    rows = table(
        *((letter, "correct", "1") for letter in "nte?"), ("c", None, "1"), ("c", "1", "1", None)
    )
    recheck, notes = rechecked(VerdictRecheckMapper(), rows)
    assert recheck == [None] * 6
    assert notes == [0] * 6
    assert fake_pool.calls == []


def test_nothing_is_graded_against_a_reference_that_is_missing_or_bad(fake_pool):
    rows = table(("c", "correct", None), ("c", "correct", " "), ("w", "correct", r"\boxed{1}"))
    recheck, notes = rechecked(VerdictRecheckMapper(), rows)
    assert recheck == [None, "verifier_error", "verifier_error"]
    assert notes == [2, 0, 0, 0, 0, 2]
    assert fake_pool.calls == []


def test_an_answer_over_the_limits_is_not_read_as_mathematics(fake_pool):
    rows = table(("w", "9" * 401, "1"), ("w", "2^{2^{2^{2}}}", "1"), ("w", "correct", "1"))
    assert rechecked(VerdictRecheckMapper(), rows) == ([None, None, "correct"], [1, 0, 1, 0, 1, 0])


def test_no_response_is_over_the_limits(fake_pool):
    long = "correct " + "He has 7" + "7" * 500 + " of " + "{[(" * 20 + "them. " * 50_000
    rows = table(("c", "1", "1", long), ("c", "1", "1", "correct 9^{9^{9^9}}, no, 1"))
    assert rechecked(VerdictRecheckMapper(), rows)[0] == ["correct", "correct"]


def test_math_verify_sees_the_response_and_the_reference_once(fake_pool):
    rows = table(
        *[("c", "1", "1"), ("w", "1", "1"), ("c", "1", "2"), ("c", "1", "1", "correct: 1")] * 50
    )
    fake_pool.run = lambda pairs, **options: (
        fake_pool.calls.append((pairs, options)) or [GradingOutcome("correct") for _ in pairs]
    )
    change = run(VerdictRecheckMapper(timeout=0.5), rows)
    sentence = "1 is what I say."
    ((pairs, options),) = fake_pool.calls
    assert pairs == [(sentence, "1"), (sentence, "2"), ("correct: 1", "1")]
    assert (options["timeout"], options["rule"]) == (0.5, "math_verify")
    assert [change.notes[name] for name in NOTES] == [200, 150, 50, 0, 50, 0]


def test_a_response_that_is_an_answer_is_shown_as_mathematics(fake_pool):
    fake_pool.run = lambda pairs, **_: (
        fake_pool.calls.append(pairs) or [GradingOutcome("correct") for _ in pairs]
    )
    run(VerdictRecheckMapper(), table(("c", "x^2", "1", " x^2\n"), ("c", "2", "1", "x^2 = 2")))
    assert fake_pool.calls == [[("$x^2$", "1"), ("x^2 = 2", "1")]]


def test_a_random_share_is_graded_again(fake_pool):
    rows = table(*[("c", "correct", "1")] * 2000)
    one, again, other = (
        run(VerdictRecheckMapper(share=0.25, seed=seed), rows) for seed in (1, 1, 2)
    )
    # Binomial: 500 with a standard deviation of 19.
    assert 420 < one.notes["rechecked"] < 580
    assert one.columns["recheck"].null_count == 2000 - one.notes["rechecked"]
    assert one.columns == again.columns
    assert one.columns != other.columns
    check_operator(VerdictRecheckMapper(share=0.25), rows.slice(0, 40))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("cwnte?"),
            st.sampled_from(["correct", "wrong_answer", "timeout", None]),
            st.sampled_from(["1", "2", None, "nan"]),
        ),
        max_size=12,
    )
)
def test_the_notes_add_up(rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict_recheck_mapper, "shared_pool", lambda workers: FakePool())
        recheck, notes = rechecked(VerdictRecheckMapper(), table(*rows))
    counts = dict(zip(NOTES, notes, strict=True))
    assert counts["rechecked"] == sum(slug is not None for slug in recheck)
    assert counts["rechecked"] == counts["agree"] + counts["disagree"] + counts["recheck_failed"]
    assert counts["disagree"] == counts["right_to_wrong"] + counts["wrong_to_right"]
    gradable = [row for row in rows if row[0] in "cw" and None not in row]
    assert counts["rechecked"] == len(gradable)


# Labels that both verifiers stand by; graded by the real one.
AGREED = [
    ("c", "1,234", "1234"),
    ("c", "0.30000000000000004", "0.3"),
    ("c", "0.5", "50%"),
    ("c", r"\frac{2}{4}", "0.5"),
    ("c", r"2\cdot\pi", r"2\pi"),
    ("c", "(1, 2)", "(1,2)"),
    ("c", r"\sqrt{8}", r"2\sqrt{2}"),
    ("w", "18.1", "18"),
    ("w", r"\sqrt{7}", r"2\sqrt{2}"),
]


@pytest.mark.slow
def test_true_labels_stand():
    rows = table(*((v, a, r, f"So the answer is ${a}$.") for v, a, r in AGREED))
    change = run(VerdictRecheckMapper(), rows)
    assert change.columns["recheck"].to_pylist() == rows["verdict"].to_pylist()
    assert [change.notes[name] for name in NOTES] == [9, 9, 0, 0, 0, 0]


@pytest.mark.slow
def test_labels_that_are_wrong_are_found():
    wrong = {"c": "w", "w": "c"}
    rows = table(*((wrong[v], a, r, f"So the answer is ${a}$.") for v, a, r in AGREED))
    change = run(VerdictRecheckMapper(), rows)
    assert [change.notes[name] for name in NOTES] == [9, 0, 9, 2, 7, 0]


def test_an_answer_that_was_not_the_response_s_is_found():
    """Both tiers grade the answer that was extracted; only the response tells that it was not."""
    rows = table(
        ("w", "3", "42", r"After 3 steps: $\boxed{42}$."),
        ("c", "42", "42", r"Not $42$, as one might think. The answer is $\boxed{41}$."),
    )
    change = run(VerdictRecheckMapper(), rows)
    assert change.columns["recheck"].to_pylist() == ["correct", "wrong_answer"]


KNOWN = [  # As documented: verdicts of the verifier that math-verify does not share.
    ("w", r"\frac{1}{2^{99}}", "1/2^{98}", r"The answer is $\frac{1}{2^{99}}$."),
    ("c", "42", "42", "So 42 is the answer, reached in 3 steps."),
    ("w", "42 or $43$", "43", "The answer is 42 or $43$."),
    ("w", "at least 4", "4", "The answer is at least 4."),
    ("w", "not 4", "4", "The answer isn't 4."),
    ("w", "(1,2)", "1,2", "(1,2)"),
    ("c", "5 boxes of 12", "5", "5 boxes of 12"),
    ("c", "three", "3", "three"),
    ("c", "1.45 million", "1450000", "1.45 million"),
    ("c", "6.02e23", r"6.02 \times 10^{23}", "6.02e23"),
    ("c", r"50\%", "0.5", r"So it is $50\%$."),
    ("c", r"x \le 2", r"(-\infty,2]", r"x \le 2"),
    ("c", r"\frac{\pi}{2}", r"90^\circ", r"\frac{\pi}{2}"),
]


@pytest.mark.slow
def test_the_known_differences_are_those_that_are_documented():
    rows = table(*KNOWN)
    graded = MathVerifyMapper().map(rows)
    assert graded["verdict"].to_pylist() == rows["verdict"].to_pylist()
    assert graded["extracted_answer"].to_pylist() == rows["extracted_answer"].to_pylist()
    change = run(VerdictRecheckMapper(), rows)
    assert [change.notes[name] for name in NOTES] == [13, 0, 13, 8, 5, 0]


HOSTILE = [  # With an answer of 42 in front, where the mapper's limits do not look.
    r"$9^{9^{9^{9}}}$",
    "$1000000!$",
    r"\boxed{" * 20_000,
    r"\boxed{\int_0^{\infty} e^{-x^x}\sin(x^3)dx}",
    r"$\sum_{k=1}^{10^{9}}\frac{1}{k^k}$",
    "$" + r"\frac{1}{1+" * 1500 + "2" + "}" * 1500 + "$",
    "$(x+y+z+1)^{900}(x+2)^{999}$",
    "7" * 1_000_000,
    "answer " * 100_000,
    r"\[ x" * 30_000,
    "1 " * 100_000,
    "\x00 $4\x002$",
]


@pytest.mark.slow
@pytest.mark.alone
def test_hostile_responses_reach_a_worker_and_are_over_in_time():
    easy = ("c", "42", "42", r"It is $\boxed{42}$.")
    rows = table(easy, *(("w", "42", "43", f"<answer>42</answer> {m}") for m in HOSTILE), easy)
    start = time.monotonic()
    change = run(VerdictRecheckMapper(timeout=1.0), rows)
    assert time.monotonic() - start < len(HOSTILE) + 60
    first, *recheck, last = change.columns["recheck"].to_pylist()
    assert (first, last) == ("correct", "correct")
    assert set(recheck) <= {"wrong_answer", "timeout", "verifier_error"}
    assert recheck[:2] == ["timeout", "timeout"]
    assert change.notes["rechecked"] == len(HOSTILE) + 2
    assert change.notes["right_to_wrong"] == change.notes["wrong_to_right"] == 0
    assert change.notes["recheck_failed"] >= 4
    # And the verifier is as it was.
    after = MathVerifyMapper().map(table(("c", "", r"2\sqrt{2}", r"\sqrt{8}")))
    assert after["verdict"].to_pylist() == ["correct"]


@pytest.mark.slow
def test_the_verdicts_on_real_responses_stand(shared_data):
    models = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]
    recipe = [
        PromptTemplateMapper(reference="ground_truth", reference_pattern="A: (.*)"),
        RecordedRolloutMapper(
            columns=models, text="solution", keep_fields={"is_correct": "published"}
        ),
        MathVerifyMapper(),
    ]
    out = run_in_memory(recipe, pyarrow.json.read_json(shared_data / "gsm8k/model_solutions.jsonl"))
    change = run(VerdictRecheckMapper(), out.select(VerdictRecheckMapper().reads()))
    # Four of 2,640 have no answer.
    assert [change.notes[name] for name in NOTES] == [2636, 2636, 0, 0, 0, 0]
    pairs = zip(out["published"].to_pylist(), change.columns["recheck"].to_pylist(), strict=True)
    assert collections.Counter(pairs) == {
        (True, "correct"): 1008,
        (False, "wrong_answer"): 1628,
        (False, None): 4,
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"share": 0}, "field 'share' is 0; input should be greater than 0"),
        ({"share": 1.1}, "field 'share' is 1.1; input should be less than or equal to 1"),
        ({"timeout": 0}, "field 'timeout' is 0; input should be greater than 0"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(VerdictRecheckMapper, fields)
    assert str(error.value) == message
