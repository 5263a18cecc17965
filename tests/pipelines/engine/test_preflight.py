"""Servers that later steps need are checked before an earlier step is paid for."""

import pytest
from fake_judge import FakeJudge, Trouble
from fake_server import FakeServer

from rejuice.operators import EngineError, RecipeError
from rejuice.operators.sandbox import run as sandbox
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

QUICK = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 0.1, "attempts": 2}
SAMPLE, JUDGE = "policy_rollout_mapper", "llm_quality_reward_mapper"


@pytest.fixture
def servers():
    with FakeServer() as policy, FakeJudge() as judge:
        yield policy, judge


@pytest.fixture
def recipe_of(recipe_file, tmp_path):
    def make(policy, judge, prompts=4, **fields):
        options = {"api": "chat", "base_url": policy.url, **QUICK}
        sampling = {"engine": "openai", "model": "m", "n": 1, "max_tokens": 9, "openai": options}
        server = {"base_url": judge.url, **QUICK}
        judging = {"model": "m", "server": server, "cache": str(tmp_path / "scores.sqlite")}
        return recipe_file(
            [{"prompt_template_mapper": {}}, {SAMPLE: sampling}, {JUDGE: {**judging, **fields}}],
            [{"question": f"{k}?", "answer": str(k)} for k in range(prompts)],
        )

    return make


def test_no_prompt_is_sampled_where_the_judge_is_down(recipe_of, servers):
    policy, judge = servers
    judge.kill()
    path = recipe_of(policy, judge)
    with pytest.raises(EngineError) as error:
        engine.run(load(path))
    message = str(error.value)
    assert message.startswith(
        f"{path}, line 17, step 3 {JUDGE}: {judge.url} could not be reached for 0.1 s: connection refused"
    )
    assert message.endswith("; is the server up?")
    assert policy.attempts.total() == 0
    commits = (path.parent / "out" / ".rejuice").glob("prompt_template_mapper-*/*.arrow")
    assert not list(commits), "no step has run"


def test_a_judge_with_a_cache_is_checked_before_new_samples(recipe_of, servers):
    """It may have scored all responses before; but not those that are yet to be sampled."""
    policy, judge = servers
    engine.run(load(recipe_of(policy, judge)))
    judge.kill()
    sampled = policy.attempts.total()
    path = recipe_of(policy, judge, prompts=5)
    with pytest.raises(EngineError) as error:
        engine.run(load(path))
    # Of one step, although another one was running.
    assert str(error.value).startswith(f"{path}, line 17, step 3 {JUDGE}: {judge.url} could not be")
    assert policy.attempts.total() == sampled


def test_what_is_known_needs_no_server(recipe_of, servers):
    policy, judge = servers
    path = recipe_of(policy, judge)
    first = engine.run(load(path))
    policy.kill()
    judge.kill()
    for fields in ({}, {f"{JUDGE}.on_server_down": "missing"}):  # Another key: from its own cache.
        report = engine.run(load(path, fields))
        assert report.rows_out == first.rows_out == 4
        assert report.steps[2].columns["reward_quality"]["n"] == 4


def test_recorded_responses_may_have_been_judged(recipe_of, servers, tmp_path):
    policy, judge = servers
    path = recipe_of(policy, judge)
    engine.run(load(path))
    judge.kill()
    recorded = {
        f"{SAMPLE}.engine": "recorded",
        f"{SAMPLE}.recorded.path": str(tmp_path / "out" / "curated.parquet"),
        "export_path": str(tmp_path / "again" / "curated.parquet"),
    }
    report = engine.run(load(path, recorded))
    assert report.steps[2].columns["reward_quality"]["n"] == 4


def test_a_model_that_is_not_served_is_known_before_all_else(recipe_of, servers):
    policy, judge = servers
    judge.always = Trouble.NOT_FOUND
    with pytest.raises(EngineError, match=r"the server has no model 'big'; it has m, other$"):
        engine.run(load(recipe_of(policy, judge, model="big")))
    assert policy.attempts.total() == 0


def test_a_judge_that_may_be_down_is_a_warning(recipe_of, servers, caplog):
    policy, judge = servers
    judge.kill()
    report = engine.run(load(recipe_of(policy, judge, on_server_down="missing")))
    counts = report.steps[2].columns["reward_quality_missing"]["counts"]
    assert counts == {"scorer_unreachable": 4}
    (warning,) = [each for each in caplog.messages if each.startswith(judge.url)]
    assert warning.endswith(": rewards are missing while it is down")
    assert warning.startswith(f"{judge.url} could not be reached: connection refused"), (
        "nothing is waited for"
    )


def test_no_prompt_is_sampled_where_programs_cannot_be_confined(recipe_file, servers, monkeypatch):
    policy, _ = servers

    def refuse():
        raise RecipeError(
            "this machine cannot confine the Python programs of a policy", "run it on X"
        )

    monkeypatch.setattr(sandbox, "check_confinement", refuse)
    options = {"api": "chat", "base_url": policy.url, **QUICK}
    sampling = {"engine": "openai", "model": "m", "n": 1, "max_tokens": 9, "openai": options}
    grading = {"tests": "answer", "style": "assert"}
    path = recipe_file(
        [{"prompt_template_mapper": {}}, {SAMPLE: sampling}, {"unit_test_mapper": grading}],
        [{"question": "a square?", "answer": "assert f(3) == 9"}],
    )
    with pytest.raises(EngineError) as error:
        engine.run(load(path))
    assert str(error.value) == (
        f"{path}, line 17, step 3 unit_test_mapper: this machine cannot confine the Python programs "
        "of a policy; run it on X"
    )
    assert policy.attempts.total() == 0
