import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_rows import generated, judged_rows

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.judgement_reward_mapper import JudgementRewardMapper
from rejuice.operators.mapper.math_verify_mapper import MathVerifyMapper
from rejuice.operators.mapper.self_verification_mapper import SelfVerificationMapper
from rejuice.operators.mapper.self_verified_vote_mapper import SelfVerifiedVoteMapper
from rejuice.operators.registry import build
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load


def voted(table, **fields):
    """Per response: what is thought of it, and whether it wins either vote."""
    change = check_operator(SelfVerifiedVoteMapper(**fields), table)
    columns = {name: generated(table, column) for name, column in change.columns.items()}
    return columns, change


def test_votes_are_weighed_by_what_the_policy_thinks_of_each_answer():
    # 7 has three votes, of (1 + 1) / (3 + 2) each: 1.2. 8 has two, of (3 + 1) / (4 + 2) each: 4/3.
    table = judged_rows("7:YNN 7 8:YYYN 8 7")
    columns, change = voted(table)
    assert columns == {
        "judged_right": [1 / 3, 1 / 3, 0.75, 0.75, 1 / 3],
        "majority": [True, True, False, False, True],
        "voted": [False, False, True, True, False],
    }
    assert change.notes == {"prompts": 1, "voted_differently": 1, "unjudged_votes": 0}
    assert change.reasons is None


def test_each_prompt_votes_for_itself():
    columns, change = voted(judged_rows("7:N 7 8:Y", "7:Y 8 8", "8:Y"), prior=0)
    assert columns["majority"] == [True, True, False, False, True, True, True]
    # In the second prompt 7 counts 1, and 8 twice the half that an unjudged vote does: a tie.
    assert columns["voted"] == [False, False, True, False, True, True, True]
    assert change.notes == {"prompts": 3, "voted_differently": 1, "unjudged_votes": 2}


@pytest.mark.parametrize("prior", [0, 0.5, 1, 10])
def test_a_vote_without_a_judgement_counts_half(prior):
    # Two halves are more than a vote that was judged to be right: it counts less than 1.
    columns, change = voted(judged_rows("7:Y 8 8:-"), prior=prior)
    assert columns["judged_right"] == [1.0, None, None]
    assert columns["voted"] == [False, True, True]
    assert change.notes["unjudged_votes"] == 2


@pytest.mark.parametrize(("prior", "winner"), [(0, "8"), (0.1, "8"), (1, "7"), (100, "7")])
def test_few_judgements_do_not_outweigh_many_votes(prior, winner):
    # With one more judgement either way, 7 counts six times 1/4, and 8 once 3/4.
    columns, _ = voted(judged_rows("7:NN 7 7 7 7 7 8:YY"), prior=prior)
    assert columns["majority"] == [*[True] * 6, False]
    assert columns["voted"] == [*[winner == "7"] * 6, winner == "8"]


def test_of_equal_weight_the_answer_with_more_votes_wins():
    columns, _ = voted(judged_rows("7:Y 8:YN 8"), prior=0)
    assert columns["voted"] == [False, True, True]


def test_of_as_many_votes_the_answer_that_stands_first_wins():
    columns, _ = voted(judged_rows("9 7:Y 8:Y 9:N", "8:Y 7:Y", "b a b a"), prior=0)
    assert columns["majority"] == [True, False, False, True, True, False, True, False, True, False]
    assert columns["voted"] == [False, True, False, False, True, False, True, False, True, False]


def test_a_tie_is_one_in_whatever_order_it_is_added_up():
    # 0.3 + 0 and 0.1 + 0.2 are not the same float: a tie all the same, which 8 wins as the first.
    table = judged_rows("8:YYYNNNNNNN 8:N 7:YNNNNNNNNN 7:YYNNNNNNNN")
    columns, _ = voted(table, prior=0)
    assert sum(columns["judged_right"][:2]) < sum(columns["judged_right"][2:])
    assert columns["voted"] == [True, True, False, False]


def test_where_the_policy_rejects_everything_the_majority_stands():
    columns, change = voted(judged_rows("7:N 8:N 8"))
    assert columns["voted"] == columns["majority"] == [False, True, True]
    assert change.notes["voted_differently"] == 0


def test_a_response_without_an_answer_does_not_vote():
    columns, change = voted(judged_rows(": :Y : 7:N", ": :"))
    assert columns["majority"] == columns["voted"] == [False, False, False, True, False, False]
    assert columns["judged_right"] == [None, 1.0, None, 0.0, None, None]
    assert change.notes == {"prompts": 1, "voted_differently": 0, "unjudged_votes": 0}


def test_a_vote_needs_no_reference():
    texts = ["It is 7.", "It is 7.", "It is 8."]
    rows = {
        "prompt_id": ["p"] * 3,
        "prompt": pa.array([[{"role": "user", "content": "?"}]] * 3, MESSAGES),
        "reference": pa.nulls(3, pa.string()),
        "response_id": ["a", "b", "c"],
        "response": texts,
    }
    ask = SelfVerificationMapper(candidates="all", ungraded="ask", template="{question} {answer}?")
    with_questions = run_in_memory([MathVerifyMapper(), ask], pa.table(rows))
    chats = with_questions["prompt"].to_pylist()[3:]
    letter = ["\\boxed{Yes}" if "8" in chat[0]["content"] else "\\boxed{No}" for chat in chats]
    at = with_questions.schema.get_field_index("response")
    judged = with_questions.set_column(at, "response", pa.array([*texts, *letter]))
    out = run_in_memory(
        [JudgementRewardMapper(), SelfVerifiedVoteMapper(prior=0)], judged
    ).to_pylist()
    assert [row["extracted_answer"] for row in out if row["majority"]] == ["7", "7"]
    assert [row["extracted_answer"] for row in out if row["voted"]] == ["8"]
    assert {row["reward_verification_missing"] for row in out} == {"other_task", "no_label"}


def test_rows_of_another_task_get_nothing():
    table = judged_rows("7:YN 8:-")
    change = check_operator(SelfVerifiedVoteMapper(), table)
    for column in change.columns.values():
        assert column.to_pylist()[2:] == [None] * 3
    assert [str(column.type) for column in change.columns.values()] == ["double", "bool", "bool"]


def test_a_table_without_judgements_is_voted_on_too():
    columns, change = voted(judged_rows("7 8 8", "1"))
    assert columns["judged_right"] == [None] * 4
    assert columns["voted"] == columns["majority"] == [False, True, True, True]
    assert change.notes == {"prompts": 2, "voted_differently": 0, "unjudged_votes": 4}


def test_whole_responses_may_have_been_judged():
    table = judged_rows("7:NN 7:Y 7 8:YN")
    texts = ["weak", "good", "weak", "ok", *[None] * 5]
    table = table.set_column(4, "response", pa.array(texts, pa.string()))
    assert voted(table)[0]["judged_right"] == [0.0, 1.0, 1 / 3, 0.5]
    assert voted(table, mode="response")[0]["judged_right"] == [0.0, 1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prior": -1}, "field 'prior' is -1; input should be greater than or equal to 0"),
        ({"mode": "text"}, "field 'mode' is 'text'; input should be 'answer' or 'response'"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(SelfVerifiedVoteMapper, fields)
    assert str(error.value) == message


VOTE = st.builds("{}:{}".format, st.sampled_from(["1", "2", "3", ""]), st.text("YN-", max_size=3))
GROUPS = st.lists(st.lists(VOTE, min_size=1, max_size=6).map(" ".join), max_size=5)


@pytest.mark.slow
@settings(max_examples=30)
@given(GROUPS)
def test_one_answer_of_each_prompt_wins_each_vote(groups):
    table = judged_rows(*groups)
    columns, change = voted(table)
    keys = zip(
        *(generated(table, table[name]) for name in ("prompt_id", "extracted_answer")), strict=True
    )
    keys = list(keys)
    for name in ("majority", "voted"):
        won = {key for key, wins in zip(keys, columns[name], strict=True) if wins}
        assert [key in won for key in keys] == columns[name]
        assert sorted(prompt for prompt, _ in won) == sorted({p for p, a in keys if a})
    assert change.notes["prompts"] == len({p for p, a in keys if a})


@pytest.mark.slow
@settings(max_examples=30)
@given(GROUPS, st.sampled_from(["Y", "N", "YN", "YNN"]))
def test_where_all_are_judged_alike_the_vote_is_the_majority(groups, letter):
    alike = [" ".join(f"{w.split(':')[0]}:{letter}" for w in group.split()) for group in groups]
    columns, change = voted(judged_rows(*alike))
    assert columns["voted"] == columns["majority"]
    assert change.notes["voted_differently"] == change.notes["unjudged_votes"] == 0


@pytest.mark.slow
@settings(max_examples=30)
@given(GROUPS, st.randoms())
def test_order_and_pieces_of_the_groups_change_nothing(groups, random):
    table, operator = judged_rows(*groups), SelfVerifiedVoteMapper()
    ids = table["prompt_id"].to_pylist()
    runs = [list(run) for _, run in itertools.groupby(range(len(ids)), key=ids.__getitem__)]
    random.shuffle(runs)
    order = [row for rows in runs for row in rows]
    shuffled = table.take(pa.array(order, pa.int64()))
    cuts = np.cumsum([0, *(len(rows) for rows in runs)]).tolist()
    cuts = [0, *(at for at in cuts[1:-1] if random.random() < 0.5), len(order)]
    parts = [operator.digest(shuffled.slice(a, b - a)) for a, b in itertools.pairwise(cuts)]
    one, other = run(operator, table), operator.apply(pa.concat_tables(parts))
    assert one.notes == other.notes
    for name, column in one.columns.items():
        assert column.take(pa.array(order, pa.int64())).equals(other.columns[name])


@pytest.mark.parametrize("chunk_rows", [1, 3, 10_000])
def test_the_engine_hands_each_chunk_its_part(recipe_file, chunk_rows):
    # The judgements of a response are in another chunk than the response.
    table = judged_rows(*["7:YN 7 8:Y", "1:N 2 2:N", "5:Y 6 6"] * 3)
    answers = table.filter(pa.array([t == "generate" for t in table["task"].to_pylist()]))
    judging = table.filter(pa.array([t == "verify" for t in table["task"].to_pylist()]))
    rows = pa.concat_tables([judging, answers])
    path = recipe_file([{"self_verified_vote_mapper": {}}], rows.to_pylist(), np=2)
    recipe = load(path)
    report = engine.run(recipe, chunk_rows=chunk_rows)
    out = pq.read_table(recipe.head.export_path)
    whole = run(SelfVerifiedVoteMapper(), rows)
    for name, column in whole.columns.items():
        assert out[name].to_pylist() == column.to_pylist()
    assert report.steps[0].notes == whole.notes
