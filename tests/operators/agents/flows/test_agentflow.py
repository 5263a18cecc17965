"""The planner's turns are trained; those of the frozen modules are recorded only."""

import pytest
from played import Says, ScriptedPolicy, played

from rejuice.operators.agents import Tool
from rejuice.operators.agents.flows.agentflow import Agentflow
from rejuice.operators.sampling.protocol import Failure

WIDE = 10_000
PLAN = '{"context": "8 at 46", "sub_goal": "the price", "tool": "product"}'


class Product(Tool):
    """Multiply."""

    async def call(self, a: int, b: int) -> str:
        return str(a * b)


def flow(**fields):
    return Agentflow(frozen={"model": "m"}, **fields)


def models(executor='{"a": 8, "b": 46}', verifier=("STOP",), generator=("analysis", "It is 368.")):
    return {
        "executor": Says(executor),
        "verifier": Says(*verifier),
        "generator": Says(*generator),
    }


def roles(found):
    return [turn.role for turn in found.turns]


def test_one_step():
    frozen = models(generator=("<think>hm</think>Multiply.", "<think>x</think> It is 368. "))
    policy = ScriptedPolicy(f"The product is needed.\n{PLAN}")
    found = played(flow(), policy=policy, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert (found.response, found.finish_reason) == ("It is 368.", "stop")
    assert roles(found) == ["generator", "policy", "executor", "tool", "verifier", "generator"]
    call = found.turns[3]
    assert (call.tool, call.arguments, call.observation) == ("product", '{"a": 8, "b": 46}', "368")
    for turn in found.turns:
        assert (turn.token_ids is None) == (turn.role != "policy")
    ((_, planned),) = policy.prompts[0].messages
    assert "Query:\nwhy?" in planned
    assert '{"name":"product"' in planned
    assert "Analysis of the query:\nMultiply." in planned
    assert planned.endswith("Steps so far:\nnone")
    ((_, executed),) = frozen["executor"].asked[0]
    assert "Sub-goal:\nthe price" in executed
    assert "What is known:\n8 at 46" in executed
    step = (
        'step 1: {"context": "8 at 46", "sub_goal": "the price", "tool": "product", '
        '"arguments": {"a": 8, "b": 46}, "result": "368"}'
    )
    for role, index in (("verifier", 0), ("generator", 1)):
        ((_, shown),) = frozen[role].asked[index]
        assert shown.endswith(f"Steps so far:\n{step}")


def test_it_goes_on_until_the_verifier_stops_it():
    frozen = models(verifier=("CONTINUE", "STOP? No: CONTINUE", "Not CONTINUE but STOP."))
    policy = ScriptedPolicy(*[PLAN] * 5)
    found = played(flow(), policy=policy, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert roles(found).count("policy") == 3
    assert policy.prompts[2].messages[0][1].count("\nstep ") == 2


def test_at_the_turn_limit_it_still_generates():
    frozen = models(verifier=("CONTINUE",))
    found = played(flow(max_turns=2), PLAN, PLAN, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert found.response == "It is 368."
    assert roles(found)[-2:] == ["verifier", "generator"]
    assert len(found.actions) == 2


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"trajectory_tokens": 10}, "length"), ({"max_tool_calls": 0}, "call_limit")],
)
def test_when_another_budget_ends_it_still_generates(budget, reason):
    frozen = models(verifier=("CONTINUE",))
    found = played(flow(**budget), PLAN, PLAN, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert (found.response, found.finish_reason) == ("It is 368.", reason)


def test_a_plan_that_is_none_spends_the_turn():
    policy = ScriptedPolicy("I do not know.", PLAN)
    found = played(flow(), policy=policy, tools=[Product()], models=models(), max_tokens=WIDE)
    assert roles(found)[:4] == ["generator", "policy", "tool", "policy"]
    assert found.turns[2].status == "malformed"
    assert 'step 1: {"result": "expected one JSON object' in policy.prompts[1].messages[0][1]


def test_a_tool_that_does_not_exist_needs_no_executor():
    plan = PLAN.replace("product", "sum")
    found = played(flow(), plan, tools=[Product()], models=models(), max_tokens=WIDE)
    assert roles(found) == ["generator", "policy", "tool", "verifier", "generator"]
    assert found.turns[2].status == "unknown_tool"


def test_an_executor_that_writes_no_json():
    frozen = models(executor="Multiply 8 by 46.")
    found = played(flow(), PLAN, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert found.turns[3].status == "bad_arguments"


@pytest.mark.parametrize("role", ["executor", "verifier", "generator"])
def test_a_frozen_module_that_fails(role):
    frozen = {**models(), role: Says(None)}
    found = played(flow(), PLAN, tools=[Product()], models=frozen, max_tokens=WIDE)
    assert (found.response, found.finish_reason) == (None, "model_failed")
    assert found.detail == f"{role}: the server is down"


def test_a_turn_that_cannot_be_sampled_is_not_answered():
    frozen = models()
    found = played(flow(), Failure("timeout", "x"), models=frozen, max_tokens=WIDE)
    assert (found.response, found.finish_reason) == (None, "sampling_failed")
    assert len(frozen["generator"].asked) == 1


def test_the_analysis_can_be_trained():
    found = played(
        flow(train_analysis=True), "Multiply.", PLAN, tools=[Product()],
        models=models(generator=("It is 368.",)), max_tokens=WIDE,
    )  # fmt: skip
    assert roles(found) == ["policy", "policy", "executor", "tool", "verifier", "generator"]


def test_its_modules_may_be_different_models():
    three = flow(verifier={"model": "v"}).models()
    assert {role: model.model for role, model in three.items()} == {
        "executor": "m",
        "verifier": "v",
        "generator": "m",
    }
