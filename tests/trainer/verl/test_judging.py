"""The policy's judgements in a training step, from the answers to what verl trains on."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from fake_run import save
from training_stage import SUM, Trainer, advantages

from rejuice.operators import DataError, RecipeError
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.report.stored import open_training

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SOLUTIONS = ROOT.parent / "shared" / "data" / "gsm8k"
ASK = {"self_verification_mapper": {"mode": "response", "template": "{question} R {response}"}}
BALANCE = {"label_balance_selector": {"column": "label", "positive": "Yes"}}
JUDGE = [
    {"policy_rollout_mapper": {"task": "verify", "n": 3, "max_tokens": 16}},
    {"judgement_reward_mapper": None},
    {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    {"grpo_advantage_mapper": None},
]
RECIPE = [{"scripted_mapper": None}, SUM, ASK, BALANCE, *JUDGE]
YES, NO = "\\boxed{Yes}", "\\boxed{No}"


class Judge(Trainer):
    """What is judged is made up."""

    def __init__(self):
        super().__init__()
        self.stage, self.requested = None, []

    def _submit_batch_to_rollout(self, batch):
        from rejuice.trainer.verl.trajectories import fail, prompt_batch, put

        found = prompt_batch(batch)
        self.requested.append(found)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": found.step}]
        self.stage.queue.kv_batch_put(
            [slot.uid for slot in found.slots], "train", tags=tags * len(found.slots)
        )
        for slot, chat in zip(found.slots, found.chats, strict=True):
            texts = self.judge(chat[-1][1].split(" R ")[1])
            if texts is None:
                fail([slot], "train")
            else:
                put([(slot, self.stage.group(texts, found.step - 1))], "train", found.step)

    def judge(self, response):
        """Two judgements that are right, and one that cannot be read."""
        message = YES if response == "1" else NO
        return [message, message, "hm"]


@pytest.fixture
def trained(stage):
    """A factory: a stage whose policy judges, and its trainer."""

    def make(schedule, after=RECIPE, **settings):
        trainer = Judge()
        here = stage(after, trainer=trainer, schedule=schedule, **settings)
        trainer.stage = here
        return here, trainer

    return make


def stored_sets(here):
    """The sets of the run, as they are on file."""
    return open_training(here.run.folder).sets


MIXED = {0: ["1", "0", "1", "1"], 1: ["0", "0", "1", "0"]}


def test_answers_and_judgements_have_credit_of_their_own(trained):
    after = [*RECIPE[:2], {"grpo_advantage_mapper": {"normalise": "none"}}, *RECIPE[2:]]
    here, _ = trained("mixed", after)
    here.answer({0: ["1", "0"]})
    batch, _ = here.sample(1, 1)
    found = advantages(here, batch)
    answers = [row.advantages[0] for key, row in found.items() if key.startswith("0000-")]
    judged = [row.advantages[0] for key, row in found.items() if not key.startswith("0000-")]
    assert answers == [0.5, -0.5]
    assert sorted(set(np.round(judged, 5))) == pytest.approx([-1.1547, 0.57735], abs=1e-4)


def test_answers_and_judgements_train_together_each_in_its_own_groups(trained):
    here, trainer = trained("mixed")
    here.answer(MIXED)
    batch, figures = here.sample(step=1, groups=2)
    rewards = here.rewards(batch)
    assert rewards[:8] == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert rewards[8:] == [1.0, 1.0, 0.0] * 4
    groups = [key.rsplit("_", 2)[0] for key in batch.keys]
    assert len(set(groups[:8])) == 2
    assert len(set(groups[8:])) == 4
    assert set(groups[:8]).isdisjoint(groups[8:])
    requested = trainer.requested[0]
    assert requested.own == [{"n": 3, "max_tokens": 16}] * len(requested.slots)
    assert (requested.partition, requested.step) == ("train", 1)
    assert figures["rejuice/rows_trained"] == 20
    assert (figures["rejuice/reward"], figures["rejuice/verify/reward"]) == (0.5, 2 / 3)
    # 5 x 4 rows: one update, as without judgements.
    assert trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == 5
    reported = {name.removeprefix("rejuice/verify/"): v for name, v in figures.items()}
    assert reported["prompts"] == 4
    assert reported["accuracy"] == pytest.approx(2 / 3)
    assert reported["malformed"] == pytest.approx(1 / 3)
    assert (reported["age"], reported["rows_sampled"]) == (0.0, 12)
    assert reported["note/label_balance_selector/positive_kept"] == 2
    tokens = sum(len(ids) for part in ("", "verify") for ids in here.tokens(part))
    assert figures["rejuice/tokens_sampled"] == tokens


def test_samples_of_judgements_are_a_table_of_their_own(trained):
    here, trainer = trained("mixed", steps=1)
    logged = {}
    writer = SimpleNamespace(add_text=lambda name, text, step: logged.update({name: (step, text)}))
    trainer.logger.logger["tensorboard"] = SimpleNamespace(writer=writer)
    here.answer(MIXED)
    _, figures = here.sample(step=1, groups=2)
    assert {name: step for name, (step, _) in logged.items()} == {
        "rejuice/samples": 1,
        "rejuice/verify/samples": 1,
    }
    lines = [line.strip("| ").split(" | ") for line in logged["rejuice/verify/samples"][1].splitlines()]  # fmt: skip
    columns = dict(zip(lines[0], zip(*lines[2:], strict=True), strict=True))
    assert len(columns["step"]) == 12
    assert set(columns["reference"]) == {"Yes", "No"}
    # Two judgements of each answer are right, and one cannot be read.
    assert set(columns["components"]) == {"verification 1", "verification 0"}
    assert columns["verdict"].count("") == 4
    assert {r for r, v in zip(columns["reference"], columns["verdict"], strict=True) if v != r and v} == set()  # fmt: skip
    assert figures["rejuice/groups_without_signal"] == 0
    assert figures["rejuice/verify/groups_without_signal"] == 0


def test_only_judgements_train_and_nothing_else_is_left(trained):
    here, _ = trained("self_verify")
    here.answer(MIXED)
    batch, figures = here.sample(step=1, groups=2)
    assert here.rewards(batch) == [1.0, 1.0, 0.0] * 4
    assert set(here.queue.partitions["train"]) == set(batch.keys)
    # They were judged at once, and wait no longer.
    assert not (here.run.step_folder(1) / "answers.arrow").exists()
    assert figures["rejuice/pass_rate"] == 0.5
    assert here.saved("curated").num_rows == 8


def test_judging_accuracy_is_of_what_was_sampled(trained):
    """Groups that all agree train nothing, and are judgements like any others."""
    spread = [*RECIPE[:-1], {"reward_std_filter": None}, RECIPE[-1]]
    here, trainer = trained("self_verify", spread)
    trainer.judge = lambda response: [YES, YES, YES] if response == "1" else [YES, NO, "hm"]
    here.answer(MIXED)
    batch, figures = here.sample(step=1, groups=2)
    assert here.rewards(batch) == [0.0, 1.0, 0.0] * 2
    assert figures["rejuice/verify/accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert figures["rejuice/verify/says_yes"] == pytest.approx(8 / 12)
    assert figures["rejuice/verify/malformed"] == pytest.approx(2 / 12)


def test_answers_are_queued_until_judgements_are_due(trained):
    here, trainer = trained("verify_alter", verification={"every": 2})
    here.answer(MIXED, step=1)
    batch, figures = here.sample(step=1, groups=2)
    assert len(batch.keys) == 8
    assert not trainer.requested
    assert not any(name.startswith("rejuice/verify") for name in figures)
    here.answer({2: ["1", "0", "0", "0"], 3: ["0", "0", "0", "0"]}, step=2)
    batch, figures = here.sample(step=2, groups=2)
    assert len(batch.keys) == 8 + 3 * 6
    assert figures["rejuice/verify/age"] == pytest.approx(4 / 6)
    assert figures["rejuice/verify/oldest"] == 1
    rows = here.saved("verify/rollouts", step=2)
    ages = {row["prompt_id"]: row["sampled_at_step"] for row in rows.to_pylist()}
    assert sorted(ages.values()) == [1, 1, 1, 1, 2, 2]
    assert set(rows["answer_policy_version"].to_pylist()) == {0, 1}
    assert set(rows["policy_version"].to_pylist()) == {1}


def test_answers_of_judged_steps_are_removed_unless_a_checkpoint_needs_them(trained):
    here, _ = trained("verify_alter", verification={"every": 2})
    save(here.run.folder, 1)
    (here.run.folder / "checkpoints/global_step_3").mkdir()  # It is not whole.
    for step in (1, 2, 3, 4):
        here.answer(MIXED, step=step)
        here.sample(step=step, groups=2)
        here.queue.partitions.clear()
    left = sorted((here.run.folder / "steps").glob("*/answers.arrow"))
    assert [path.parent.name for path in left] == ["000001"]


class More:
    """Answers a refill: so many further prompts, with the responses it is given, in turn."""

    def __init__(self, *groups):
        self.groups, self.requested, self.next = list(groups), [], 2

    def __call__(self, wanted):
        self.requested.append(wanted)
        for _ in range(wanted):
            texts = self.groups[self.next % len(self.groups)]
            self.stage.answer({self.next: texts})
            self.next += 1
        return wanted


TARGET = [*RECIPE[:3], {"label_balance_selector": {**BALANCE["label_balance_selector"], "target": 8}}, *JUDGE]  # fmt: skip


def refilled(trained, *groups, schedule="self_verify", after=TARGET, **settings):
    more = More(*groups)
    here, trainer = trained(schedule, after, prompts=40, **settings)
    more.stage, trainer._more = here, more
    return here, more


def test_more_prompts_are_sampled_until_the_target_is_met(trained, capsys):
    here, more = refilled(trained, ["1"] * 4, ["0", "1", "1", "0"], refill=3)
    here.answer({0: ["1", "0", "0", "1"], 1: ["1"] * 4})
    batch, figures = here.sample(step=1, groups=2)
    # One mixed prompt of two gave 2 of 8 prompts; then 2 of 4 gave 4; ...
    assert more.requested == [2, 2, 2]
    assert (figures["rejuice/refills"], figures["rejuice/verify/prompts"]) == (3, 8)
    assert figures["rejuice/verify/note/label_balance_selector/short_of_target"] == 0
    assert len(batch.keys) == 8 * 3
    assert here.saved("rollouts").num_rows == 8 * 4
    assert set(here.queue.partitions["train"]) == set(batch.keys)
    assert capsys.readouterr().out == ""


def test_a_step_that_meets_its_target_asks_for_no_more(trained):
    here, more = refilled(trained, ["1"], refill=3, prompts_per_step=4)
    here.answer({prompt: ["1", "0", "0", "1"] for prompt in range(4)})
    _, figures = here.sample(step=1, groups=4)
    assert more.requested == []
    assert (figures["rejuice/refills"], figures["rejuice/verify/prompts"]) == (0, 8)


def test_a_refill_that_does_not_meet_the_target_trains_on_what_there_is(trained, capsys):
    here, more = refilled(trained, ["1"] * 4, refill=2)
    here.answer({0: ["1", "0"], 1: ["0", "0"]})
    batch, figures = here.sample(step=1, groups=2)
    assert more.requested == [2, 2]
    assert figures["rejuice/verify/note/label_balance_selector/short_of_target"] == 6
    assert len(batch.keys) == 2 * 3
    assert "step 1: 2 of 8 verification prompts after 2 refills" in capsys.readouterr().out


def test_a_step_whose_prompts_all_failed_is_refilled(trained):
    here, more = refilled(trained, ["1", "0"], refill=4)
    here.fail([0, 1])
    _, figures = here.sample(step=1, groups=2)
    assert sum(more.requested) == 4
    assert figures["rejuice/verify/prompts"] == 8


def test_where_answers_train_a_refill_replaces_groups_as_before(trained):
    here, more = refilled(trained, ["1"], schedule="mixed", refill=2)
    here.answer(MIXED)
    _, figures = here.sample(step=1, groups=2)
    assert more.requested == []
    assert figures["rejuice/verify/note/label_balance_selector/short_of_target"] == 4


def test_steps_of_verify_init_that_judge_meet_their_target_too(trained):
    here, more = refilled(
        trained, ["1", "0"], schedule="verify_init", refill=2, verification={"init_share": 0.5}
    )
    here.answer(MIXED)
    _, figures = here.sample(step=1, groups=2)
    assert more.requested == [2]
    assert figures["rejuice/verify/prompts"] == 8


def test_a_refill_of_judgements_needs_a_target(trained):
    found = "nothing says how many are enough; give label_balance_selector a target, or leave ref"
    with pytest.raises(RecipeError, match=found):
        trained("self_verify", refill=1)
    trained("verify_init", refill=1)  # Where answers train there is a number: that of the prompts.


def test_a_run_that_goes_on_judges_the_same_answers(trained, queue):
    from training_stage import buffer_of

    here, trainer = trained("verify_alter", verification={"every": 2})
    here.answer(MIXED, step=1)
    here.sample(step=1, groups=2)
    queue.partitions.clear()
    # Killed at step 2, in which nothing was kept; another process goes on.
    here.buffer = buffer_of(here.run, trainer)
    here.answer({2: ["1", "0", "0", "0"], 3: ["0", "0", "0", "0"]}, step=2)
    _, figures = here.sample(step=2, groups=2)
    assert figures["rejuice/verify/prompts"] == 6
    assert figures["rejuice/verify/oldest"] == 1


def test_what_cannot_be_judged_is_no_loss_where_answers_train(trained):
    here, trainer = trained("mixed")
    here.answer({0: ["1"] * 4, 1: ["0"] * 4})
    batch, figures = here.sample(step=1, groups=2)
    assert len(batch.keys) == 8
    assert not trainer.requested
    assert figures["rejuice/verify/prompts"] == 0
    assert figures["rejuice/verify/flushed_answers"] == 8
    here.saved("verify/values")
    _, judgements = stored_sets(here)
    assert stored_rows(judgements).table.num_rows == judgements.final().num_rows == 0


def test_a_step_whose_prompts_are_all_solved_or_not_has_nothing_to_judge(trained):
    from rejuice.trainer.verl.verl_trainer import StepSkippedError

    here, _ = trained("self_verify")
    here.answer({0: ["1"] * 4, 1: ["0"] * 4})
    with pytest.raises(StepSkippedError) as skipped:
        here.sample(step=1, groups=2)
    assert skipped.value.figures["rejuice/rows_trained"] == 0


def test_where_no_judgement_is_left_the_steps_that_judge_are_named(trained):
    ask, *judged = JUDGE
    here, _ = trained("self_verify", [*RECIPE[:4], ask, {"length_filter": {"max": 0}}, *judged])
    here.answer(MIXED)
    with pytest.raises(DataError, match=r"\(too_long \d+\); look at the steps that judge, or"):
        here.sample(step=1, groups=2)


def test_judgements_that_fail_are_counted(trained):
    here, trainer = trained("mixed")
    trainer.judge = lambda response: [YES] * 3 if response == "1" else None
    here.answer(MIXED)
    batch, figures = here.sample(step=1, groups=2)
    assert figures["rejuice/verify/failed_prompts"] == 2
    assert here.rewards(batch)[8:] == [1.0] * 6


def test_a_verification_prompt_may_be_too_long(trained):
    here, trainer = trained("mixed", max_prompt_tokens=40)
    here.answer({0: ["1", "0" + " and more" * 40], 1: ["1", "0"]})
    _, figures = here.sample(step=1, groups=2)
    assert figures["rejuice/verify/dropped/prompt_too_long"] == 1
    # Balanced after that: with one No too long, one Yes goes too.
    assert len(trainer.requested[0].slots) == figures["rejuice/verify/prompts"] == 2
    assert figures["rejuice/verify/note/label_balance_selector/positive_kept"] == 1
    gone = here.saved("verify/not_asked")["reason"].to_pylist()
    assert sorted(gone) == ["over_ratio", "prompt_too_long"]


ADVANTAGES = [*RECIPE[:2], {"grpo_advantage_mapper": None}, *RECIPE[2:]]


@pytest.mark.parametrize("after", [RECIPE, ADVANTAGES], ids=["judgements", "answers too"])
def test_the_step_can_be_run_again_offline(trained, after):
    """With an advantage of answers, the rollouts have that column before the steps run."""
    here, _ = trained("mixed", after)
    here.answer(MIXED)
    batch, _ = here.sample(step=1, groups=2)
    kept = here.saved("verify/curated")
    folder = here.run.step_folder(1) / "verify"
    run(load(folder / "recipe.yaml"), cache=folder / "cache")
    again = pq.read_table(folder / "again.parquet")
    for name in ("response_id", "judgement", "reward", "advantage"):
        assert again[name].to_pylist() == kept[name].to_pylist()
    assert again["reward"].to_pylist() == here.rewards(batch)[8:]


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (RECIPE[:6], "no step after policy_rollout_mapper writes the column reward"),
        (
            [*RECIPE[:4], {"policy_rollout_mapper": {"n": 3, "max_tokens": 16}}, *JUDGE[1:]],
            "step 7: the second policy_rollout_mapper samples all rows; give it task: verify",
        ),
        (
            [
                *RECIPE[:4],
                {"policy_rollout_mapper": {**JUDGE[0]["policy_rollout_mapper"], "max_tokens": 99}},
                *JUDGE[1:],
            ],
            "judgements may have 99 tokens, and responses 16",
        ),
        ([*RECIPE, BALANCE], "sees answers and judgements together"),
        (
            [
                *RECIPE[:4],
                {"policy_rollout_mapper": {"task": "verify", "n": 1, "max_tokens": 16}},
                *JUDGE[1:],
            ],
            "a single judgement has no other one to be compared with; give it n: 2 or more",
        ),
        (
            [*RECIPE[:4], {"length_filter": {"unit": "tokens", "max": 9}}, *JUDGE],
            "length_filter reads response_token_ids, which queued answers",
        ),
        (
            [
                *RECIPE[:2],
                {"self_verification_mapper": {"candidates": "all", "ungraded": "ask"}},
                *JUDGE,
            ],
            "asks about answers without a verdict, which train nothing",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(trained, process, message):
    with pytest.raises(RecipeError, match=message):
        trained("mixed", process)


def test_a_schedule_needs_what_it_trains_on(trained):
    with pytest.raises(RecipeError, match="capacity is 3, and one prompt has 4 answers"):
        trained("mixed", verification={"capacity": 3})
    with pytest.raises(RecipeError, match="schedule mixed trains on judgements"):
        trained("mixed", RECIPE[:2])
    with pytest.raises(RecipeError, match="no step before self_verification_mapper writes the rew"):
        trained("self_verify", [RECIPE[0], *RECIPE[2:]])


@pytest.mark.skipif(not SOLUTIONS.exists(), reason="GSM8K is not beside this checkout")
def test_targets_of_real_responses_are_those_that_the_offline_recipe_makes(verl, tmp_path):
    """The rows of gsm8k_solutions.yaml before self_verification_mapper, through both paths."""
    from rejuice.trainer.verl.judging import QueuedAnswers, verification_prompts

    recipe = yaml.safe_load((ROOT / "recipes" / "gsm8k_solutions.yaml").read_text())
    recipe["dataset_path"] = str(SOLUTIONS / "model_solutions.jsonl")
    at = [name for step in recipe["process"] for name in step].index("self_verification_mapper")
    whole, part = tmp_path / "whole.parquet", tmp_path / "part.parquet"
    for path, process in ((whole, recipe["process"]), (part, recipe["process"][:at])):
        file = tmp_path / f"{path.stem}.yaml"
        file.write_text(json.dumps({**recipe, "process": process, "export_path": str(path)}))
        run(load(file), cache=tmp_path / "cache")
    offline = pq.read_table(whole)
    offline = offline.filter(pc.equal(offline["task"], "verify"))
    steps = load(tmp_path / "whole.yaml").steps[at:]
    answers = pq.read_table(part)
    answers = answers.append_column("sampled_at_step", pa.repeat(1, answers.num_rows))
    trained, _, figures = verification_prompts(steps, QueuedAnswers(answers), 1, lambda chat: [], 9)
    assert offline.num_rows > 100
    for name in ("prompt_id", "prompt", "label", "judged_response_id"):
        assert trained[name].to_pylist() == offline[name].to_pylist()
    labels = np.array(trained["label"].to_pylist())
    assert (labels == "Yes").sum() == (labels == "No").sum()
    assert figures["prompts"] == offline.num_rows


def test_answers_and_judgements_are_two_sets_of_the_stored_step(trained):
    here, _ = trained("mixed")
    here.answer(MIXED)
    here.sample(step=1, groups=2)
    here.saved("verify/values")
    answers, judgements = stored_sets(here)
    assert (answers.name, answers.kind) == ("step 1", "answers")
    assert (judgements.name, judgements.kind) == ("step 1 judgements", "judgements")
    # In the recipe of the run there is another sum before them, of the answers.
    assert [step.name for step in judgements.steps] == [
        "judgement_reward_mapper", "reward_sum_mapper_2", "grpo_advantage_mapper",
    ]  # fmt: skip
    for each in (answers, judgements):
        *_, last = each.applied(0)
        table = last.after.table()
        assert table.equals(each.final().select(table.column_names))
    rows = stored_rows(judgements)
    assert rows.components == ("verification",)
    assert rows.table["contribution_verification"].to_pylist() == [1.0, 1.0, 0.0] * 4
    fitted = judgements.fit(load(here.run.folder / "recipe.yaml"))
    assert [step.operator for step in fitted] == [step.operator for step in judgements.steps]
