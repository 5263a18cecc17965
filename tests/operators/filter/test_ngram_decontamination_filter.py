"""Questions of evaluation sets in the texts of a dataset."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.ngram_decontamination_filter import (
    NgramDecontaminationFilter,
    found_in,
)

QUESTIONS = [
    "Tom buys 3 apples and 4 pears. How many pieces of fruit does he have now?",
    "What is 2 + 2?",
    "Un café coûte trois euros, un thé deux euros: combien coûtent les deux ensemble?",
]


@pytest.fixture
def fruit(tmp_path):
    path = tmp_path / "fruit.jsonl"
    path.write_text("".join(json.dumps({"question": each}) + "\n" for each in QUESTIONS), "utf-8")
    return str(path)


def found(texts, against, **fields):
    step = NgramDecontaminationFilter(against=against, column="text", **fields)
    table = pa.table({"text": texts})
    questions = step.questions(table)
    assert step.decide(table).is_valid() == questions.is_valid()
    return [each and each.partition(":")[0] for each in questions.to_pylist()]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (f"Solve this. {QUESTIONS[0]} Explain.", 0),
        (QUESTIONS[0].upper().replace(" ", "\n - "), 0),
        ("Tom buys 3 apples and 4 pears. How many pieces? Say it.", 0),  # 3 of its 9 runs.
        ("Tom buys 3 apples and 4 pears. How much?", None),  # 1 of them.
        ("what is 2 + 2", 1),
        ("What is 2 + 2 + 1?", None),
        ("Anna says: un cafe coute trois euros, un the deux euros. Combien coutent les deux?", 2),
        ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_a_question_is_found_in_a_text(fruit, text, row):
    expected = None if row is None else f"fruit row {row}"
    assert found([text, "nothing"], {"fruit": fruit}) == [expected, None]


def test_one_run_is_enough_or_all_are_needed(fruit):
    text = ["Tom buys 3 apples and 4 pears. How much?", QUESTIONS[0]]
    assert found(text, {"fruit": fruit}, min_share=0) == ["fruit row 0", "fruit row 0"]
    assert found(text, {"fruit": fruit}, min_share=1) == [None, "fruit row 0"]


def test_other_numbers_are_the_same_only_where_they_are_equal(fruit):
    text = [QUESTIONS[0].replace("3", "1,250").replace("4", "0.5")]
    assert found(text, {"fruit": fruit}) == ["fruit row 0"]  # 2 of 9 runs have a number.
    assert found(text, {"fruit": fruit}, min_share=0.8) == [None]
    assert found(text, {"fruit": fruit}, min_share=0.8, numbers="equal") == ["fruit row 0"]


def test_of_several_questions_it_is_that_of_which_most_is_there(fruit, tmp_path):
    other = tmp_path / "other.parquet"
    longer = QUESTIONS[0] + " And how many are left when he has eaten two of the apples?"
    pq.write_table(pa.table({"problem": [longer, QUESTIONS[0]], "id": [1, 2]}), other)
    sets = {"other": {"path": str(other), "column": "problem"}, "fruit": fruit}
    assert found([QUESTIONS[0], longer], sets) == ["other row 1", "other row 0"]


def test_chats_are_compared_and_responses_share_their_prompt(fruit):
    chat = [{"role": "user", "content": QUESTIONS[0]}]
    table = pa.table({"prompt": [chat, chat, [{"role": "user", "content": "No."}]]})
    reasons = NgramDecontaminationFilter(against={"fruit": fruit}).decide(table)
    assert reasons.to_pylist() == ["contaminated", "contaminated", None]


def test_other_columns_than_prompts_may_divide_a_group(fruit):
    rows = {"prompt_id": ["p", "p"], "solution": [QUESTIONS[0], "No."], "question": ["a", "a"]}
    step = NgramDecontaminationFilter(against={"fruit": fruit}, column="solution")
    assert check_operator(step, pa.table(rows)).reasons.to_pylist() == ["contaminated", None]
    assert step.drops_within_groups()
    prompts = NgramDecontaminationFilter(against={"fruit": fruit}, column="question")
    assert not prompts.drops_within_groups()


@pytest.mark.parametrize(
    ("question", "same", "other"),
    [
        (
            "У Тома двенадцать яблок, пять он съедает. Сколько яблок у него осталось?",
            "Скажи: у тома двенадцать яблок, пять он съедает, сколько яблок у него осталось",
            "У него было двенадцать подруг, если у него было время.",
        ),
        ("汤姆有十二个苹果，吃了五个，还剩几个？", "请问，汤姆有十二个苹果，吃了五个，还剩几个", "汤姆吃了五个梨。"),
    ],
)  # fmt: skip
def test_words_of_other_scripts(tmp_path, question, same, other):
    path = tmp_path / "set.json"
    path.write_text(json.dumps([{"question": question}]), "utf-8")
    assert found([same, other], {"a": str(path)}) == ["a row 0", None]


def test_how_questions_are_put_is_no_sign_of_one(tmp_path):
    """And a question that is there sixty times is one question."""
    put = "Answer the following multiple choice question with one of the letters A to D:"
    questions = [f"{put} what is the capital of country number {at} here?" for at in range(60)]
    path = tmp_path / "set.json"
    path.write_text(json.dumps([{"question": each} for each in [*questions, *questions[:1] * 60]]))
    texts = [f"{put} who wrote the first of these plays, and when?", questions[7], questions[0]]
    assert found(texts, {"a": str(path)}, min_share=0) == [None, "a row 7", "a row 0"]


def test_the_template_of_prompts_is_no_question_of_theirs():
    put = "Please reason step by step, and put your final answer within a box at the end."
    names = ["red", "blue", "green", "black", "white", "brown", "grey", "pink"]
    prompts = [f"How many {name} balls are in a bag of ten {name} ones? {put}" for name in names]
    trained = [f"What is the sum of two and {name}? {put}" for name in names]
    assert found_in(pa.chunked_array([trained]), pa.chunked_array([prompts])) == 0
    trained.append(f"Tell me: {prompts[3].lower()}")
    assert found_in(pa.chunked_array([trained]), pa.chunked_array([prompts])) == 1


LONG = "Tom buys {} red apples and {} green pears at the market, how much fruit is it in all?"
SHARED = "equally among 3 friends. How many eggs does each get?"


@pytest.mark.parametrize(
    ("trained", "question", "known"),
    [
        ("What is 12 + 7 - 3?", "What  is 12 + 7 - 3?\n", 1),
        ("What is 12 + 7 - 3?", "What is 12 - 7 + 3?", 0),
        ("12 - -3", "12 - 3", 0),
        (LONG.format(3, 4), LONG.format(3, 4).upper(), 1),
        (f"Think. {LONG.format(3, 4)}", LONG.format(3, 4), 1),
        (LONG.format(3, 4), LONG.format(3, 5), 0),
        (f"Question 5. {LONG.format('the', 'the')}", LONG.format("the", "the"), 1),
        # Two problems of the demo, of which the one ends as the other does.
        (f"Finn finds 15 eggs and Ivy finds 12. They share all of them {SHARED}", f"Rosa shares 12 eggs {SHARED}", 0),
    ],
)  # fmt: skip
def test_problems_that_differ_in_numbers_or_signs_are_different(trained, question, known):
    assert found_in(pa.chunked_array([[trained]]), pa.chunked_array([[question]])) == known


def test_questions_that_differ_in_their_numbers_are_one_where_numbers_are_equal(tmp_path):
    questions = [f"Tom has {at} apples and {at + 3} pears and {2 * at} plums, how much fruit is it?" for at in range(60)]  # fmt: skip
    path = tmp_path / "set.json"
    path.write_text(json.dumps([{"question": each} for each in questions]))
    for numbers, row in (("differ", 7), ("equal", 0)):
        assert found([questions[7]], {"a": str(path)}, numbers=numbers) == [f"a row {row}"]


WORDS = st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join)


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 4))
def test_the_best_is_that_of_comparing_each_with_each(tmp_path_factory, texts, questions, n):
    def runs(text):
        words = text.split()
        if len(words) < n:
            return {("whole", *words)} if words else set()
        return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}

    def best(text):
        shares = [
            (-len(runs(each) & runs(text)) / len(runs(each)), row)
            for row, each in enumerate(questions)
            if runs(each) & runs(text)
        ]
        enough = [pair for pair in shares if -pair[0] >= 0.25]
        return f"a row {min(enough)[1]}" if enough else None

    path = tmp_path_factory.mktemp("set") / "a.json"
    path.write_text(json.dumps([{"text": each} for each in questions]), "utf-8")
    assert found(pa.array(texts, pa.string()), {"a": str(path)}, n=n) == list(map(best, texts))


def test_a_file_that_has_changed_is_read_again(fruit, tmp_path):
    step = NgramDecontaminationFilter(against={"fruit": fruit}, column="text")
    before = step.cache_key_fields()
    (tmp_path / "fruit.jsonl").write_text('{"question": "Something else"}\n')
    assert step.cache_key_fields() != before
    assert found([QUESTIONS[0], "something else"], {"fruit": fruit}) == [None, "fruit row 0"]


def test_what_cannot_be_read_is_named(fruit, tmp_path):
    def refused(of):
        with pytest.raises(DataError) as caught:
            NgramDecontaminationFilter(against={"a": of}).preflight()
        return str(caught.value)

    gone = str(tmp_path / "gone.jsonl")
    assert refused(gone).startswith(f"cannot read the evaluation set '{gone}': ")
    assert refused({"path": fruit, "column": "problem"}) == (
        f"the evaluation set '{fruit}' has no column problem; give `column`, one of question"
    )
    (tmp_path / "a.csv").write_text("id,words\n1,hello\n")
    assert "has no column question or problem or" in refused(str(tmp_path / "a.csv"))
