import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_rows import generated, judged_rows

from rejuice.operators import judgements


def judged_right(table, mode="answer"):
    """The share of judgements of each response that are right, `nan` as None."""
    right = judgements.judged(judgements.digest(table, mode)).right_N()
    return generated(table, pa.array(right, from_pandas=True))


def replaced(table, **columns):
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, pa.string()))
    return table


def test_it_is_the_share_of_yes_among_the_well_formed_judgements():
    table = judged_rows("1:YYYN 2:NN 3:Y 4:Y-N- 5:NNY")
    assert judged_right(table) == [0.75, 0.0, 1.0, 0.5, 1 / 3]


def test_the_rule_of_succession():
    # Laplace: after s of n, the next is one with probability (s + 1) / (n + 2).
    found = judgements.judged(judgements.digest(judged_rows("1:YYYN 2:NN 3:Y 4 5:-"), "answer"))
    assert found.right_N(1.0, none=0.5)[:5].tolist() == [4 / 6, 1 / 4, 2 / 3, 1 / 2, 1 / 2]
    assert found.right_N(0.0, none=0.5)[:5].tolist() == [3 / 4, 0, 1, 1 / 2, 1 / 2]


def test_malformed_judgements_do_not_count():
    # Neither a No nor a Yes: nothing is known of an answer that has no other judgement.
    assert judged_right(judged_rows("1:-- 2:-Y")) == [None, 1.0]


def test_a_response_that_was_not_judged_takes_the_judgements_of_its_answer():
    # Two responses with the answer 1 were judged, six times in all: five of them Yes.
    table = judged_rows("1:YYYY 1 2 1:NY 1:-", "1 2:N 2")
    assert judged_right(table) == [1.0, 5 / 6, None, 0.5, 5 / 6, None, 0.0, 0.0]


def test_equal_shares_together_are_exactly_that_share():
    # A threshold of 0.1 would tell (0.1 + 0.1 + 0.1) / 3 from 0.1.
    table = judged_rows(" ".join(["1:YNNNNNNNNN"] * 3 + ["1"]))
    assert judged_right(table) == [0.1] * 4


def test_answers_of_other_prompts_are_other_answers():
    assert judged_right(judged_rows("1:Y 2:N", "1 2", "1:N 2")) == [1, 0, None, None, 0, None]


def test_whitespace_is_normalised_as_in_self_verification_mapper():
    table = judged_rows("a:Y a a a a")
    table = replaced(table, extracted_answer=["1 2", " 1  2\n", "1\t2", "12", "1 3", None])
    assert judged_right(table) == [1.0, 1.0, 1.0, None, None]


def test_no_answer_is_not_an_answer_that_is_shared():
    table = replaced(judged_rows(":Y : : "), extracted_answer=[None, None, " ", None])
    assert judged_right(table) == [1.0, None, None]


def test_an_id_that_is_null_matches_nothing():
    table = judged_rows("1:Y 2")
    table = replaced(table, response_id=["", None, "j"], judged_response_id=[None] * 3)
    assert judged_right(table) == [None, None]


def test_judgements_of_dropped_responses_are_ignored():
    table = judged_rows("1:Y 2:N")
    assert judged_right(table.slice(1)) == [0.0]
    assert judged_right(table.slice(2)) == []


def test_only_rows_of_the_two_tasks_count():
    table = replaced(judged_rows("1:Y 2:N"), task=["generate", None, "verify", "other"])
    right = judgements.judged(judgements.digest(table, "answer")).right_N()
    assert str(right.tolist()) == "[1.0, nan, nan, nan]"
    assert judgements.generated(judgements.digest(table, "answer")).tolist() == [1, 0, 0, 0]


def test_with_responses_judged_the_same_text_comes_before_the_same_answer():
    table = judged_rows("1:Y 1:NN 1 1 2")
    texts = ["so 1", "thus 1", " thus  1", "then 1", "two", None, None, None]
    table = replaced(table, response=texts)
    assert judged_right(table, "answer") == [1.0, 0.0, 1 / 3, 1 / 3, None]
    assert judged_right(table, "response") == [1.0, 0.0, 0.0, 1 / 3, None]


@pytest.mark.parametrize(("mode", "most"), [("answer", 18), ("response", 27)])
def test_little_is_kept_of_a_row(mode, most):
    table = judged_rows(*["1:YN 2:- 1 3"] * 500)
    digest = judgements.digest(table, mode)
    assert digest.num_rows == table.num_rows
    # Three bits a row say where a hash is missing, and where a group begins.
    assert digest.nbytes <= most * table.num_rows


JUDGED = st.builds("{}:{}".format, st.sampled_from("123"), st.text("YN-", max_size=3))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.lists(JUDGED, min_size=1, max_size=5), max_size=5), st.randoms())
def test_it_is_what_a_loop_finds_in_whatever_order_and_pieces_the_groups_come(groups, random):
    expected = {}
    for at, group in enumerate(groups):
        own = {}
        for k, word in enumerate(group):
            own[f"{at}.{k}"] = word[2:].replace("-", "")
        for k, word in enumerate(group):
            same = [own[f"{at}.{j}"] for j, w in enumerate(group) if w[0] == word[0]]
            message = own[f"{at}.{k}"] or "".join(same)
            expected[f"{at}.{k}"] = message.count("Y") / len(message) if message else None
    table = judged_rows(*(" ".join(group) for group in groups))
    ids = table["prompt_id"].to_pylist()
    runs = [list(run) for _, run in itertools.groupby(range(len(ids)), key=ids.__getitem__)]
    random.shuffle(runs)
    table = table.take(pa.array([row for run in runs for row in run], pa.int64()))
    cuts = np.cumsum([0, *(len(run) for run in runs)]).tolist()
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)] or [table]
    digests = pa.concat_tables([judgements.digest(part, "answer") for part in parts])
    right = pa.array(judgements.judged(digests).right_N(), from_pandas=True)
    found = dict(zip(generated(table, table["response_id"]), generated(table, right), strict=True))
    assert found == {key: pytest.approx(value) for key, value in expected.items()}
