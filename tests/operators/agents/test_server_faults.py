"""Trajectories whose servers fail, hang, answer late or vanish: missing with a reason, never wrong.

Many are under way at a time, at a real HTTP server; what happens to one does not touch the others.
"""

import asyncio

import pytest
from fake_chat import FakeChat
from fake_search import FakeSearch
from fake_server import Trouble

from rejuice.operators.agents.model import FrozenModel
from rejuice.operators.agents.play import Play, TrajectoryEnd
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.http_search import HttpSearch
from rejuice.operators.agents.trajectory import Budgets, Task

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "slow_at_once")

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
            max_tokens=8,
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


def both(search, chat):
    return (
        HttpSearch(base_url=search.url, **QUICK),
        FrozenModel(base_url=chat.url, model="m", **QUICK),
    )


@pytest.mark.parametrize("failing", ["tool_failed", "model_failed"])
def test_what_one_server_does_to_some_does_not_touch_the_others(failing):
    """Each of these faults ends otherwise; the shared client's tests have all of them."""
    once = {ONCE: [Trouble.ERROR_503], ONCE + 1: [Trouble.RESET_MID_BODY]}
    faults = (Trouble.ERROR_500, Trouble.CUT_JSON, Trouble.SLOW, Trouble.RATE_LIMIT_AFTER)
    lasting = {FOR_EVER + at: [fault] * 9 for at, fault in enumerate(faults)}
    script = once | lasting
    search_script, chat_script = (script, {}) if failing == "tool_failed" else ({}, script)
    # The wait that it asks for is longer than any request may take.
    with (
        FakeSearch(search_script, retry_after="130") as search,
        FakeChat(chat_script, retry_after="130") as chat,
    ):
        found = asyncio.run(ends(*both(search, chat), [*GOOD, *script]))
    assert found == dict.fromkeys([*GOOD, *once], "stop") | dict.fromkeys(lasting, failing)


@pytest.mark.parametrize("gone", ["tool_failed", "model_failed"])
def test_a_server_that_is_gone_fails_every_trajectory_and_none_is_wrong(gone):
    with FakeSearch() as search, FakeChat() as chat:
        (search if gone == "tool_failed" else chat).kill()
        found = asyncio.run(ends(*both(search, chat), range(30)))
    assert set(found.values()) == {gone}
