"""A run that was killed while it saved a step does that step again, as it was."""

import numpy as np
import pyarrow.compute as pc
import pytest
from exact import written
from rounding import LOG_PROBS

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

LAST = 4


def test_the_answers_of_the_step_are_the_same(run, resumed):
    for name in ("rollouts", "curated", "decisions"):
        first, second = run.table(LAST, name), resumed.table(LAST, name)
        plain = [column for column in first.column_names if column != "response_logprobs"]
        assert written(second.select(plain)) == written(first.select(plain)), name
    pairs = [run.table(LAST, "rollouts"), resumed.table(LAST, "rollouts")]
    first, second = (pc.list_flatten(each["response_logprobs"]).to_numpy() for each in pairs)
    np.testing.assert_allclose(second, first, rtol=0, atol=LOG_PROBS)


def test_it_chooses_the_same_prompts(run, resumed):
    first, second = run.table(LAST, "choice"), resumed.table(LAST, "choice")
    assert second.equals(first)
    prompts = run.table(LAST, "rollouts")["prompt_id"].unique()
    assert {*prompts.to_pylist()} <= {*first["prompt_id"].to_pylist()}
    visits = first["history_visits"].to_pylist()
    # Those that rest, or were solved, are not among them.
    assert sum(n > 0 for n in visits) in (len(visits) // 2, -(-len(visits) // 2))
    assert all(age is None or age >= 1 for age in first["history_age"].to_pylist())
    assert pc.max(first["history_solved"]).as_py() == 0


def test_it_replays_the_same_groups(run, resumed):
    first, second = (each.table(LAST, "rollouts", "replayed") for each in (run, resumed))
    assert first.num_rows
    assert set(first["replayed_from"].to_pylist()) <= {LAST - 2, LAST - 1}
    names = ["prompt_id", "response_id", "replayed_from", "reward"]
    assert second.select(names).equals(first.select(names))
    for name in ("decisions", "curated"):
        pair = [each.table(LAST, name, "replayed") for each in (run, resumed)]
        rows = ["row_id", "reason"] if name == "decisions" else ["response_id", "advantage"]
        assert pair[1].select(rows).equals(pair[0].select(rows)), name
    weights = [each.table(LAST, "curated", "replayed")["token_weight"] for each in (run, resumed)]
    flat = [np.asarray(pc.list_flatten(each)) for each in weights]
    np.testing.assert_allclose(flat[1], flat[0], rtol=1e-3)
    # The policy has changed, and little: the weights are near 1, and not 1.
    assert 0.5 < flat[0].mean() < 2
    assert (np.abs(flat[0] - 1) > 1e-4).any()


def test_it_judges_the_same_answers_of_the_same_age(run, resumed):
    first, second = (each.table(LAST, "curated", "verify") for each in (run, resumed))
    names = ["prompt_id", "label", "judged_response_id", "sampled_at_step", "answer_policy_version"]
    assert second.select(names).to_pylist() == first.select(names).to_pylist()
    assert second["response"].to_pylist() == first["response"].to_pylist()


def test_the_update_is_the_same(run, resumed):
    first, second = run.figures(LAST), resumed.figures(LAST)
    for name in ("actor/loss", "actor/grad_norm", "critic/score/mean", "actor/entropy_loss"):
        assert second[name] == pytest.approx(first[name], rel=1e-3, abs=1e-6), name
    judged = {name: value for name, value in first.items() if name.startswith("rejuice/verify/")}
    assert judged == pytest.approx({name: second[name] for name in judged}, rel=1e-5, abs=1e-7)
    assert judged
    assert (resumed.folder / "checkpoints" / f"global_step_{LAST}").exists()


def test_it_goes_on_at_the_rate_that_was_given(run, resumed):
    assert run.figures(LAST)["actor/lr"] == pytest.approx(1e-4)
    assert resumed.figures(LAST)["actor/lr"] == pytest.approx(5e-6)
