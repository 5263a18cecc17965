import collections
from pathlib import Path

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_letters import VERDICTS

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.columns import MESSAGES, content_ids
from rejuice.operators.mapper.math_verify_mapper import MathVerifyMapper
from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.mapper.recorded_rollout_mapper import RecordedRolloutMapper
from rejuice.operators.mapper.self_verification_mapper import SelfVerificationMapper
from rejuice.operators.registry import build
from rejuice.operators.selector.label_balance_selector import LabelBalanceSelector
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import run_in_memory

GSM8K = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k" / "model_solutions.jsonl"


def table(*groups, **columns):
    """Each group is words such as `c18`: the letter of the verdict, then the answer."""
    words = [(str(g), word) for g, group in enumerate(groups) for word in group.split()]
    prompts = [
        [{"role": "system", "content": "s"}, {"role": "user", "content": f"question {g}"}]
        for g, _ in words
    ]
    texts = {
        "prompt_id": [g for g, _ in words],
        "response_id": [f"r{i}" for i in range(len(words))],
        "reference": ["ref"] * len(words),
        "response": [f"I say {word[1:]}" for _, word in words],
        "verdict": [VERDICTS[word[0]] for _, word in words],
        "extracted_answer": [word[1:] or None for _, word in words],
    }
    arrays = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    return pa.table({**arrays, "prompt": pa.array(prompts, MESSAGES), **columns})


def after(operator, rows):
    """The rows that come out."""
    change = check_operator(operator, rows)
    return Frame.of(rows).after(change).table().to_pylist(), change


def verification(rows):
    return [row for row in rows if row["task"] == "verify"]


def judged(rows):
    return [(row["judged_response_id"], row["label"]) for row in verification(rows)]


def labels(rows):
    return collections.Counter(row["label"] for row in verification(rows))


def test_verification_prompts_come_after_their_group():
    source = table("c1 w2", "w3 c4 w3")
    rows, change = after(SelfVerificationMapper(), source)
    assert [row["task"] for row in rows] == ["generate"] * 2 + ["verify"] * 2 + ["generate"] * 3 + [
        "verify"
    ] * 2
    assert change.parents.tolist() == [0, 1, -1, -1, 2, 3, 4, -1, -1]
    assert change.reasons is None
    generated = [row for row in rows if row["task"] == "generate"]
    assert [
        {name: row[name] for name in source.column_names} for row in generated
    ] == source.to_pylist()
    assert {(row["label"], row["judged_response_id"]) for row in generated} == {(None, None)}


def test_a_verification_row_is_a_prompt_that_is_not_sampled():
    rows, _ = after(SelfVerificationMapper(template="{question}|{answer}"), table("c1 w2"))
    yes, no = verification(rows)
    prompt = [{"role": "user", "content": "question 0|1"}]
    assert yes == {
        "prompt_id": content_ids(
            [("0", content_ids([("user", "question 0|1", "Yes")])[0].as_py())]
        )[0].as_py(),
        "prompt": prompt,
        "reference": "Yes",
        "task": "verify",
        "label": "Yes",
        "judged_response_id": "r0",
        **dict.fromkeys(["response_id", "response", "verdict", "extracted_answer"]),
    }
    assert (no["label"], no["reference"], no["judged_response_id"]) == ("No", "No", "r1")
    assert len({row["prompt_id"] for row in rows}) == 3


def test_the_default_wording_shows_question_and_answer_and_asks_for_a_box():
    rows, _ = after(SelfVerificationMapper(), table("c1/2 w2"))
    message = verification(rows)[0]["prompt"][-1]["content"]
    assert "question 0" in message
    assert "1/2" in message
    assert "I say" not in message
    last = message.splitlines()[-1]
    assert r"\boxed{Yes}" in last
    assert r"\boxed{No}" in last


def test_the_whole_response_may_be_judged():
    rows, _ = after(SelfVerificationMapper(mode="response"), table("c1 w2"))
    messages = [row["prompt"][-1]["content"] for row in verification(rows)]
    assert ["I say 1" in m for m in messages] == [True, False]
    assert ["I say 2" in m for m in messages] == [False, True]


def test_a_response_that_holds_a_placeholder_is_not_filled_in():
    source = table("c{question} w{answer}")
    rows, _ = after(SelfVerificationMapper(template="{question}|{answer}"), source)
    contents = [row["prompt"][0]["content"] for row in verification(rows)]
    assert contents == ["question 0|{question}", "question 0|{answer}"]


def test_the_question_may_come_from_a_column():
    source = table("c1 w2", raw=["plain", "plain"])
    operator = SelfVerificationMapper(question="raw", template="{question}|{answer}")
    rows, _ = after(operator, source)
    assert [row["prompt"][0]["content"] for row in verification(rows)] == ["plain|1", "plain|2"]


def test_columns_are_carried_from_the_judged_response():
    source = table("c1 w2", "c3", level=[7, 8, 9])
    rows, _ = after(SelfVerificationMapper(carry=["level"]), source)
    assert [row["level"] for row in rows] == [7, 8, 7, 8, 9]


def test_the_last_user_message_is_the_question():
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "1 + 1?"},
    ]
    source = table("c1 w2").set_column(6, "prompt", pa.array([chat, chat], MESSAGES))
    rows, _ = after(SelfVerificationMapper(template="{question}|{answer}"), source)
    assert verification(rows)[0]["prompt"][0]["content"] == "1 + 1?|1"


@pytest.mark.parametrize("prompt", [None, [], [{"role": "system", "content": "s"}]])
def test_a_prompt_without_a_question_gives_none(prompt):
    source = table("c1 w2").set_column(6, "prompt", pa.array([prompt, prompt], MESSAGES))
    rows, _ = after(SelfVerificationMapper(), source)
    assert verification(rows) == []


def test_a_verification_row_has_no_rewards_of_its_own():
    out = run_in_memory([SelfVerificationMapper()], table("c1 w2", reward_accuracy=[1.0, 0.0]))
    assert out["reward_accuracy"].to_pylist() == [1.0, 0.0, None, None]


# The traps of the published post-processing, each by its name.


def test_trap_balance_is_guaranteed_without_spares():
    # Published: spares of all-right prompts fill up, so that the labels drift apart.
    source = table("c1 c2 c3 w4", "c1 c2", "w1 w2", "w1 w2 c3 c4", "c1 w2 w3 w4 w5")
    rows, _ = after(SelfVerificationMapper(max_per_label=3), source)
    assert labels(rows) == {"Yes": 4, "No": 4}
    of_prompt = collections.Counter(
        (row["prompt"][0]["content"].split("Problem:\n")[1][:10], row["label"])
        for row in verification(rows)
    )
    assert of_prompt == {
        ("question 0", "Yes"): 1,
        ("question 0", "No"): 1,
        ("question 3", "Yes"): 2,
        ("question 3", "No"): 2,
        ("question 4", "Yes"): 1,
        ("question 4", "No"): 1,
    }


def test_trap_nothing_is_truncated_before_it_is_shuffled():
    # Each prompt decides for itself, so that a prompt's place in the data does not matter.
    early, late = (
        judged(after(SelfVerificationMapper(), source)[0])
        for source in (table(*["c1 w2 w3"] * 40), table(*["c1 w2 w3"] * 40).slice(60))
    )
    assert late == early[40:]
    # Within a prompt, late responses are chosen as often as early ones.
    source = table(*["c1 w2 w3 w4 w5"] * 400)
    rows, _ = after(SelfVerificationMapper(), source)
    places = [int(r[1:]) % 5 for r, label in judged(rows) if label == "No"]
    assert all(60 < places.count(place) < 140 for place in (1, 2, 3, 4))


def test_trap_the_choice_is_seeded():
    source = table(*["c1 c2 w3 w4"] * 20)
    one, again, other = (
        judged(after(SelfVerificationMapper(seed=seed), source)[0]) for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_trap_nothing_is_oversampled():
    rows, change = after(SelfVerificationMapper(max_per_label=5), table("c1 c2 w3"))
    assert labels(rows) == {"Yes": 1, "No": 1}
    assert (change.notes["yes"], change.notes["no"]) == (1, 1)
    assert len({response for response, _ in judged(rows)}) == 2


@pytest.mark.parametrize("candidates", ["balanced", "all"])
def test_trap_duplicates_of_one_answer_are_judged_once(candidates):
    source = table("c1 c1 c1 w2 w2 w3")
    answers = source["extracted_answer"].to_pylist()
    answers[1], answers[4] = " 1\n", "2 "
    source = source.set_column(5, "extracted_answer", pa.array(answers))
    rows, change = after(SelfVerificationMapper(candidates=candidates, max_per_label=9), source)
    assert labels(rows) == (
        {"Yes": 1, "No": 1} if candidates == "balanced" else {"Yes": 1, "No": 2}
    )
    ids = [row["prompt_id"] for row in verification(rows)]
    assert len(set(ids)) == len(ids)
    assert change.notes["distinct_candidates"] == 3


def test_trap_pass_rates_leave_out_what_is_not_graded():
    # Published: correct / group size, so a prompt with dropped rows never counts as all right.
    _, change = after(SelfVerificationMapper(), table("c1 n t9", "w1 e2", "c1 w2 n", "n t8 ?7"))
    assert change.notes == {
        "yes": 1,
        "no": 1,
        "unlabelled": 0,
        "mixed_prompts": 1,
        "all_right_prompts": 1,
        "all_wrong_prompts": 1,
        "ungraded_prompts": 1,
        "right_responses": 2,
        "wrong_responses": 2,
        "distinct_candidates": 4,
        "over_max_per_label": 0,
        "unpaired": 2,
        "short_of_max_per_label": 4,
        "no_answer_responses": 3,
        "timeout_responses": 2,
        "verifier_error_responses": 1,
    }


@pytest.mark.parametrize(
    ("fields", "labelled", "over", "unpaired", "short"),
    [
        ({}, (2, 2), 6, 2, 6),
        ({"max_per_label": 2}, (3, 3), 3, 3, 14),
        ({"max_per_label": 9}, (3, 3), 0, 6, 84),
        ({"candidates": "all"}, (7, 5), 0, 0, None),
        ({"candidates": "all", "max_per_label": 1}, (3, 3), 6, 0, 4),
        ({"candidates": "all", "max_per_label": 2}, (5, 4), 3, 0, 11),
    ],
)
def test_the_notes_account_for_each_candidate(fields, labelled, over, unpaired, short):
    # The last prompt is graded, and has no answer that is graded one way.
    source = table("c1 c2 c3 c4 w5", "c1 c2 w5 w6 w7 c1", "c1", "w2", "n", "c1 w1")
    rows, change = after(SelfVerificationMapper(**fields), source)
    assert (labels(rows)["Yes"], labels(rows)["No"]) == labelled
    assert change.notes["distinct_candidates"] == 12
    assert (change.notes["over_max_per_label"], change.notes["unpaired"]) == (over, unpaired)
    assert change.notes.get("short_of_max_per_label") == short


@pytest.mark.slow
def test_no_prompt_gives_more_of_a_label_than_the_limit_chosen_at_random():
    source = table(*["c1 c2 c3 c4 w5 w6 w7"] * 200)
    operator = SelfVerificationMapper(candidates="all", max_per_label=2)
    rows, _ = after(operator, source)
    assert labels(rows) == {"Yes": 400, "No": 400}
    of_prompt = collections.Counter((int(r[1:]) // 7, label) for r, label in judged(rows))
    assert set(of_prompt.values()) == {2}
    places = collections.Counter(int(r[1:]) % 7 for r, _ in judged(rows))
    # Binomial: 100 with a standard deviation of 7, and 133 with one of 7.
    assert all(70 < places[at] < 130 for at in range(4))
    assert all(105 < places[at] < 161 for at in range(4, 7))
    # The first of those that a smaller limit leaves.
    fewer = SelfVerificationMapper(candidates="all", max_per_label=1)
    assert set(judged(after(fewer, source)[0])) < set(judged(rows))


def test_only_graded_answers_are_judged():
    rows, _ = after(SelfVerificationMapper(candidates="all"), table("n1 t2 e3 ?4 c w", "w5"))
    assert judged(rows) == [("r6", "No")]


def test_answers_without_a_verdict_may_be_judged_too():
    # 9 has a verdict at one of its three places, which holds for all; 5 is graded both ways.
    source = table("t9 c9 e9 t8 n w7", "e1 e1 e2", "c5 w5 t5")
    operator = SelfVerificationMapper(candidates="all", ungraded="ask")
    rows, change = after(operator, source)
    assert judged(rows)[:3] == [("r1", "Yes"), ("r5", "No"), ("r3", None)]
    questions = [row["prompt"][-1]["content"] for row in verification(rows)[3:]]
    assert sorted("answer:\n1\n" in text for text in questions) == [False, True]
    assert [(r["label"], r["reference"]) for r in verification(rows)[3:]] == [(None, None)] * 2
    counts = {
        name: change.notes[name] for name in ("yes", "no", "unlabelled", "distinct_candidates")
    }
    assert counts == {"yes": 1, "no": 1, "unlabelled": 3, "distinct_candidates": 5}


def test_a_response_without_an_answer_is_not_judged_with_the_ungraded_ones():
    operator = SelfVerificationMapper(mode="response", candidates="all", ungraded="ask")
    rows, _ = after(operator, table("n e t9 c1"))
    assert judged(rows) == [("r3", "Yes"), ("r2", None)]


def test_a_limit_is_one_of_labels():
    source = table("t1 t2 t3 c4 c5 w6 w7")
    operator = SelfVerificationMapper(candidates="all", ungraded="ask", max_per_label=1)
    rows, change = after(operator, source)
    assert labels(rows) == {"Yes": 1, "No": 1, None: 3}
    assert change.notes["over_max_per_label"] == 2
    assert change.notes["short_of_max_per_label"] == change.notes["unpaired"] == 0


def test_an_answer_that_is_graded_both_ways_is_left_out():
    rows, _ = after(SelfVerificationMapper(candidates="all"), table("c1 w1 w2"))
    assert judged(rows) == [("r2", "No")]


def test_all_candidates_can_be_balanced_over_the_dataset():
    source = table("c1 c2 c3", "w1 w2", "c1 w2", "c1 n2")
    rows, change = after(SelfVerificationMapper(candidates="all"), source)
    assert labels(rows) == {"Yes": 5, "No": 3}
    out = pa.table(dict(change.columns))
    balance = LabelBalanceSelector(column="label", positive="Yes")
    balanced = out.filter(run(balance, out).reasons.is_null()).to_pylist()
    assert labels(balanced) == {"Yes": 3, "No": 3}
    assert len(balanced) - 6 == source.num_rows


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"template": "{answer}"}, "template does not contain {question}"),
        ({"template": "{question}"}, "template does not contain {answer}"),
        ({"mode": "response", "template": "{question}"}, "template does not contain {response}"),
        (
            {"template": "{question}{answer}{response}"},
            "template contains {response}, which mode: answer does not fill in",
        ),
        (
            {"carry": ["verdict"]},
            "carry must not name 'verdict', which verification rows set themselves",
        ),
        ({"max_per_label": 0}, "field 'max_per_label' is 0; input should be greater than 0"),
        (
            {"ungraded": "ask"},
            "ungraded: ask has no labels to balance: it needs candidates: all",
        ),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(SelfVerificationMapper, fields)
    assert str(error.value) == message


WORD = st.builds(str.__add__, st.sampled_from("cwnte?"), st.sampled_from(["", "1", "2", "3"]))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.lists(WORD, min_size=1, max_size=6).map(" ".join), max_size=6),
    st.none() | st.integers(1, 3),
    st.sampled_from(["balanced", "all"]),
)
def test_rows_are_conserved_and_labels_are_true(groups, most, candidates):
    source = table(*groups)
    rows, change = after(SelfVerificationMapper(max_per_label=most, candidates=candidates), source)
    generated = [row for row in rows if row["task"] == "generate"]
    assert [row["response_id"] for row in generated] == source["response_id"].to_pylist()
    verdict = dict(
        zip(source["response_id"].to_pylist(), source["verdict"].to_pylist(), strict=True)
    )
    truth = {"Yes": "correct", "No": "wrong_answer"}
    assert all(verdict[response] == truth[label] for response, label in judged(rows))
    expected = {"Yes": 0, "No": 0}
    for group in groups:
        right, wrong = ({w for w in group.split() if w[0] == x and w[1:]} for x in "cw")
        both = {w[1:] for w in right} & {w[1:] for w in wrong}
        n_right, n_wrong = len(right) - len(both), len(wrong) - len(both)
        limit = most or (1 if candidates == "balanced" else 99)
        quota = min(n_right, n_wrong, limit)
        expected["Yes"] += quota if candidates == "balanced" else min(n_right, limit)
        expected["No"] += quota if candidates == "balanced" else min(n_wrong, limit)
    assert (labels(rows)["Yes"], labels(rows)["No"]) == (expected["Yes"], expected["No"])
    kinds = ("yes", "no", "unlabelled", "over_max_per_label", "unpaired")
    assert sum(change.notes[kind] for kind in kinds) == change.notes["distinct_candidates"]
    assert min(change.notes.values()) >= 0
    codes = [int(row["prompt_id"]) for row in generated]
    assert codes == sorted(codes)
    kept = change.parents[change.parents >= 0]
    assert kept.tolist() == list(range(source.num_rows))


@pytest.mark.slow
@pytest.mark.skipif(
    not GSM8K.exists(), reason="the GSM8K model solutions are not next to the checkout"
)
def test_real_rollouts_become_balanced_verification_prompts():
    models = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]
    recipe = [
        PromptTemplateMapper(reference="ground_truth", reference_pattern="A: (.*)"),
        RecordedRolloutMapper(
            columns=models, text="solution", keep_fields={"is_correct": "published"}
        ),
        MathVerifyMapper(),
        SelfVerificationMapper(candidates="all", carry=["published"]),
        LabelBalanceSelector(column="label", positive="Yes"),
    ]
    out = run_in_memory(recipe, pyarrow.json.read_json(GSM8K)).to_pylist()
    assert labels(out) == {"Yes": 442, "No": 442}
    generated = [row for row in out if row["task"] == "generate"]
    assert len(generated) == 2640
    # 660 questions x 4 models: every verdict is the published one.
    assert all((row["verdict"] == "correct") == row["published"] for row in generated)
    assert all((row["label"] == "Yes") == row["published"] for row in verification(out))


def test_the_same_question_under_two_prompts_makes_two_verification_groups():
    rows = table("c1 w2", "c1 w2").to_pylist()
    for row in rows:
        row["prompt"] = [{"role": "user", "content": "the same"}]
    out, _ = after(SelfVerificationMapper(), pa.Table.from_pylist(rows, schema=table("c1").schema))
    ids = [row["prompt_id"] for row in verification(out)]
    assert len(set(ids)) == len(ids) == 4
