"""Prompts are shared out among workers as they become free, and each is sampled once."""

from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.sampling.processes import OnDemand
from rejuice.operators.sampling.protocol import Prompt


def prompt(number):
    return Prompt((("user", "x" * (number % 7)),), number)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 60),
    st.lists(st.integers(0, 1 << 30), max_size=400),
)
def test_every_prompt_is_done_once_whoever_is_lost(capacities, count, choices):
    taken = 0

    def prompts():
        nonlocal taken
        for number in range(count):
            taken += 1
            yield prompt(number)

    work = OnDemand(enumerate(prompts()), dict(enumerate(capacities)))
    given_to = {worker: [] for worker in range(len(capacities))}
    unfinished = {worker: [] for worker in range(len(capacities))}
    done, lost = [], 0
    choices = iter(choices)
    while True:
        for worker, share in work.hand_out().items():
            places = range(len(given_to[worker]), len(given_to[worker]) + len(share))
            given_to[worker] += share
            unfinished[worker] += places
            assert len(unfinished[worker]) <= capacities[worker]
        assert taken <= len(done) + sum(capacities), "no further ahead than there is capacity"
        if not work.busy:
            assert work.ended
            if not work.lost:
                break
            left = {worker: capacities[worker] for worker in unfinished}
            given_to, unfinished = ({worker: [] for worker in left} for _ in range(2))
            work = OnDemand(work.lost, left)
            continue
        choice = next(choices, 1)
        worker = work.busy[choice % len(work.busy)]
        if choice % 10 == 0 and lost < len(capacities) - 1:
            assert work.lose(worker) == len(unfinished.pop(worker))
            lost += 1
            continue
        place = unfinished[worker].pop(choice % len(unfinished[worker]))
        index = work.finish(worker, place)
        assert given_to[worker][place] == prompt(index)
        done.append(index)
    assert sorted(done) == list(range(count))
