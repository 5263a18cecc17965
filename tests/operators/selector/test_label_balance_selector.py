import collections
import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_letters import VERDICTS

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.registry import build
from rejuice.operators.selector.label_balance_selector import LabelBalanceSelector


def table(*groups):
    return pa.table(
        {
            "prompt_id": pa.array(
                [str(g) for g, rows in enumerate(groups) for _ in rows], pa.string()
            ),
            "verdict": pa.array([VERDICTS[x] for rows in groups for x in rows], pa.string()),
        }
    )


def kept(change, rows):
    return collections.Counter(rows.filter(change.reasons.is_null())["verdict"].to_pylist())


def reasons(change):
    return collections.Counter(change.reasons.to_pylist())


def test_both_labels_are_equally_many_as_the_rarer_one():
    rows = table("cwww", "wwnw", "ccww")
    change = check_operator(LabelBalanceSelector(), rows)
    assert kept(change, rows)["correct"] == 3
    assert reasons(change) == {None: 6, "over_ratio": 6}
    assert change.notes == {
        "positive_found": 3,
        "negative_found": 9,
        "positive_kept": 3,
        "negative_kept": 3,
    }


def test_the_ratio_is_exact():
    rows = table("c" * 11 + "w" * 11)
    change = check_operator(LabelBalanceSelector(ratio=(2, 6)), rows)
    # 1:3 fits three times into 11 wrong rows.
    assert kept(change, rows) == {"correct": 3, "wrong_answer": 9}


def test_a_target_is_reached_exactly_and_the_rest_is_dropped_with_a_reason():
    rows = table("c" * 10 + "w" * 6)
    change = check_operator(LabelBalanceSelector(target=8), rows)
    assert kept(change, rows) == {"correct": 4, "wrong_answer": 4}
    # Of ten right rows six could have been paired with a wrong one.
    assert reasons(change) == {None: 8, "over_ratio": 4, "over_target": 4}
    assert (change.notes["asked"], change.notes["short_of_target"]) == (8, 0)


def test_silent_oversampling_never_happens():
    rows = table("ccw", "cccc")
    change = check_operator(LabelBalanceSelector(target=6), rows)
    assert kept(change, rows) == {"correct": 1, "wrong_answer": 1}
    assert change.parents is None
    assert (change.notes["asked"], change.notes["short_of_target"]) == (6, 4)


def test_balance_is_guaranteed_when_one_label_is_absent():
    rows = table("ccc")
    change = check_operator(LabelBalanceSelector(), rows)
    assert reasons(change) == {"over_ratio": 3}


def test_a_prompt_gives_no_more_than_its_cap_of_each_label():
    rows = table("cccww", "cw", "ccwww")
    change = check_operator(LabelBalanceSelector(max_per_prompt=1), rows)
    survivors = rows.filter(change.reasons.is_null())
    counts = collections.Counter(zip(*survivors.to_pydict().values(), strict=True))
    assert set(counts.values()) == {1}
    assert len(counts) == 6
    assert reasons(change) == {None: 6, "over_prompt_cap": 6}


def test_rows_without_either_label_are_kept():
    rows = table("c?tew", "w??")
    change = check_operator(LabelBalanceSelector(), rows)
    assert kept(change, rows) == {
        "correct": 1,
        "wrong_answer": 1,
        "timeout": 1,
        "verifier_error": 1,
        None: 3,
    }


def test_no_answer_is_a_negative_unless_the_negatives_are_named():
    rows = table("cccwnn")
    assert kept(run(LabelBalanceSelector(), rows), rows)["correct"] == 3
    named = run(LabelBalanceSelector(negative=("wrong_answer",)), rows)
    assert kept(named, rows) == {"correct": 1, "wrong_answer": 1, "no_answer": 2}


def test_any_column_can_be_balanced():
    rows = pa.table({"prompt_id": list("abcde"), "label": ["Yes", "No", "No", None, "No"]})
    change = check_operator(LabelBalanceSelector(column="label", positive="Yes"), rows)
    assert change.reasons.to_pylist()[0::3] == [None, None]
    assert change.reasons.null_count == 3
    flags = pa.table({"prompt_id": list("abc"), "ok": [True, False, False]})
    change = check_operator(LabelBalanceSelector(column="ok", positive="true"), flags)
    assert change.reasons.null_count == 2


def test_nothing_is_truncated_before_it_is_shuffled():
    # 1,000 prompts, of which the target takes a tenth: late ones as often as early ones.
    rows = table(*["cw"] * 1000)
    change = run(LabelBalanceSelector(target=200), rows)
    places = np.flatnonzero(np.asarray(change.reasons.is_null()))
    assert len(places) == 200
    # Uniform places: mean 999.5, standard error 2000 / sqrt(12 * 200) = 41.
    assert abs(places.mean() - 999.5) < 4 * 41


def test_the_choice_is_seeded():
    rows = table(*["cw"] * 100)
    one, again, other = (
        run(LabelBalanceSelector(target=100, seed=seed), rows).reasons for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_the_choice_does_not_depend_on_chunks():
    rows = table(*["cwww", "ccw?", "wn"] * 50)
    operator = LabelBalanceSelector(target=60, max_per_prompt=2)
    whole = operator.apply(operator.digest(rows))
    for size in (1, 7):
        # Chunks of whole groups, as the runner makes them.
        starts = np.flatnonzero(np.diff(rows["prompt_id"].to_numpy().astype(int), prepend=-1))
        cuts = [*starts[::size].tolist(), rows.num_rows]
        digests = [operator.digest(rows.slice(a, b - a)) for a, b in itertools.pairwise(cuts)]
        assert operator.apply(pa.concat_tables(digests)).reasons == whole.reasons


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"negative": ["correct"]}, "'correct' is both positive and negative"),
        ({"negative": []}, "negative contains no value"),
        ({"ratio": [1, 3], "target": 3}, "target 3 is too small for the ratio"),
        ({"ratio": [0, 1]}, "field 'ratio.0' is 0; input should be greater than 0"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(LabelBalanceSelector, fields)
    assert str(error.value) == message


@settings(max_examples=30)
@given(
    st.lists(st.text("cwnt?", min_size=1, max_size=6), max_size=8),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.none() | st.integers(6, 20),
    st.none() | st.integers(1, 2),
)
def test_as_many_rows_as_fit_exactly_at_the_ratio(groups, ratio, target, cap):
    rows = table(*groups)
    operator = LabelBalanceSelector(ratio=ratio, target=target, max_per_prompt=cap)
    change = check_operator(operator, rows)
    counts = kept(change, rows)
    right, wrong = counts["correct"], counts["wrong_answer"] + counts["no_answer"]
    most = 99 if cap is None else cap
    right_found = sum(min(most, g.count("c")) for g in groups)
    wrong_found = sum(min(most, g.count("w") + g.count("n")) for g in groups)
    divisor = np.gcd(*ratio)
    first, second = ratio[0] // divisor, ratio[1] // divisor
    limit = 99 if target is None else target // (first + second)
    times = min(right_found // first, wrong_found // second, limit)
    assert (right, wrong) == (times * first, times * second)
    assert counts["timeout"] + counts[None] == sum(g.count("t") + g.count("?") for g in groups)


@pytest.mark.slow
def test_ten_million_rows_fit_well_under_one_gibibyte():
    n = 10_000_000
    rng = np.random.default_rng(0)
    digest = pa.table(
        {
            "label": pa.array(rng.integers(-1, 2, n).astype(np.int8)),
            "uniform": rng.random(n),
            "prompt": pa.array(np.repeat(np.arange(n // 8, dtype=np.uint64) * 7919, 8)),
        }
    )
    assert digest.nbytes == 17 * n
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    change = LabelBalanceSelector(max_per_prompt=2).apply(digest)
    peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow
    tracemalloc.stop()
    assert peak + digest.nbytes < 800 << 20
    counts = np.bincount(np.asarray(digest["label"])[np.asarray(pc.is_null(change.reasons))] + 1)
    assert counts[1] == counts[2]
