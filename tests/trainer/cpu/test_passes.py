"""Which rows a pass on a CPU has: those of a prompt together, so that it is computed once."""

import copy
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policy import PROMPTS

pytestmark = pytest.mark.slow  # verl is imported.

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=20)


@given(rows=ROWS, most=st.integers(1, 40))
def test_each_row_is_in_one_pass_and_no_pass_is_too_long(verl, rows, most):
    import torch

    from rejuice.trainer.cpu.workers import passes

    prompts = [torch.full((prompt + 1,), prompt) for prompt, _ in rows]
    found = passes(prompts, [torch.zeros(size) for _, size in rows], most)
    assert sorted(row for each in found for row in each) == list(range(len(rows)))

    def tokens(of):
        """Prompt k has k + 1 tokens, of which a further response counts a sixteenth: 1."""
        repeated = len(of) - len({rows[row][0] for row in of})
        once = sum(prompt + 1 for prompt in {rows[row][0] for row in of})
        return sum(rows[row][1] for row in of) + once + repeated

    for each in found:
        assert tokens(each) <= most or len(each) == 1
    for each, after in pairwise(found):
        assert tokens([*each, after[0]]) > most
    order = [rows[row][0] for each in found for row in each]
    assert len(list(groupby(order))) == len(set(order))


@pytest.mark.parametrize("pieces", [1, 3])
def test_verl_divides_by_them(worker, batch, monkeypatch, pieces):
    from rejuice.trainer.cpu import workers

    prompts = {tuple(each.tolist()) for each in batch["prompts"].unbind()}
    assert len(prompts) == PROMPTS
    once = sum(map(len, prompts)) + len(batch["responses"].values())
    rows = len(batch["prompts"].unbind())
    once += sum(-(-len(each) // 16) * (rows // PROMPTS - 1) for each in prompts)
    computed, shared = [], workers.Shared.of
    monkeypatch.setattr(workers.Shared, "of", lambda *rows: computed.append(shared(*rows)) or computed[-1])  # fmt: skip
    worker(cpu={"tokens": once // pieces + 64}).update_actor(copy.copy(batch))
    assert len(computed) == pieces
    # Without the last token of each response, which predicts none; that of a prompt is in each.
    sizes = [len(each.layout.prompt_sizes_G) for each in computed]
    assert sum(sizes) <= PROMPTS + pieces - 1
    assert max(each.layout.tokens for each in computed) <= once // pieces + 64
