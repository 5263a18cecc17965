"""Which turns an engine is given together, and what its errors end."""

import asyncio
import threading

import pytest
from wave_engine import WaveEngine

from rejuice.operators.agents.runner import EngineSampler, turn_sampler
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.protocol import Failure, Prompt, Settings

SETTINGS = Settings(n=8, max_tokens=20)


def prompt(text, seed=0):
    return Prompt((("user", text),), seed)


def echo(prompt):
    return prompt.messages[0][1]


def text_of(found):
    return found.samples[0].text


def run_with(engine, work, report=lambda tokens: None):
    async def go():
        async with turn_sampler(engine, SETTINGS, report) as sampler:
            return await work(sampler)

    return asyncio.run(go())


def test_all_that_wait_are_one_wave():
    engine = WaveEngine(echo)

    async def work(sampler):
        return await asyncio.gather(*(sampler.sample(prompt(c), 5) for c in "abcdef"))

    assert [text_of(each) for each in run_with(engine, work)] == [*"abcdef"]
    assert [len(wave) for wave in engine.waves] == [6]
    assert engine.wanted == [SETTINGS._replace(n=1)]
    assert {each.max_tokens for each in engine.waves[0]} == {5}


def test_whoever_comes_a_few_passes_later_is_in_the_wave():
    engine = WaveEngine(echo)

    async def late(sampler, text, passes):
        for _ in range(passes):
            await asyncio.sleep(0)
        return await sampler.sample(prompt(text), 5)

    async def work(sampler):
        await asyncio.gather(*(late(sampler, "x", 3 * k) for k in range(10)))

    run_with(engine, work)
    assert [len(wave) for wave in engine.waves] == [10]


def test_whoever_begins_while_it_catches_up_is_in_the_wave_which_is_sorted():
    engine, begun = WaveEngine(echo), []

    async def go():
        async def catch_up():
            if not begun:
                await asyncio.sleep(0.01)
                begun.extend(asyncio.ensure_future(ask("c", seed)) for seed in (3, 1))

        async with turn_sampler(engine, SETTINGS, lambda tokens: None, catch_up) as sampler:

            async def ask(text, seed):
                await sampler.sample(prompt(text, seed), 5)

            await asyncio.gather(ask("b", 2), ask("a", 2))
            await asyncio.gather(*begun)

    asyncio.run(go())
    asked = [[(each.seed, echo(each)) for each in wave] for wave in engine.waves]
    assert asked == [[(1, "c"), (2, "a"), (2, "b"), (3, "c")]]


def test_token_ids_may_be_of_any_type():
    engine, asked = WaveEngine(echo), [prompt("b"), prompt("a")]
    asked = [each._replace(token_ids=ids) for each, ids in zip(asked, ([2], (1,)), strict=True)]

    async def work(sampler):
        await asyncio.gather(*(sampler.sample(each, 5) for each in asked))

    run_with(engine, work)
    assert [echo(each) for each in engine.waves[0]] == ["a", "b"]


def test_a_bug_before_a_wave_reaches_all():
    async def go():
        async def catch_up():
            raise ZeroDivisionError("of the test")

        async with turn_sampler(WaveEngine(echo), SETTINGS, lambda tokens: None, catch_up) as found:
            wait = (found.sample(prompt(c), 5) for c in "ab")
            return await asyncio.gather(*wait, return_exceptions=True)

    message = "the engine has failed; ZeroDivisionError('of the test')"
    assert [str(each) for each in asyncio.run(go())] == [message] * 2


def test_nobody_waits_for_a_slow_tool():
    """One comes back when the others have had two more turns: they wait for nothing but it."""
    engine = WaveEngine(echo)

    async def work(sampler):
        others_done = asyncio.Event()

        async def quick(text):
            for turn in range(3):
                await sampler.sample(prompt(f"{text}{turn}"), 5)

        async def slow():
            await sampler.sample(prompt("s0"), 5)
            await others_done.wait()
            await sampler.sample(prompt("s1"), 5)

        last = asyncio.ensure_future(slow())
        await asyncio.gather(quick("a"), quick("b"))
        others_done.set()
        await last

    run_with(engine, work)
    asked = [sorted(each.messages[0][1] for each in wave) for wave in engine.waves]
    assert asked == [["a0", "b0", "s0"], ["a1", "b1"], ["a2", "b2"], ["s1"]]


def test_turns_that_come_during_a_wave_are_the_next_one():
    began, go_on = threading.Event(), threading.Event()

    def says(prompt):
        if echo(prompt) == "first":
            began.set()
            assert go_on.wait(30)
        return echo(prompt)

    engine = WaveEngine(says)

    async def work(sampler):
        first = asyncio.ensure_future(sampler.sample(prompt("first"), 5))
        await asyncio.to_thread(began.wait, 30)
        more = [asyncio.ensure_future(sampler.sample(prompt(c), 5)) for c in "abc"]
        more[1].cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, *more, return_exceptions=True)

    found = run_with(engine, work)
    assert isinstance(found[2], asyncio.CancelledError)
    assert [[echo(each) for each in wave] for wave in engine.waves] == [["first"], ["a", "c"]]


def test_a_failure_is_that_of_one_prompt():
    def says(prompt):
        return Failure("timeout", "x") if echo(prompt) == "b" else echo(prompt)

    async def work(sampler):
        return await asyncio.gather(*(sampler.sample(prompt(c), 5) for c in "abc"))

    found = run_with(WaveEngine(says), work)
    assert found[1] == Failure("timeout", "x")
    assert [text_of(found[0]), text_of(found[2])] == ["a", "c"]


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (EngineError("a process died", "perhaps memory ran out"), "a process died; perhaps memory ran out"),
        (ZeroDivisionError("of the engine"), "the engine has failed; ZeroDivisionError('of the engine')"),
        (SystemExit("of a library"), "the engine has failed; SystemExit('of a library')"),
        (asyncio.CancelledError(), "the engine has failed; CancelledError()"),
    ],
)  # fmt: skip
def test_an_error_of_the_engine_reaches_all(raised, message):
    def says(prompt):
        if echo(prompt) == "b":
            raise raised
        return echo(prompt)

    async def work(sampler):
        wait = (sampler.sample(prompt(c), 5) for c in "abc")
        found = await asyncio.gather(*wait, return_exceptions=True)
        with pytest.raises(EngineError) as error:
            await sampler.sample(prompt("d"), 5)
        return [*found, error.value]

    engine = WaveEngine(says)
    found = run_with(engine, work)
    assert text_of(found[2]) == "c"  # It came before the error.
    assert [str(found[index]) for index in (0, 1, 3)] == [message] * 3
    assert len(engine.waves) == 1


def test_an_engine_that_leaves_out_a_prompt():
    class Leaves(WaveEngine):
        def sample(self, prompts, settings):
            yield from list(super().sample(prompts, settings))[1:]

    async def work(sampler):
        wait = (sampler.sample(prompt(c), 5) for c in "abc")
        return await asyncio.gather(*wait, return_exceptions=True)

    found = run_with(Leaves(echo), work)
    assert [text_of(each) for each in found[:2]] == ["a", "b"]
    assert str(found[2]) == "the engine left out 1 of 3 prompts"


def test_tokens_are_reported():
    reported = []

    async def work(sampler):
        await asyncio.gather(*(sampler.sample(prompt(c), 5) for c in ("ab", "cde")))

    run_with(WaveEngine(echo), work, reported.append)
    assert sorted(reported) == [2, 3]


def test_closing_leaves_the_wave_at_its_next_response():
    began, go_on = threading.Event(), threading.Event()

    def says(prompt):
        began.set()
        assert go_on.wait(30)
        return echo(prompt)

    engine = WaveEngine(says)

    async def work():
        sampler = EngineSampler(engine, SETTINGS, lambda tokens: None)
        waiting = [asyncio.ensure_future(sampler.sample(prompt(c), 5)) for c in "abc"]
        await asyncio.to_thread(began.wait, 30)
        for each in waiting:
            each.cancel()
        closing = asyncio.ensure_future(sampler.close())
        await asyncio.sleep(0)
        assert engine.unfinished == 1
        go_on.set()
        await closing
        assert engine.unfinished == 0

    asyncio.run(work())
