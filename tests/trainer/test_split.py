"""Where a recipe is split, and why one is refused."""

import pytest
import yaml

from rejuice.operators import RecipeError
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.train import TURN_MEAN, Train
from rejuice.trainer.split import check_section, grading_steps, loss_agg_mode, split_recipe

PLAIN = [
    {"prompt_template_mapper": None},
    {"policy_rollout_mapper": {"n": 4}},
    {"math_verify_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
]


AGENTS = [PLAIN[0], {"agent_rollout_mapper": {"n": 4, "tools": ["calculator"]}}, *PLAIN[2:]]


@pytest.fixture
def parts(tmp_path):
    def make(process):
        path = tmp_path / "recipe.yaml"
        head = {"project_name": "cutting", "dataset_path": "a.jsonl", "export_path": "b.parquet"}
        path.write_text(yaml.safe_dump({**head, "process": process}))
        return split_recipe(load(path))

    return make


def test_steps_before_and_after_sampling(parts):
    found = parts(PLAIN)
    assert found.source == "cutting"
    assert [step.name for step in found.before] == ["prompt_template_mapper"]
    assert found.rollout.n == 4
    assert [step.number for step in found.after] == [3, 4]


def test_agents_sample_as_a_policy_does(parts):
    assert parts(PLAIN).agents is None
    found = parts(AGENTS)
    assert found.agents is found.rollout
    assert [step.number for step in found.after] == [3, 4]


@pytest.mark.parametrize(
    ("fields", "train", "message"),
    [
        (
            {"engine": "recorded", "recorded": {"path": "x.parquet"}},
            {},
            "engine recorded returns stored trajectories, and training samples its own; "
            "choose engine transformers, or train on stored ones by train.replay",
        ),
        (
            {},
            {"schedule": "mixed"},
            "schedule mixed trains on judgements, and agents judge nothing; "
            "choose schedule generate",
        ),
        (
            {"on_policy": False, "temperature": 0.5},
            {"replay": "x.parquet"},
            "temperature is 0.5, and stored log-probabilities are those of the policy "
            "itself; set the temperature of agent_rollout_mapper to 1",
        ),
    ],
)
def test_a_section_that_agents_cannot_train_by_is_refused(parts, fields, train, message):
    found = parts([AGENTS[0], {"agent_rollout_mapper": fields}, *AGENTS[2:]])
    with pytest.raises(RecipeError) as caught:
        check_section(found, Train(**train))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (PLAIN[:1] + PLAIN[2:], "no step samples responses; training needs one policy_rollout"),
        (
            [*PLAIN, PLAIN[1]],
            ", step 5: two steps sample responses; the second answers the prompts of one self_verif",
        ),
        (PLAIN[:3], "no step after policy_rollout_mapper writes the column reward; add a reward_"),
        (
            [*PLAIN, {"self_verification_mapper": None}],
            ", step 5: no step answers the prompts of self_verification_mapper; put policy_rollout_",
        ),
        (
            [*AGENTS, PLAIN[1]],
            ", step 5: agent_rollout_mapper and policy_rollout_mapper in one recipe; training "
            "samples the trajectories of agents or has the policy judge its answers: leave one",
        ),
        (
            [*AGENTS, {"self_verification_mapper": None}],
            ", step 5: agent_rollout_mapper and self_verification_mapper in one recipe; ",
        ),
        (AGENTS[:3], "no step after agent_rollout_mapper writes the column reward; add a reward_"),
        (
            [*PLAIN, {"grpo_advantage_mapper": None}, {"length_filter": {"max": 9}}],
            ", step 6: length_filter drops rows that were compared with their group already; "
            "leave it out of training",
        ),
        (
            [*PLAIN, {"grpo_advantage_mapper": None}, {"reward_std_filter": None}],
            ", step 6: reward_std_filter drops rows that were compared with their group already; put "
            "it before grpo_advantage_mapper",
        ),
    ],
)
def test_a_recipe_that_cannot_train_is_refused_in_one_line(parts, process, message):
    with pytest.raises(RecipeError) as caught:
        parts(process)
    assert message in str(caught.value)
    assert "recipe.yaml" in str(caught.value)


def test_validation_runs_the_steps_that_grade(parts):
    steps = [*PLAIN[:3], {"format_reward_mapper": None}, PLAIN[3]]
    assert [step.name for step in grading_steps(parts(steps).after)] == ["math_verify_mapper"]


@pytest.mark.parametrize("verifier", [{"llm_verify_mapper": {"model": "m"}}, "unit_test_mapper"])
def test_every_verifier_grades_a_validation(parts, verifier):
    (name,) = verifier if isinstance(verifier, dict) else (verifier,)
    steps = [*PLAIN[:2], verifier, PLAIN[3]]
    assert [step.name for step in grading_steps(parts(steps).after)] == [name]


def test_a_recipe_that_does_not_grade_is_refused(parts):
    ungraded = [*PLAIN[:2], {"format_reward_mapper": None}, PLAIN[3]]
    with pytest.raises(RecipeError, match="no step writes reward_accuracy, by which validation"):
        grading_steps(parts(ungraded).after)


def test_a_mean_over_turns_is_for_agents(parts):
    found = parts(PLAIN)
    assert loss_agg_mode(found, Train()) == "token-mean"
    with pytest.raises(RecipeError) as caught:
        check_section(found, Train(loss={"aggregate": TURN_MEAN}))
    assert str(caught.value) == (
        "loss.aggregate trajectory-turn-token-mean is a mean over turns, of which these "
        "responses have none; leave it out, or sample with agent_rollout_mapper"
    )


def test_how_each_loss_is_aggregated(parts):
    plain, agents = parts(PLAIN), parts(AGENTS)
    of_responses = ("gspo", "sapo", "geo_mean")
    for policy in ("vanilla", "gspo", "cispo", "sapo", "geo_mean", "clip_cov", "kl_cov"):
        config = Train(loss={"policy": policy})
        wanted = "seq-mean-token-mean" if policy in of_responses else "token-mean"
        assert loss_agg_mode(plain, config) == wanted
        check_section(agents, config)
        # Turns are responses to the others.
        assert loss_agg_mode(agents, config) == (TURN_MEAN if policy == "vanilla" else wanted)
    given = Train(loss={"aggregate": "seq-mean-token-sum"})
    assert loss_agg_mode(agents, given) == loss_agg_mode(plain, given) == "seq-mean-token-sum"


def test_a_key_of_another_loss_is_refused(parts):
    key = "actor_rollout_ref.actor.policy_loss.kl_cov_ratio"
    check_section(parts(PLAIN), Train(loss={"policy": "kl_cov"}, verl={key: 0.002}))
    chosen = {"actor_rollout_ref.actor.policy_loss.loss_mode": "kl_cov"}
    check_section(parts(PLAIN), Train(verl={key: 0.002, **chosen}))
    with pytest.raises(RecipeError) as caught:
        check_section(parts(PLAIN), Train(loss={"policy": "gspo"}, verl={key: 0.002}))
    assert str(caught.value) == (
        f"{key} is of loss kl_cov, and gspo ignores it; "
        "leave the key out, or set train.loss.policy to kl_cov"
    )
    for loss in ("dppo_tv", "one_of_my_own"):  # What these read is not known.
        keys = {"policy_loss.loss_mode": loss, "clip_ratio_c": 10}
        keys = {f"actor_rollout_ref.actor.{key}": value for key, value in keys.items()}
        check_section(parts(PLAIN), Train(verl=keys))
    for name in ("loss_agg_mode", "clip_ratio_c", "policy_loss.loss_mode"):
        with pytest.raises(RecipeError, match=f"{TURN_MEAN} ignores .*{name}"):
            check_section(parts(AGENTS), Train(verl={f"actor_rollout_ref.actor.{name}": 3}))


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (
            [
                PLAIN[0],
                {"policy_rollout_mapper": {"temperature": 0.5, "on_policy": False}},
                *PLAIN[2:],
            ],
            "temperature is 0.5, and mode colocate_async compares log-probabilities of the "
            "policies themselves; set temperature of policy_rollout_mapper to 1, or choose mode sync",
        ),
        (
            [PLAIN[0], {"policy_rollout_mapper": {"top_p": 0.9, "on_policy": False}}, *PLAIN[2:]],
            "top_p is 0.9, and mode colocate_async compares log-probabilities of the "
            "policies themselves; set top_p of policy_rollout_mapper to 1, or choose mode sync",
        ),
        (
            [*PLAIN, {"importance_weight_mapper": None}, {"grpo_advantage_mapper": None}],
            "importance_weight_mapper stands before grpo_advantage_mapper, until which "
            "responses of older policies have no log-probabilities of the current one; put it "
            "after grpo_advantage_mapper",
        ),
        (
            [*AGENTS, {"grpo_advantage_mapper": None}, {"importance_weight_mapper": None}],
            "importance_weight_mapper gives responses weights, and agent_rollout_mapper "
            "samples trajectories; leave importance_weight_mapper out: the update then starts from "
            "the policy that sampled",
        ),
    ],
)
def test_what_cannot_be_sampled_ahead_is_refused(parts, process, message):
    found = parts(process)
    check_section(found, Train())
    with pytest.raises(RecipeError) as caught:
        check_section(found, Train(mode="colocate_async"))
    assert str(caught.value) == message
