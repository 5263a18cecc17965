"""What agents and modes need is checked before verl is launched."""

import pytest
from fake_run import PROCESS, write_recipe

from rejuice.operators import EngineError, RejuiceError
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.launch import checks
from rejuice.trainer.launch.checks import check_servers
from rejuice.trainer.run import TrainingRun

PARTS = '''
from rejuice.operators.agents import Flow, Tool
from rejuice.operators.errors import EngineError


class Picky(Flow):
    """A flow that suits no policy whose chats begin with this token."""

    refuses: int

    def check(self, encode):
        if encode((("user", "Hi"),))[0] == self.refuses:
            raise EngineError("the policy is not good enough", "take another one")

    async def run(self, task, play):
        return None


class Desk(Tool):
    """A tool with a server that is down."""

    async def call(self) -> str:
        return ""

    def preflight(self):
        raise EngineError("http://desk is down", "start it")
'''
FIRST = 7


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A factory of runs, of whose policy every chat begins with the token `FIRST`."""
    preflight = "rejuice.trainer.launch.checks.chat_encoder"
    monkeypatch.setattr(preflight, lambda name, kwargs: lambda messages: [FIRST])
    (tmp_path / "parts.py").write_text(PARTS)

    def make(refuses=0, tools=(), **train):
        fields = {"flow": {"picky": {"refuses": refuses}}, "tools": list(tools)}
        process = [PROCESS[0], {"agent_rollout_mapper": fields}, *PROCESS[2:]]
        files = [str(tmp_path / "parts.py")]
        path = tmp_path / "recipe.yaml"
        write_recipe(path, train, process=process, custom_operator_paths=files)
        return TrainingRun.of(tmp_path / "run", load(path))

    return make


def test_a_flow_that_does_not_suit_the_policy(run, tmp_path):
    check_servers(run())
    with pytest.raises(EngineError) as caught:
        check_servers(run(refuses=FIRST))
    assert str(caught.value) == (
        f"{tmp_path}/recipe.yaml, line 6, step 2 agent_rollout_mapper: the policy is not good "
        "enough; take another one"
    )


def test_a_tool_whose_server_is_down(run):
    with pytest.raises(EngineError, match="step 2 agent_rollout_mapper: http://desk is down; st"):
        check_servers(run(tools=["desk"]))


def test_nothing_is_checked_where_nothing_is_sampled(run):
    stored = {"replay": "stored.parquet", "validation_path": None}
    check_servers(run(refuses=FIRST, tools=["desk"], **stored))
    with pytest.raises(EngineError, match="not good enough"):
        check_servers(run(refuses=FIRST, replay="stored.parquet"))


def test_weights_need_cupy_to_reach_engines_apart(run, monkeypatch):
    train = {"profile": "gpu", "mode": "separate_async", "gpu": {"rollout_gpus": 1}}
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(
        RejuiceError, match="NCCL, for which verl needs cupy; install the package cupy"
    ):
        check_servers(run(**train))
    check_servers(run(**train | {"mode": "colocate_async", "gpu": {}}))
    monkeypatch.setattr(checks, "find_spec", lambda name: object())
    check_servers(run(**train))
