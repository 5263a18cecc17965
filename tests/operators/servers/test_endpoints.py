"""Several addresses of one server, in virtual time and without sockets: hours pass at once."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_servers import A, B, C, Fault, Simulated, all_once, places, run
from virtual_time import run_in_virtual_time

from rejuice.operators.errors import EngineError
from rejuice.operators.servers.concurrency import run_concurrently
from rejuice.operators.servers.endpoints import Endpoints, ServerDownError
from rejuice.operators.servers.options import ServerOptions
from rejuice.operators.servers.wire import AttemptError, RetryClass


def test_requests_go_where_the_fewest_are_in_flight():
    client, found = run({A: [Fault(0, 9999, 4.0)]})
    assert all_once(client, found)
    counts = places(client)
    assert counts.total() == 60
    assert counts[A] * 2.5 < counts[B] == pytest.approx(counts[C], abs=2)


def test_one_dies_one_answers_429_for_minutes_one_slows_down(caplog):
    faults = {A: [Fault(5, 9999, "down")], B: [Fault(8, 400, "429")], C: [Fault(20, 9999, 7.0)]}
    client, found = run(faults, 600)
    assert all_once(client, found, 600)
    # What is down is not sent to again, and one that asks to wait is asked once in a while.
    assert places(client, 5.1)[A] <= 6
    assert places(client, 30, 400)[B] <= 2 * 400 / 20
    assert places(client, 430)[B] > places(client, 430)[C] > 0
    assert [each.message for each in caplog.records if "aside" in each.message] == [
        f"{A} is set aside (connection refused): 2 of 3 servers carry on"
    ]


def test_an_address_that_comes_back_is_used_again():
    client, found = run({A: [Fault(0, 60, "down")], B: [Fault(0, 60, "500")]}, 300)
    assert all_once(client, found, 300)
    assert places(client, 0, 60)[A] <= 6
    assert places(client, 1, 60)[B] <= 24, "a server that fails is tried ever more rarely"
    after = places(client, 90)
    assert after[A] == pytest.approx(after[B], abs=4) == pytest.approx(after[C], abs=4)


def test_probes_have_growing_pauses():
    client, found = run({A: [Fault(0, 200, "down")]}, 600)
    assert all_once(client, found, 600)
    times = [at for at, base in client.probes if base == A and at < 200]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] < 1.1
    assert all(pause <= 30.1 for pause in pauses)
    assert all(pause >= 15 for pause in pauses[6:])


def test_an_answer_in_the_wrong_form_is_asked_for_elsewhere(caplog):
    client, found = run({A: [Fault(0, 60, "garbage")]}, 300)
    assert all_once(client, found, 300)
    assert places(client, 0, 60)[A] < 30
    (line,) = [each.message for each in caplog.records]
    assert line == f"{A} rests (a page): 2 of 3 servers carry on"


def test_no_request_waits_for_a_look_at_another_address():
    async def main():
        drops = {A: [Fault(0, 9999, "drops")]}
        async with Simulated(ServerOptions(base_url=(A, B)), drops) as client:
            for seed in range(100):
                begin = client.now
                await client.get(seed)
                assert client.now - begin < (40 if seed == 0 else 2)
            assert len(client.probes) > 3
            assert client.sent[-1][1] == B

    run_in_virtual_time(main())


def test_others_go_on_waiting_where_a_request_that_looks_is_cancelled():
    async def main():
        looks, found = asyncio.Event(), None

        async def look(_):
            await looks.wait()

        clock = asyncio.get_running_loop().time
        found = Endpoints(ServerOptions(base_url=A, patience_s=1000), clock, look)
        found.not_reached(found.all[0], "down")
        await asyncio.sleep(60)
        one, other = (asyncio.ensure_future(found.usable(clock() + 900)) for _ in range(2))
        await asyncio.sleep(1)
        one.cancel()
        looks.set()
        begin = clock()
        assert await other
        assert clock() - begin < 5

    run_in_virtual_time(main())


def test_what_was_down_for_long_fails_three_times_again_before_it_rests():
    async def main():
        now, reasons = [0.0], iter(["down"] * 9 + [""])

        async def look(_):
            return next(reasons)

        found = Endpoints(ServerOptions(base_url=(A, B)), lambda: now[0], look)
        one = found.all[0]
        for _ in range(10):
            await found.look(one)
            now[0] += 60
        for _ in range(2):
            found.failed(one, AttemptError("server_error", "500", RetryClass.SERVER_FAILED))
        assert found.take({}) is one
        found.failed(one, AttemptError("server_error", "500", RetryClass.SERVER_FAILED))
        assert found.take({}) is not one

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["500", "hangs"])
def test_a_server_that_answers_nobody_takes_little_time_of_all_requests(kind):
    async def main():
        options = ServerOptions(base_url=A, concurrency=32, timeout_s=60, attempts=2)
        async with Simulated(options, {A: [Fault(0, 900, kind)]}) as client:
            found = list[bool]()

            async def work(seed):
                try:
                    found.append(await client.get(seed) == seed)
                except ServerDownError:
                    found.append(False)

            await run_concurrently(work, range(2000), 32)
            assert found == [False] * 2000
            assert client.now < 300
            await asyncio.sleep(1000 - client.now)
            await run_concurrently(work, range(100), 32)
            assert found[2000:] == [True] * 100

    run_in_virtual_time(main())


def test_a_server_that_loads_its_model_after_a_404_is_asked_again():
    client, found = run({A: [Fault(0, 5, "404")]}, addresses=A)
    assert all_once(client, found)


def test_hanging_requests_are_sent_elsewhere():
    client, found = run({A: [Fault(0, 9999, "hangs")]}, 60, timeout_s=30)
    assert all_once(client, found)


def test_all_429_for_minutes_lose_nothing():
    faults = {each: [Fault(0, 600, "429")] for each in (A, B, C)}
    client, found = run(faults, 60)
    assert all_once(client, found)
    assert max(places(client, 0, 600).values()) < 4 * 600 / 20, "all of its requests wait"


def test_all_429_for_longer_than_give_up():
    faults = {each: [Fault(0, 9999, "429")] for each in (A, B)}
    with pytest.raises(ServerDownError) as error:
        run(faults, 9, addresses=(A, B), give_up_s=300)
    assert str(error.value) == f"{A} and {B} answer no prompt: rate_limited, 429: 429"


def test_a_long_wait_asked_of_one_server_holds_all_its_requests():
    client, found = run({A: [Fault(0, 50, "429")]}, 12, addresses=A)
    assert all_once(client, found, 12)
    first = sorted(at for at, _, _ in client.sent)
    assert len([at for at in first if at < 20]) == 6, "those in flight"


def test_all_down_end_the_run_with_one_line():
    faults = {A: [Fault(0, 9999, "down")], B: [Fault(30, 9999, "down")]}
    with pytest.raises(ServerDownError) as error:
        run(faults, 999, addresses=(A, B), patience_s=100)
    assert str(error.value).startswith(
        f"none of 2 servers could be reached for 100 s: {A} (connection refused), "
    )
    assert str(error.value).endswith("; are they up?")
    assert "\n" not in str(error.value)


def test_one_that_is_down_is_the_error_that_it_always_was():
    with pytest.raises(ServerDownError) as error:
        run({A: [Fault(0, 9999, "down")]}, 9, addresses=A, patience_s=100)
    assert str(error.value) == (
        f"{A} could not be reached for 100 s: connection refused; is the server up?"
    )


@pytest.mark.parametrize("addresses", [A, (A, B)])
def test_once_all_have_been_down_for_long_no_request_waits_for_them(addresses):
    async def main():
        options = ServerOptions(base_url=addresses, patience_s=100)
        down = {each: [Fault(0, 9999, "down")] for each in (A, B)}
        async with Simulated(options, down) as client:
            for longest_s in (101, 1, 1):
                begin = client.now
                with pytest.raises(ServerDownError):
                    await client.get(0)
                assert client.now - begin < longest_s

    run_in_virtual_time(main())


@pytest.mark.parametrize("addresses", [A, (A, B)])
def test_servers_that_drop_packets_are_down(addresses):
    """A connection that is never made takes as long as a slow answer, for a probe as well."""
    faults = {each: [Fault(0, 99_999, "drops")] for each in (A, B)}
    with pytest.raises(ServerDownError, match=r" could (not )?be reached for 100 s: "):
        run(faults, 9, addresses=addresses, patience_s=100, timeout_s=600)


def test_a_server_that_is_started_again_is_waited_for_until_its_model_is_loaded():
    client, found = run(
        {A: [Fault(5.5, 40, "down"), Fault(40, 80, "loads")]}, 60, addresses=A, attempts=2
    )
    assert all_once(client, found)
    assert places(client, 41, 80)[A] == 0


def test_a_short_outage_of_all_is_waited_for():
    faults = {each: [Fault(5, 80, "down")] for each in (A, B, C)}
    client, found = run(faults, 200, patience_s=100)
    assert all_once(client, found, 200)


faults_of_one = st.lists(
    st.builds(
        lambda begin, length, kind: Fault(begin, begin + length, kind),
        st.floats(0, 200),
        st.floats(0, 300),
        st.sampled_from(["down", "500", "429", "hangs", "garbage", 5.0, 40.0]),
    ),
    max_size=4,
)


def test_patience_applies_to_each_outage_separately():
    outages = [Fault(begin, begin + 40, "down") for begin in (5, 60, 115)]
    client, found = run({A: outages}, addresses=A, concurrency=1, patience_s=60)
    assert all_once(client, found)
    assert client.now > 175  # All three were waited for, longer together than its patience.


@pytest.mark.slow
@settings(max_examples=150)
@given(faults_of_one, faults_of_one, st.integers(1, 12))
def test_any_faults_of_two_while_the_third_is_well(of_a, of_b, concurrency):
    client, found = run({A: of_a, B: of_b}, 80, concurrency=concurrency, timeout_s=60, attempts=30)
    assert all_once(client, found, 80)


@pytest.mark.slow
@settings(max_examples=100)
@given(faults_of_one, faults_of_one)
def test_any_faults_lose_nothing_and_answer_nothing_twice(of_a, of_b):
    try:
        client, found = run({A: of_a, B: of_b}, 40, addresses=(A, B), timeout_s=60, give_up_s=600)
    except EngineError:
        return  # Both were down, or answered nothing, for too long.
    failures = {k: each for k, each in found.items() if isinstance(each, AttemptError)}
    assert sorted(found) == list(range(40))
    assert client.answered.keys() - {-1} == found.keys() - failures.keys()
    assert all(n == 1 for k, n in client.answered.items() if k != -1)
