from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.token_weight_mapper import TokenWeightMapper


def table_of(name, lists, kind=None, tokens=None):
    kind = kind or pa.list_(pa.float64())
    sizes = tokens or [len(each or ()) for each in lists]
    ids = [f"p{row // 2}" for row in range(len(lists))]
    return pa.table(
        {
            "prompt_id": ids,
            "response_token_ids": pa.array(
                [None if size is None else list(range(size)) for size in sizes],
                pa.list_(pa.int32()),
            ),
            name: pa.array(lists, kind),
        }
    )


def weights(table, **fields):
    return check_operator(TokenWeightMapper(**fields), table).columns["token_weight"].to_pylist()


def top(lists, **fields):
    return weights(table_of("h", lists), style="top_entropy", entropies="h", **fields)


def test_the_tokens_of_highest_entropy_train():
    # The 0.8 quantile of 0.1 to 1.0 is 0.82.
    lists = [[0.1, 0.9, 0.2, 0.3], [0.4, 0.5], [1.0, 0.6, 0.7, 0.8]]
    assert top(lists) == [[0, 1, 0, 0], [0, 0], [1, 0, 0, 0]]
    assert top(lists, share=0.5) == [[0, 1, 0, 0], [0, 0], [1, 1, 1, 1]]


def test_where_most_tokens_are_certain_those_above_them_train():
    assert top([[0.0, 0.0, 0.7, 0.0], [0.0, 0.0]]) == [[0, 0, 1, 0], [0, 0]]
    assert top([[0.0, 0.0], [0.0, 0.0]]) == [[1, 1], [1, 1]]


def test_of_log_probabilities_the_least_likely_train():
    table = table_of("response_logprobs", [[-0.1, -3.0], [-2.0, 0.0]], pa.list_(pa.float32()))
    assert weights(table, style="top_entropy", share=0.4) == [[0, 1], [1, 0]]


def test_a_response_without_entropies_is_masked_and_counts_in_no_quantile():
    change = TokenWeightMapper(style="top_entropy", entropies="h", share=0.5).apply(
        table_of("h", [[1.0, 2.0], None, [3.0, 4.0]], tokens=[2, 1, 2])
    )
    assert change.columns["token_weight"].to_pylist() == [[0, 0], [0], [1, 1]]


@pytest.mark.slow  # Imports torch and trl.
@given(
    st.lists(st.lists(st.floats(0, 12, width=32), max_size=6), min_size=2, max_size=6).filter(
        lambda lists: any(lists)
    ),
    st.sampled_from([0.1, 0.2, 0.5, 0.9]),
)
def test_the_mask_is_that_of_trl(lists, share):
    torch = pytest.importorskip("torch")
    trainer = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
    one = SimpleNamespace(
        accelerator=SimpleNamespace(
            pad_across_processes=lambda local, dim, pad_index: local, gather=lambda local: local
        )
    )
    longest = max(map(len, lists))
    entropies = torch.zeros(len(lists), longest, dtype=torch.float32)
    mask = torch.zeros(len(lists), longest, dtype=torch.int64)
    for row, each in enumerate(lists):
        entropies[row, : len(each)] = torch.tensor(each)
        mask[row, : len(each)] = 1
    theirs = trainer.get_high_entropy_mask(one, entropies, mask, 1 - share)
    found = TokenWeightMapper(style="top_entropy", entropies="h", share=share).apply(
        table_of("h", lists)
    )
    ours = found.columns["token_weight"].to_pylist()
    least = float(np.quantile(np.concatenate(lists), 1 - share))
    for row, each in enumerate(lists):
        for at, entropy in enumerate(each):
            # Theirs rounds the quantile to float32.
            if abs(entropy - least) > 1e-6 * max(1, least):
                assert bool(theirs[row, at]) == bool(ours[row][at])


def test_tokens_from_the_first_error_on_train_or_those_before():
    table = table_of("at", [2, 0, None, -1], pa.int64(), tokens=[4, 2, 2, 1])
    how = {"style": "first_error", "first_error": "at"}
    assert weights(table, **how) == [[0, 0, 1, 1], [1, 1], [1, 1], [1]]
    assert weights(table, part="before", **how) == [[1, 1, 0, 0], [0, 0], [1, 1], [1]]


def test_without_tokens_there_is_nothing_to_weigh():
    table = table_of("at", [2, 1], pa.int64(), tokens=[None, 3])
    assert weights(table, style="first_error", first_error="at") == [None, [0, 1, 1]]


@pytest.mark.parametrize("place", [4, -2, 0.5])
def test_an_error_at_no_token_is_named(place):
    table = table_of("at", [1, place], pa.float64(), tokens=[4, 4])
    with pytest.raises(DataError, match=rf"^row 1 has {place} in 'at', and its response has 4"):
        TokenWeightMapper(style="first_error", first_error="at").apply(table)


@pytest.mark.parametrize(
    ("lists", "kind", "found"),
    [
        ([[1.0], [1.0]], None, "row 0 has 1 values in 'h' and 2 tokens in 'response_token_ids'"),
        ([[1.0, None], [1.0, 2.0]], None, "row 0 has a value in 'h' that is null or not finite"),
        ([["a", "b"], None], pa.list_(pa.string()), "column 'h' is list<item: string>, not a list"),
        ([1.0, 2.0], pa.float64(), "column 'h' is double, not a list of numbers"),
    ],
)
def test_what_has_no_number_for_each_token_is_named(lists, kind, found):
    operator = TokenWeightMapper(style="top_entropy", entropies="h")
    with pytest.raises(DataError, match=f"^{found}"):
        operator.apply(table_of("h", lists, kind, tokens=[2, 2]))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"style": "top_entropy", "first_error": "at"}, "style top_entropy has no first_error"),
        ({"style": "first_error", "first_error": "at", "share": 0.1}, "first_error has no share"),
        ({"style": "first_error"}, "style first_error needs first_error, the column of the place"),
    ],
)
def test_fields_of_another_style_are_refused(fields, found):
    with pytest.raises(ValueError, match=found):
        TokenWeightMapper(**fields)
