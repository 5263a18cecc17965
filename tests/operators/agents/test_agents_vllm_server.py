"""ReAct against a real server: vLLM on CPU with the embedded policy."""

import orjson
import pytest
from true_policy import TruePolicy
from vllm_server import EMBEDDED, VllmServer, vllm_python

from rejuice.operators.agents import Task
from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.runner import AgentRunner
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.trajectory import SeededTask
from rejuice.operators.sampling import openai_engine
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import OpenAIOptions, Settings
from rejuice.operators.sampling.tokenizer import chat_encoder

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    vllm_python()
    log = tmp_path_factory.mktemp("vllm") / "log"
    server = VllmServer(EMBEDDED, "stand-in", log, "--max-model-len", "512")
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def truth():
    return TruePolicy(EMBEDDED)


@pytest.mark.parametrize("context", ["memory", "append"])
@pytest.mark.parametrize("api", ["completions", "generate"])
def test_token_ids_are_exact(server, truth, monkeypatch, api, context):
    """Every prompt is what the server says that it sampled from, every action what it sampled."""
    answers = {}

    def read_group(body, prompt, *args, **kwargs):
        answers[prompt.seed] = orjson.loads(body)
        return original(body, prompt, *args, **kwargs)

    original = openai_engine.read_group
    monkeypatch.setattr(openai_engine, "read_group", read_group)
    encode = chat_encoder(str(EMBEDDED))
    engine = OpenAIEngine("stand-in", OpenAIOptions(base_url=server.url, api=api), encode=encode)
    flow = React(format="lines", context=context, max_turns=3)
    runner = AgentRunner(
        flow, [Calculator()], engine, Settings(max_tokens=16), policy="stand-in", encode=encode
    )
    chat = "Tom has {} apples and buys {} more. How many apples does Tom have?"
    chats = [(("user", chat.format(k, k + 3)),) for k in range(6)]
    tasks = [SeededTask(Task(str(k), each, {}), 77 * k) for k, each in enumerate(chats)]
    found = dict(runner.run(tasks, 4))
    runner.close()
    trajectories = [each for group in found.values() for each in group.trajectories]
    assert len(trajectories) == 24
    assert {each.finish_reason for each in trajectories} <= {"stop", "turn_limit"}
    turns = [turn for each in trajectories for turn in each.actions]
    assert max(len(each.actions) for each in trajectories) == 3
    for turn in turns:
        answer = answers[turn.seed]
        (choice,) = answer["choices"]
        seen = answer.get("prompt_token_ids") or choice.get("prompt_token_ids")
        assert tuple(seen) == turn.prompt_token_ids
        assert tuple(choice["token_ids"]) == turn.token_ids
        expected = truth.logprobs(turn.prompt_token_ids, turn.token_ids)
        assert turn.logprobs == pytest.approx(expected, abs=1e-4)
    if context == "append":
        for each in trajectories:
            for before, turn in zip(each.actions, each.actions[1:], strict=False):
                whole = (*before.prompt_token_ids, *before.token_ids)
                assert turn.prompt_token_ids[: len(whole)] == whole
