"""What `main_ppo` trained on is what the recipe says offline, to the bit."""

import json

import numpy as np
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml
from exact import written
from rounding import LOG_PROBS
from true_policy import TruePolicy

from rejuice.operators.groups import Groups
from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.pipelines.analysis.explain import explain_row
from rejuice.pipelines.analysis.rows import KEPT, stored_rows
from rejuice.pipelines.engine.steps import iterate_steps
from rejuice.trainer.report.stored import open_training

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

STEPS, PROMPTS = 4, 16
ANSWERS, JUDGEMENTS = (1, 3), (2, 4)
"""The steps that train on answers, and those that train on judgements."""


def test_every_step_was_trained_and_kept(run):
    assert run.trained == [1, 2, 3, 4]
    steps = sorted(path.name for path in (run.folder / "steps").iterdir())
    assert steps == ["000001", "000002", "000003", "000004"]


@pytest.mark.parametrize("step", ANSWERS)
def test_what_was_trained_on_is_what_rejuice_run_gives(run, rejuice, step):
    folder = run.step(step)
    rejuice("run", "recipe.yaml", cwd=folder)
    export = yaml.safe_load((folder / "recipe.yaml").read_text())["export_path"]
    replayed = pq.read_table(folder / export)
    decisions = run.table(step, "decisions")
    # Rows that training itself left out, for reasons that are not the recipe's.
    ours = decisions.filter(pc.equal(decisions["step"], "training"))
    assert set(ours["reason"].to_pylist()) <= {"surplus_group", "group_of_one"}
    left = pc.invert(pc.is_in(replayed["response_id"], ours["row_id"].combine_chunks()))
    curated = run.table(step, "curated")
    assert curated.num_rows > 0
    assert written(replayed.filter(left).select(curated.column_names)) == written(curated)
    # And nothing is lost: a row was trained on, or it has a reason.
    ids = [curated["response_id"], decisions["row_id"]]
    assert sorted(id_ for column in ids for id_ in column.to_pylist()) == sorted(
        run.table(step, "rollouts")["response_id"].to_pylist()
    )


def test_the_recipe_had_something_to_do(run):
    """Else the test above says little."""
    reasons = {r for step in ANSWERS for r in run.table(step, "decisions")["reason"].to_pylist()}
    assert {"too_long", "no_reward_spread"} <= reasons
    sizes_G = Groups.of(run.table(1, "curated")).sizes_G
    assert len(set(sizes_G.tolist())) > 1
    assert any(run.figures(step)["rejuice/refills"] for step in range(1, STEPS + 1))
    sums = [
        op["reward_sum_mapper"]
        for step in range(1, STEPS + 1)
        for op in run.recipe(step)
        if "reward_sum_mapper" in op
    ]
    of_answers = [each["progress"] for each in sums if "format" in each["weights"]]
    assert of_answers == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize("step", ANSWERS)
def test_verl_logged_the_same_rewards_and_advantages(run, step):
    curated, logged = run.table(step, "curated"), run.figures(step)
    reward_N = curated["reward"].to_numpy().astype(np.float32)
    assert logged["critic/score/mean"] == pytest.approx(reward_N.mean(dtype=np.float64), rel=1e-6)
    assert logged["critic/score/max"] == reward_N.max()
    assert logged["critic/score/min"] == reward_N.min()
    sampled = pc.mean(run.table(step, "values")["reward"]).as_py()  # Dropped ones, too.
    assert logged["rejuice/reward"] == pytest.approx(sampled, rel=1e-12)
    # verl's are means over tokens, and its rewards are float32.
    advantage_N = curated["advantage"].to_numpy()
    tokens_N = pc.list_value_length(curated["response_token_ids"]).to_numpy()
    mean = (advantage_N * tokens_N).sum() / tokens_N.sum()
    assert logged["critic/advantages/mean"] == pytest.approx(mean, abs=1e-6)
    assert logged["critic/advantages/max"] == pytest.approx(advantage_N.max(), abs=1e-6)
    assert logged["critic/advantages/min"] == pytest.approx(advantage_N.min(), abs=1e-6)
    assert logged["response_length/mean"] == pytest.approx(tokens_N.mean())
    assert logged["rejuice/groups"] == len(set(curated["prompt_id"].to_pylist())) <= PROMPTS


def test_the_old_policy_is_the_one_that_is_trained(run):
    """Rollouts of step k are of the weights after step k - 1, and the update agrees about them."""
    for step in (*ANSWERS, *JUDGEMENTS):
        assert set(run.table(step, "rollouts")["policy_version"].to_pylist()) == {step - 1}
        logged = run.figures(step)
        assert abs(logged["actor/ppo_kl"]) < LOG_PROBS
        assert logged["actor/pg_clipfrac"] == 0
    # The divergence from the reference: none before the first update, some after it.
    assert abs(run.figures(1)["actor/kl_loss"]) < 1e-6
    assert run.figures(3)["actor/kl_loss"] > 1e-5
    true = TruePolicy(EMBEDDED)
    for row in run.table(1, "rollouts").slice(0, 24).to_pylist():
        expected = true.logprobs(row["prompt_token_ids"], row["response_token_ids"])
        np.testing.assert_allclose(row["response_logprobs"], expected, rtol=0, atol=LOG_PROBS)


def test_rollouts_are_those_of_the_weights_that_were_saved(run):
    """Samples of step 3, by the policy of the checkpoint of step 2, which is float32."""
    import torch

    saved = run.folder / "checkpoints" / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt"
    state = torch.load(saved, map_location="cpu", weights_only=False)
    true = TruePolicy(EMBEDDED)
    before = {name: weight.clone() for name, weight in true._model.state_dict().items()}
    true._model.load_state_dict({name: weight.to_local() for name, weight in state.items()})
    moved = [not torch.equal(w, before[name]) for name, w in true._model.state_dict().items()]
    assert all(moved)
    for row in run.table(3, "rollouts").slice(0, 24).to_pylist():
        expected = true.logprobs(row["prompt_token_ids"], row["response_token_ids"])
        np.testing.assert_allclose(row["response_logprobs"], expected, rtol=0, atol=LOG_PROBS)


@pytest.mark.parametrize("step", [0, STEPS])
def test_validation_is_the_mean_accuracy(run, step):
    table = pq.read_table(run.folder / "validations" / f"{step:06d}.parquet")
    assert table.num_rows == 24
    logged = run.figures(step)["val-core/parity/reward/mean@2"]
    assert logged == pytest.approx(pc.mean(table["reward_accuracy"]).as_py(), abs=1e-6)


@pytest.mark.parametrize("step", ANSWERS)
def test_the_history_of_a_step_is_of_its_rollouts(run, step):
    history, rollouts = run.table(step, "history"), run.table(step, "rollouts")
    assert history["prompt_id"].to_pylist() == rollouts["prompt_id"].unique().to_pylist()
    assert set(history["step"].to_pylist()) == {step}
    assert pc.sum(history["n"]).as_py() == rollouts.num_rows
    right = pc.sum(pc.multiply(history["pass_rate"], history["graded"])).as_py()
    share = right / pc.sum(history["graded"]).as_py()
    assert share == pytest.approx(run.figures(step)["rejuice/pass_rate"])
    assert pc.sum(history["trained"]).as_py() == run.figures(step)["rejuice/rows_trained"]


@pytest.mark.parametrize("step", [0, STEPS])
def test_eval_of_the_same_responses_gives_the_figures_of_validation(run, rejuice, tmp_path, step):
    stored = run.folder / "validations" / f"{step:06d}.parquet"
    rejuice("eval", run.folder, "--responses", f"validation={stored}", "-o", tmp_path, "--quiet")
    found = json.loads((tmp_path / "figures.json").read_text("utf-8"))["figures"]["validation"]
    logged = run.figures(step)
    names = {name for name in found if name not in ("prompts", "ungraded")}
    assert {"mean@2", "pass@2", "maj@2", "mean_low", "mean_high"} <= names
    for name in names:
        assert found[name] == logged[f"rejuice/validation/validation/{name}"], name


def test_samples_are_logged_at_the_validated_step(run):
    """With the rewards and advantages that are on file; of the judgements in a table of their own."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder / "tensorboard"), {"tensors": 0}).Reload()
    for part in (".", "verify"):
        (event,) = events.Tensors(f"rejuice/{part}/samples/text_summary".replace("/./", "/"))
        assert event.step == STEPS
        lines = event.tensor_proto.string_val[0].decode().splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines[2:]]
        assert len(rows) == 16
        curated = run.table(STEPS, "curated", part)
        pairs = zip(*(curated[name].to_pylist() for name in ("reward", "advantage")), strict=True)
        known = {f"{reward:.4g} {advantage:.4g}" for reward, advantage in pairs}
        kept = {f"{row[6]} {row[7]}" for row in rows if row[-1] == "kept"}
        assert len(kept) > 2
        assert kept <= known
        assert all(row[7] == "" for row in rows if row[-1] != "kept")
    assert "got no table of samples" not in (run.folder / "verl.log").read_text()


@pytest.mark.parametrize(("step", "part"), [(1, "."), (3, "."), (2, "verify"), (4, "verify")])
def test_groups_without_signal_are_those_of_the_stored_rows(run, step, part):
    name = "rejuice/groups_without_signal".replace("/", f"/{part}/" if part != "." else "/")
    kept = run.table(step, "curated", part)
    signal = kept.filter(pc.not_equal(kept["advantage"], 0))["prompt_id"]
    sampled = run.table(step, "rollouts", part)["prompt_id"]
    expected = 1 - len(signal.unique()) / len(sampled.unique())
    assert run.figures(step)[name] == pytest.approx(expected, abs=1e-9)
    assert not any("/missing/" in each for each in run.figures(step))


def test_the_cores_that_a_step_uses_are_measured(run):
    for name in ("gen", "update"):
        assert all(run.figures(step)[f"rejuice/cores/{name}"] > 0 for step in run.trained)


def test_the_stored_run_has_every_row_as_sampled_and_what_each_step_wrote(run):
    stored = open_training(run.folder)
    # Answers are sampled at every step, and judged at every second one.
    kinds = [(each.training_step, each.kind) for each in stored.sets]
    judged = [(step, "judgements") for step in JUDGEMENTS]
    replayed = [
        (step, "replayed") for step in range(1, STEPS + 1) if run.step(step, "replayed").exists()
    ]
    assert (STEPS, "replayed") in replayed
    answers = [(step, "answers") for step in range(1, STEPS + 1)]
    assert kinds == sorted([*answers, *judged, *replayed])
    assert [point["step"] for point in stored.points if "timing_s/step" in point] == run.trained
    for each in stored.sets:
        assert each.incomplete == ""
        base = each.base(0)
        again = list(iterate_steps(each.steps, base))
        decisions = each.decisions()
        left_out = decisions.filter(pc.equal(decisions["step"], "training"))["row_id"]
        for kept, computed in zip(each.applied(0), again, strict=True):
            table = kept.after.table()
            wanted = computed.after.select(table.column_names)
            if "advantage" in table.column_names:  # Which runs on what can train.
                out = pc.is_in(table["response_id"], left_out.combine_chunks())
                assert table.filter(out)["advantage"].null_count == pc.sum(out).as_py()
                table, wanted = (rows.filter(pc.invert(out)) for rows in (table, wanted))
            assert written(table) == written(wanted), kept.step.name
        rows = stored_rows(each)
        assert written(rows.table.select(["response_id"])) == written(base.select(["response_id"]))
        if each.kind == "replayed":
            continue  # Its rewards are those of earlier steps.
        total_N = np.zeros(rows.table.num_rows)
        for name in rows.components[: 2 if each.kind == "answers" else 1]:
            total_N += rows.table[f"contribution_{name}"].to_numpy()
        reward_N = rows.table["reward"].to_numpy()
        summed_N = np.isfinite(reward_N)
        assert summed_N.any()
        assert total_N[summed_N].tolist() == reward_N[summed_N].tolist()
        left = rows.table.filter(pc.equal(rows.table["fate"], KEPT))
        assert sorted(left["response_id"].to_pylist()) == sorted(
            each.final()["response_id"].to_pylist()
        )


def test_explain_shows_why_a_prompt_was_chosen_or_not(run):
    step = open_training(run.step(3))
    chosen = run.table(3, "choice")
    known = chosen.filter(pc.greater(chosen["history_visits"], 0))["prompt_id"][0].as_py()
    rank = dict(zip(*chosen.select(["prompt_id", "choice_rank"]).to_pydict().values(), strict=True))
    rollouts = run.table(3, "rollouts")
    row = rollouts.filter(pc.equal(rollouts["prompt_id"], known))["response_id"][0].as_py()
    lines = explain_row(step, row).splitlines()
    assert "04_difficulty_selector: kept" in lines
    numbers = [int(line[:2]) for line in lines if line[:2].isdecimal()]
    assert numbers == sorted({*numbers})  # Those that choose, then those after sampling.
    assert any(f"target 0.5: rank {rank[known]}" in line for line in lines)
    prompts = feather.read_table(run.folder / "prompts" / "train.arrow")["prompt_id"]
    others = {*prompts.to_pylist()}
    others -= {*chosen["prompt_id"].to_pylist()}
    sampled = len(rollouts["prompt_id"].unique())
    last = explain_row(step, min(others)).splitlines()[-1]
    assert last == f"not sampled: step 3 took the first {sampled} prompts"
