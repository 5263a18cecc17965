"""Questions for small language models: right, in one split each, and the same for the same seed."""

import re

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RejuiceError
from rejuice.pipelines.demo.datasets import first_rows, write_dataset
from rejuice.pipelines.demo.problems import SPLITS, DemoOptions, number_question, number_questions

MOST = {2: 20, 3: 99, 4: 99}


@given(st.integers(0, 9), st.sampled_from(SPLITS), st.integers(0, 10_000), st.integers(2, 4))
def test_a_sum_is_that_of_the_question(seed, split, i, level):
    found = number_question(seed, split, i, (level,))
    text = re.fullmatch(r"What is (\d+(?: [+-] \d+)+)\?", found.question)[1]
    numbers = [
        int(each) for each in re.findall(r"[+-]? ?\d+", text.replace("+ ", "").replace("- ", "-"))
    ]
    assert found.answer == str(sum(numbers))
    assert found.level == level
    assert len(numbers) == (3 if level == 4 else 2)
    assert all(1 <= abs(each) <= MOST[level] for each in numbers)
    assert all(sum(numbers[:n]) >= 0 for n in range(len(numbers)))
    assert number_question(seed, split, i, (level,)) == found


@given(st.integers(0, 9), st.sampled_from(SPLITS), st.integers(0, 10_000))
def test_the_larger_or_smaller_is_one_of_two_different_numbers(seed, split, i):
    found = number_question(seed, split, i, (1,))
    word, *numbers = re.fullmatch(
        r"Which number is (larger|smaller), (\d+) or (\d+)\?", found.question
    ).groups()
    values = sorted(map(int, numbers))
    assert values[0] < values[1]
    assert int(found.answer) == values[-1 if word == "larger" else 0]


def test_no_two_splits_share_a_question_and_none_comes_twice():
    found = {split: [each.question for each in number_questions(0, split, 900)] for split in SPLITS}
    flat = [each for of_split in found.values() for each in of_split]
    assert len(set(flat)) == 2_700
    for split in SPLITS:  # Nor one with its numbers in another order.
        swapped = {_swapped(each) for each in found[split]}
        assert not any(swapped & set(found[each]) for each in SPLITS if each != split)
    other = {each.question for each in number_questions(1, "train", 900)}
    assert len(other & set(found["train"])) < 400  # of a level there are few


def _swapped(question):
    return re.sub(r"(\d+)( \+ | or )(\d+)", r"\3\2\1", question)


def test_a_file_has_what_its_first_rows_say(tmp_path):
    path = tmp_path / "numbers.parquet"
    write_dataset(path, "numbers", DemoOptions(prompts=30, split="validation", levels=(2,)))
    first = first_rows(
        "numbers", DemoOptions(seed=0, prompts=30, split="validation", levels=(2,)), most=7
    )
    assert pq.read_table(path).slice(0, 7).equals(first)
    assert set(pq.read_table(path)["level"].to_pylist()) == {2}


def test_more_questions_than_there_are():
    with pytest.raises(RejuiceError, match="questions of these levels; ask for fewer"):
        list(number_questions(0, "test", 2_000, (2,)))
