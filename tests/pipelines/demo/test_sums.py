"""Sums for small language models: right, in one split each, and the same for the same seed."""

import re

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import RejuiceError
from rejuice.pipelines.demo.problems import SPLITS
from rejuice.pipelines.demo.sums import first_sums, sum_of, sums, write_sums


@given(st.integers(0, 9), st.sampled_from(SPLITS), st.integers(0, 10_000), st.integers(1, 4))
def test_the_answer_is_that_of_the_question(seed, split, i, level):
    found = sum_of(seed, split, i, (level,))
    text = re.fullmatch(r"What is (\d+(?: [+-] \d+)+)\?", found.question)[1]
    numbers = [
        int(each) for each in re.findall(r"[+-]? ?\d+", text.replace("+ ", "").replace("- ", "-"))
    ]
    assert found.answer == str(sum(numbers))
    assert found.level == len(numbers) - 1 == level
    assert all(1 <= abs(each) <= 99 for each in numbers)
    assert all(sum(numbers[:n]) >= 0 for n in range(len(numbers)))
    assert sum_of(seed, split, i, (level,)) == found


def test_no_two_splits_share_a_sum_and_no_sum_comes_twice():
    questions = {split: [each.question for each in sums(0, split, 900)] for split in SPLITS}
    flat = [each for of_split in questions.values() for each in of_split]
    assert len(set(flat)) == 2_700
    other = {each.question for each in sums(1, "train", 900)}
    assert len(other & set(questions["train"])) < 200


def test_a_file_has_what_its_first_rows_say(tmp_path):
    path = tmp_path / "sums.parquet"
    write_sums(path, prompts=30, split="validation", levels=(2,))
    first = first_sums(seed=0, prompts=30, split="validation", levels=(2,), most=7)
    assert pq.read_table(path).slice(0, 7).equals(first)
    assert set(pq.read_table(path)["level"].to_pylist()) == {2}


@pytest.mark.parametrize(
    ("split", "count", "levels", "found"),
    [
        ("dev", 1, (1,), "no split 'dev'; name one of train, validation, test"),
        ("train", 1, (1, 7), "levels 1, 7; name some of 1, 2, 3, 4"),
        ("test", 20_000, (1,), "different sums of these levels; ask for fewer, or for more levels"),
    ],
)
def test_what_there_is_not_is_named(split, count, levels, found):
    with pytest.raises(RejuiceError, match=found):
        list(sums(0, split, count, levels))
