"""Trajectories whose servers fail, hang, answer late or vanish: missing with a reason, never wrong.

Many are under way at a time, at a real HTTP server; what happens to one does not touch the others.
"""

import asyncio

import pytest
from fake_chat import FakeChat
from fake_search import FakeSearch
from fake_server import Trouble

from rejuice.operators.agents.model import FrozenModel
from rejuice.operators.agents.play import Limits, Play, TrajectoryEnd
from rejuice.operators.agents.task import Budgets, Task
from rejuice.operators.agents.time_limit import TimeLimit
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.http_search import HttpSearch

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

PASSING = [
    Trouble.RATE_LIMIT,
    Trouble.RATE_LIMIT_AFTER,
    Trouble.ERROR_500,
    Trouble.ERROR_503,
    Trouble.RESET,
    Trouble.RESET_MID_BODY,
    Trouble.CUT_JSON,
    Trouble.HTML,
    Trouble.TOO_MUCH,
]
BUSY = [Trouble.RATE_LIMIT, Trouble.RATE_LIMIT_AFTER]  # They use up no attempt, only time.
GOOD, ONCE, FOR_EVER = range(20), 100, 200
# Long enough for any answer that comes: on a busy machine one took more than a second.
QUICK = {"back_off_s": 0.001, "attempts": 3, "patience_s": 0, "timeout_s": 120, "give_up_s": 120}


async def ends(search, model, numbers):
    """Why each trajectory ended, after one search and one question to a frozen model."""
    toolbox = await Toolbox.of([search])

    async def end_of(number):
        play = Play(
            Task(f"p{number}", (("user", f"{number}"),), {}),
            Budgets(),
            sampler=None,
            encode=None,
            toolbox=toolbox,
            models={"verifier": model},
            limits=Limits(8, None),
            time_limit=TimeLimit(600),
            seed=0,
            index=0,
        )
        try:
            observation = await play.call("http_search", {"query": f"{number}"})
            assert observation.status == "ok"
            text = await play.ask("verifier", (("user", f"{number}"),))
            assert text == f"echo: {number}"
        except TrajectoryEnd as end:
            return end.reason
        return "stop"

    try:
        return dict(zip(numbers, await asyncio.gather(*map(end_of, numbers)), strict=True))
    finally:
        await search.close()
        await model.close()


def both(search, chat, **limits):
    options = QUICK | limits
    return (
        HttpSearch(base_url=search.url, **options),
        FrozenModel(base_url=chat.url, model="m", **options),
    )


@pytest.fixture(autouse=True)
def small_answers(monkeypatch):
    monkeypatch.setattr("rejuice.operators.openai.client._LARGEST_ANSWER", 1 << 18)


def outcomes(failing, script, numbers, **limits):
    """The ends of trajectories where one of the two servers follows a script."""
    search_script, chat_script = (script, {}) if failing == "tool_failed" else ({}, script)
    with FakeSearch(search_script) as search, FakeChat(chat_script) as chat:
        return asyncio.run(ends(*both(search, chat, **limits), numbers))


def for_ever(faults):
    return {FOR_EVER + at: [fault] * 9999 for at, fault in enumerate(faults)}


FAILING = pytest.mark.parametrize("failing", ["tool_failed", "model_failed"])


@FAILING
def test_what_one_server_does_to_some_does_not_touch_the_others(failing):
    once = {ONCE + at: [fault] for at, fault in enumerate(PASSING)}
    lasting = for_ever([fault for fault in PASSING if fault not in BUSY])
    found = outcomes(failing, once | lasting, [*GOOD, *once, *lasting])
    assert found == dict.fromkeys([*GOOD, *once], "stop") | dict.fromkeys(lasting, failing)


@FAILING
def test_a_server_that_is_always_busy_for_some_is_given_up_for_those(failing):
    lasting = for_ever(BUSY)
    found = outcomes(failing, lasting, [*GOOD, *lasting], give_up_s=0.3)
    assert found == dict.fromkeys(GOOD, "stop") | dict.fromkeys(lasting, failing)


@FAILING
@pytest.mark.usefixtures("slow_at_once")
def test_an_answer_that_never_comes_fails_its_trajectory(failing):
    lasting = for_ever([Trouble.SLOW])
    assert outcomes(failing, lasting, lasting) == dict.fromkeys(lasting, failing)


@FAILING
@pytest.mark.usefixtures("slow_at_once")
def test_an_answer_that_came_too_late_is_asked_for_again(failing):
    late = {ONCE: [Trouble.SLOW]}
    assert outcomes(failing, late, late) == {ONCE: "stop"}


@pytest.mark.parametrize("gone", ["tool_failed", "model_failed"])
def test_a_server_that_is_gone_fails_every_trajectory_and_none_is_wrong(gone):
    with FakeSearch() as search, FakeChat() as chat:
        (search if gone == "tool_failed" else chat).kill()
        found = asyncio.run(ends(*both(search, chat), range(30)))
    assert set(found.values()) == {gone}


def test_a_server_that_is_restarted_in_the_middle_is_waited_for():
    with FakeSearch({5: [Trouble.RESTART]}) as search, FakeChat({9: [Trouble.RESTART]}) as chat:
        tools = [each.model_copy(update={"patience_s": 30}) for each in both(search, chat)]
        found = asyncio.run(ends(*tools, range(12)))
    assert set(found.values()) == {"stop"}
