"""Other settings over stored responses are what a fresh run of them makes, to the bit."""

import copy
import json
import random
from collections import Counter
from io import StringIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from exact import written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_run import AFTER, PROCESS, run_tiny, write_tiny
from typer.testing import CliRunner

from rejuice.operators import DataError, FormatRewardMapper
from rejuice.pipelines.analysis.comparison import KINDS, UNKNOWN, changed_fields, compare
from rejuice.pipelines.analysis.replay import SetSamples
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.whatif import (
    changes_of,
    compared,
    left_out,
    show_each,
    whatif,
    whatif_each,
)
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.console import Console
from rejuice.pipelines.engine import plan
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

SAMPLING = list(PROCESS[:2])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return run_tiny(folder)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """40 groups of random verdicts, formats and lengths, some of one response, in many chunks."""
    folder, draw = tmp_path_factory.mktemp("many"), random.Random(7)
    recipe = run_tiny(folder)
    rows = []
    for at in range(40):
        forms = [rf"\boxed{{{at % 5}}}", f"It is {at % 5}.", rf"\boxed{{{at}}} or so", "No idea"]
        n = draw.choice([1, 4, 6])
        responses = [draw.choice(forms) * draw.choice([1, 1, 2]) for _ in range(n)]
        question = f"What is {at} mod 5?"
        rows.append({"question": question, "answer": str(at % 5), "responses": responses})
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    engine.run(recipe, chunk_rows=7)
    return recipe


def test_tiny_by_hand(tiny):
    (one,) = open_stored(tiny.path).sets
    changes = {"reward_sum_mapper.weights.accuracy": "0.1", "pass_rate_filter.max": "1.0"}
    other = load(tiny.path, changes)
    assert changed_fields(one.steps, one.fit(other)) == [
        "pass_rate_filter.max 0.9 -> 1.0",
        "reward_sum_mapper.weights.accuracy 1.0 -> 0.1",
    ]
    found = compare(*whatif(one, other))
    assert {kind: found.counts[kind] for kind in KINDS} == {
        **dict.fromkeys(KINDS, 0), "gained": 4, "flipped": 2,
    }  # fmt: skip
    before, after = found.figures
    assert (found.kept_in_both, before.groups, after.groups, found.groups) == (8, 2, 3, (1, 0))
    assert found.reasons["gained"] == {"too_easy": 4}
    # A: 1, 0.9, 0.1, -0.1 become 0.2, 0, 0.1, -0.1; C: 1.1 and three of -0.1, 0.2 and the same.
    assert found.rank == pytest.approx((0.8 + 1) / 2)
    rewards = (0.35, (0.025 * 8 + 4 * 0.025) / 12)
    assert [side.reward for side in found.figures] == pytest.approx(rewards, abs=0.02)
    assert variance(found)["accuracy"] == pytest.approx((0.897, 0.178), abs=5e-4)
    assert variance(found)["format"] == pytest.approx((0.103, 0.822), abs=5e-4)


def variance(found):
    """By component, its share of the variance of advantages before and after."""
    shares = [side.shares for side in found.figures]
    names = dict.fromkeys([*shares[0], *shares[1]])
    return {
        name: tuple(each[name].variance if name in each else np.nan for each in shares)
        for name in names
    }


def test_the_same_recipe_changes_nothing(many):
    (one,) = open_stored(many.path).sets
    found = compare(*whatif(one, load(many.path)))
    assert not any(found.counts[kind] for kind in KINDS)
    assert found.groups == (0, 0)
    assert found.rank == pytest.approx(1)
    assert changed_fields(one.steps, one.fit(load(many.path))) == []


def part_of(one, at):
    return one._replace(parts=1, base=lambda _: one.base(at), results=lambda _: one.results(at))


def test_sets_are_compared_as_if_they_were_one(many):
    (one,) = open_stored(many.path).sets
    other = load(
        many.path, {"reward_sum_mapper.weights.format": "0.3", "pass_rate_filter.max": "1"}
    )
    expected = compare(*whatif(one, other))
    parts = [part_of(one, at) for at in range(one.parts)]
    found = compared([whatif(each, other) for each in parts])
    assert len(parts) > 5
    assert found.rows.to_pylist() == expected.rows.to_pylist()
    assert found[1:3] == expected[1:3]
    assert found.rank == pytest.approx(expected.rank)
    for one, other in zip(found.figures, expected.figures, strict=True):
        assert one.reward == pytest.approx(other.reward)
    assert variance(found).keys() == variance(expected).keys()
    for name, shares in variance(expected).items():
        assert variance(found)[name] == pytest.approx(shares)


CREDIT = {
    "maxrl": [{"grpo_advantage_mapper": {"normalise": "mean"}}],
    "batch_std": [{"grpo_advantage_mapper": {"normalise": "batch_std", "clip": 0.5}}],
    "gdpo": [{"gdpo_advantage_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}}],
    "pass_at_k": [{"pass_at_k_advantage_mapper": {"k": 2}}],
    "rank": [
        {"rank_reward_mapper": {"column": "reward_format"}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "rank": 1.0}}},
        {"grpo_advantage_mapper": None},
    ],
    "length": [
        {"length_reward_mapper": {"style": "shorter", "unit": "characters"}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "length": 0.5}}},
        {"grpo_advantage_mapper": None},
    ],
    "masked": [
        {"grpo_advantage_mapper": None},
        {"loss_weight_mapper": {"where": {"verdict": "wrong_answer"}}},
    ],
}
"""Steps in place of the last ones of `AFTER`, which write the reward and the advantage."""


@pytest.mark.parametrize("name", CREDIT)
def test_advantages_of_other_steps_are_those_of_a_fresh_run(tiny, tmp_path, name):
    own = CREDIT[name] if name in ("rank", "length") else [AFTER[-2], *CREDIT[name]]
    steps = [*SAMPLING, *AFTER[:-2], *own]
    if name == "maxrl":
        steps = [
            {"format_reward_mapper": {"style": "boxed", "wrong": 0}}
            if "format_reward_mapper" in s
            else s
            for s in steps
        ]
    fresh = run_tiny(tmp_path, steps)
    (one,) = open_stored(tiny.path).sets
    found = compare(*whatif(one, load(fresh.path)))
    kept = found.rows.filter(pc.is_null(found.rows["step_after"]))
    export = pq.read_table(tmp_path / "curated.parquet")
    assert kept["response_id"].equals(export["response_id"])
    assert kept["advantage_after"].equals(export["advantage"])
    before = pq.read_table(tiny.path.parent / "curated.parquet")
    assert (name == "masked") == kept["advantage_after"].equals(before["advantage"])
    wrong = pc.equal(export["verdict"], "wrong_answer").to_pylist()
    assert kept["masked_after"].to_pylist() == [float(w and name == "masked") for w in wrong]
    assert set(kept["masked_before"].to_pylist()) == {0.0}
    # Parts of advantages are known where these are in proportion to the rewards of their group.
    shares = [after for _, after in variance(found).values()]
    known = name not in ("batch_std", "gdpo", "pass_at_k")
    assert np.nansum(shares) == pytest.approx(float(known))
    assert np.isnan(shares).all() == (not known)


def test_masks_are_shown(tiny, tmp_path):
    fresh = write_tiny(tmp_path, [*SAMPLING, *AFTER[:-1], *CREDIT["masked"]])
    shown = CliRunner().invoke(
        app, ["whatif", str(fresh), "--run", str(tiny.path.parent / "curated.parquet")]
    )
    assert "masked       0.0% -> 62.5% of the tokens of a response, on average" in shown.output


def test_the_size_of_advantages_is_shown(tiny, tmp_path):
    # Distances from the mean are 0.6, 0.4, 0.4, 0.6 in A and 0.9, 0.3, 0.3, 0.3 in C, whose
    # deviations are 0.5888 and 0.6.
    none = {"grpo_advantage_mapper": {"normalise": "none"}}
    path = write_tiny(tmp_path, [*SAMPLING, *AFTER[:-1], none])
    export = str(tiny.path.parent / "curated.parquet")
    shown = CliRunner().invoke(app, ["whatif", str(path), "--run", export])
    assert "size         mean |advantage| 0.800 -> 0.475" in shown.output


def test_without_advantages_there_is_no_size(tiny, tmp_path):
    path = write_tiny(tmp_path, [*SAMPLING, *AFTER[:3]])
    run_tiny(tmp_path, [*SAMPLING, *AFTER[:3]])
    shown = CliRunner().invoke(app, ["whatif", str(path)])
    assert "variance     no advantages" in shown.output
    assert "size " not in shown.output


def test_other_samples_are_refused(tiny):
    (one,) = open_stored(tiny.path).sets
    with pytest.raises(DataError, match="other responses would be sampled; leave it as it was"):
        whatif(one, load(tiny.path, {"recorded_rollout_mapper.columns": "[responses, more]"}))


WEIGHTS = st.sampled_from([0.0, 0.3, 1.0, -0.5])
AFTERWARDS = st.fixed_dictionaries(
    {},
    optional={
        "accuracy": WEIGHTS,
        "format": WEIGHTS,
        "gates": st.sampled_from(
            [
                {"format": "only_correct"},
                {"format": "mixed_groups_only", "accuracy": "only_correct"},
            ]
        ),
        "on_missing": st.sampled_from(["drop_row", "drop_group", "group_mean"]),
        "std_floor": st.sampled_from([0.1, 1.0]),
        "worked_out": st.just(True),
        "max": st.sampled_from([0.5, 0.6, 1.0]),
        "min": st.sampled_from([0.1, 0.5]),
        "normalise": st.sampled_from(["std", "none", "leave_one_out"]),
        "right": st.just(2.0),
        "style": st.sampled_from(["boxed", "think_answer"]),
        "without": st.sampled_from(["pass_rate_filter"]),
        "added": st.sampled_from(
            [
                {"exact_deduplicator": {}},
                {"minhash_deduplicator": {"threshold": 0.5}},
                {"minhash_deduplicator": {"threshold": 0.9}},
                {"length_filter": {"max": 15}},
                {"diversity_reward_mapper": {}},
            ]
        ),
        "chunk_rows": st.sampled_from([1, 9]),
        "swapped": st.booleans(),
    },
)


def process_of(drawn):
    """The steps of TINY with what was drawn."""
    steps = {next(iter(each)): copy.deepcopy(next(iter(each.values()))) for each in AFTER}
    for name in ("accuracy", "format"):
        if name in drawn:
            steps["reward_sum_mapper"]["weights"][name] = drawn[name]
    if "gates" in drawn:
        steps["reward_sum_mapper"]["gates"] = drawn["gates"]
    for bound in ("max", "min"):
        if bound in drawn:
            steps["pass_rate_filter"][bound] = drawn[bound]
    advantage = steps["grpo_advantage_mapper"]
    advantage |= {"normalise": drawn["normalise"]} if "normalise" in drawn else {}
    if advantage.get("normalise", "std") == "std" and "std_floor" in drawn:
        advantage["std_floor"] = drawn["std_floor"]
    if "on_missing" in drawn:
        steps["reward_sum_mapper"]["on_missing"] = drawn["on_missing"]
    for field in ("right", "worked_out"):
        if field in drawn:
            steps["math_verify_mapper"][field] = drawn[field]
    if "style" in drawn:
        steps["format_reward_mapper"]["style"] = drawn["style"]
    steps.pop(drawn.get("without", ""), None)
    found = [{name: fields} for name, fields in steps.items()]
    if drawn.get("swapped"):
        found[0], found[1] = found[1], found[0]
    if "added" in drawn:
        found.insert(2, drawn["added"])
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(drawn=AFTERWARDS)
def test_it_is_what_a_fresh_run_makes(many, tmp_path_factory, drawn):
    """Rows, values, types and reasons of decisions."""
    folder = tmp_path_factory.mktemp("fresh")
    data = {"dataset_path": str(many.head.dataset_path)}
    chunks = {"chunk_rows": drawn.get("chunk_rows"), **data}
    other = run_tiny(folder, [*SAMPLING, *process_of(drawn)], **chunks)
    (one,) = open_stored(many.path).sets
    found = SetSamples.of(one).replay(one.fit(other))
    kept = found[-1].after.table()
    fresh = pq.read_table(folder / "curated.parquet")
    pq.write_table(kept.select(fresh.column_names), folder / "kept.parquet")
    assert written(pq.read_table(folder / "kept.parquet")) == written(fresh)
    stored = open_stored(folder / "curated.parquet")
    decisions = stored.sets[0].decisions()
    for applied, report in zip(found, stored.report.steps[len(SAMPLING) :], strict=True):
        reasons = applied.result.change.reasons
        dropped = Counter([] if reasons is None else reasons.drop_null().to_pylist())
        assert (applied.step.name, dropped) == (report.step, report.dropped)
        ids = applied.before.select(["response_id"])["response_id"]
        gone = [] if reasons is None else ids.filter(reasons.is_valid()).to_pylist()
        own = decisions.filter(pc.equal(decisions["step"], report.step))
        assert sorted(own["row_id"].to_pylist()) == sorted(gone)


# --------------------------------------------------------------------------- operators that ask


def judged(monkeypatch):
    """Make `format_reward_mapper` an operator that asks a server; a call of it fails the test."""
    from rejuice.pipelines.analysis import replay as module

    def run_step(step, frame, **more):
        assert step.name != "format_reward_mapper", "it asked again"
        return original(step, frame, **more)

    original = module.run_step
    monkeypatch.setattr(FormatRewardMapper, "asks_server", True)
    monkeypatch.setattr(module, "run_step", run_step)


def test_what_asks_a_server_is_not_asked_again(many, monkeypatch):
    """Behind another filter it gets fewer rows, whose values are on file."""
    judged(monkeypatch)
    fields = [{"math_verify_mapper": {}}, {"length_filter": {"max": 15}}, *AFTER[1:]]
    recipe = load(many.path)
    (one,) = open_stored(many.path).sets
    other = recipe_with(many, fields)
    found = compare(*whatif(one, other))
    assert found.counts["unknown"] == 0
    assert found.counts["lost"] > 10
    assert recipe.steps[:2] == other.steps[:2]


def test_what_was_never_asked_is_unknown_with_its_group(many, monkeypatch, tmp_path):
    judged(monkeypatch)
    fields = [AFTER[0], {"length_filter": {"max": 15}}, *AFTER[1:]]
    shorter = recipe_with(many, fields, tmp_path)
    engine.run(shorter, chunk_rows=7)
    (one,) = open_stored(shorter.head.export_path).sets
    found = compare(*whatif(one, recipe_with(many, AFTER, tmp_path)))
    rows = found.rows.to_pylist()
    of_group = {}
    for row in rows:
        of_group.setdefault(row["prompt_id"], set()).add(row["unknown"])
    assert {True} in of_group.values()
    assert {False} in of_group.values()
    assert {True, False} not in of_group.values()
    assert {row["reason_after"] for row in rows if row["unknown"]} == {UNKNOWN}


def test_a_filter_before_what_asks_is_not_worthless(many, monkeypatch, tmp_path):
    """Without it, rows are left that were never asked about: they are counted, as `whatif` does."""
    judged(monkeypatch)
    fields = [AFTER[0], {"length_filter": {"max": 15}}, *AFTER[1:]]
    shorter = recipe_with(many, fields, tmp_path)
    engine.run(shorter, chunk_rows=7)
    stored = open_stored(shorter.head.export_path)
    results = {each.name: found for each, found in whatif_each(stored, shorter)}
    other = recipe_with(many, AFTER, tmp_path)
    expected = compare(*whatif(stored.sets[0], other))
    assert results["length_filter"].counts["unknown"] == expected.counts["unknown"] > 0
    console = Console(file=StringIO(), width=200)
    show_each(whatif_each(stored, shorter), console)
    heading, *lines = console.file.getvalue().splitlines()
    assert "unknown" in heading.split()
    (line,) = [line.split() for line in lines if line.startswith("length_filter")]
    assert line[6] == f"{expected.counts['unknown']:,}"


@pytest.mark.slow
def test_a_step_of_data_juicer_reads_every_column(tmp_path):
    """Where it gets the same rows, its result is taken; where it gets others, it is computed."""
    length = {"text_length_filter": {"text_key": "response", "min_len": 1, "max_len": 8}}
    recipe = run_tiny(tmp_path, [*PROCESS, length])
    (one,) = open_stored(recipe.path).sets
    found = compare(*whatif(one, load(recipe.path)))
    assert (found.counts["gained"], found.counts["lost"]) == (0, 0)
    other = load(recipe.path, {"pass_rate_filter.max": "1.0"})
    found = compare(*whatif(one, other))
    assert found.reasons["gained"] == {"too_easy": 2}
    assert CliRunner().invoke(app, ["whatif", str(recipe.path), "--each"]).exit_code == 0


def test_a_step_whose_code_has_changed_since_is_computed_again(tiny, monkeypatch):
    (one,) = open_stored(tiny.path).sets
    assert one.stale == frozenset()
    code = plan.code_version
    monkeypatch.setattr(
        plan,
        "code_version",
        lambda kind: code(kind) + " edited" * (kind.name() == "format_reward_mapper"),
    )
    monkeypatch.setattr(FormatRewardMapper, "map", lambda self, table: {
        "reward_format": pa.array([0.5] * table.num_rows),
        "reward_format_missing": pa.nulls(table.num_rows, pa.string()),
    })  # fmt: skip
    (one,) = open_stored(tiny.path).sets
    assert "format_reward_mapper" in one.stale
    changes = changes_of(open_stored(tiny.path), load(tiny.path))
    assert changes == ["the code of format_reward_mapper"]
    before, after = whatif(one, load(tiny.path))
    assert set(after.table["reward_format"].to_pylist()) == {0.5}
    assert before.table["reward_format"].to_pylist()[:2] == [0.1, -0.1]


GDPO = [
    step
    for step in AFTER
    if step != "grpo_advantage_mapper" and "grpo_advantage_mapper" not in step
]


def test_a_weight_is_left_out_of_the_sum_and_of_gdpo(tiny):
    weights = {"accuracy": 1.0, "format": 1.0}
    gdpo = {"gdpo_advantage_mapper": {"weights": weights}}
    steps = recipe_with(tiny, [*GDPO, gdpo]).steps
    parts = {each.name: each.steps for each in left_out(steps)}
    changed = {
        step.name: step.operator.weights
        for step in parts["weight format"]
        if hasattr(step.operator, "weights")
    }
    assert changed == {
        "reward_sum_mapper": {"accuracy": 1.0, "format": 0.0},
        "gdpo_advantage_mapper": {"accuracy": 1.0, "format": 0.0},
    }
    assert list(parts)[-2:] == ["weight accuracy", "weight format"]


def test_weights_of_gdpo_are_left_out_where_no_sum_is_beside_it(tiny):
    gdpo = {"gdpo_advantage_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}}
    steps = [step for step in GDPO if "reward_sum_mapper" not in step]
    found = left_out(recipe_with(tiny, [*steps, gdpo]).steps)
    assert [each.name for each in found][-2:] == ["weight accuracy", "weight format"]
    assert found[-1].steps[-1].operator.weights == {"accuracy": 1.0, "format": 0.0}


def test_a_weight_of_several_sums_is_left_out_of_all_at_once(tiny):
    sums = [
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": w}, "where": {"task": task}}}
        for w, task in ((1.0, "a"), (2.0, "b"))
    ]
    steps = [step for step in GDPO if "reward_sum_mapper" not in step]
    found = {a.name: a.steps for a in left_out(recipe_with(tiny, [*steps, *sums]).steps)}
    assert [name for name in found if name.startswith("weight")] == [
        "weight accuracy", "weight format",
    ]  # fmt: skip
    weights = [getattr(step.operator, "weights", None) for step in found["weight format"]]
    assert [each for each in weights if each] == [{"accuracy": 1.0, "format": 0.0}] * 2


def recipe_with(recipe, steps, folder=None):
    """The recipe with other steps after sampling, in a folder of its own if one is given."""
    path = (folder or recipe.path.parent) / f"other{len(steps)}.yaml"
    document = yaml.safe_load(recipe.path.read_text())
    document["process"] = [*SAMPLING, *steps]
    document["export_path"] = str(path.with_suffix(".parquet"))
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load(path)


# --------------------------------------------------------------------------- the commands


@pytest.mark.slow
@pytest.mark.recommended("pipelines/cli/analysis.py", "--rows are of one comparison")
@pytest.mark.recommended("pipelines/cli/analysis.py", "leave --each out")
def test_commands(tiny):
    path = str(tiny.path)
    run = CliRunner().invoke(app, ["whatif", path, "--pass_rate_filter.max", "1.0"])
    assert run.exit_code == 0, run.output
    assert "4 gained (too_easy 4), 0 lost, 0 unknown" in run.output
    run = CliRunner().invoke(
        app, ["whatif", path, "--pass_rate_filter.max", "1", "--rows", "gained"]
    )
    rows = [json.loads(line) for line in run.output.splitlines()]
    assert [row["reason_before"] for row in rows] == ["too_easy"] * 4
    refused = CliRunner().invoke(app, ["whatif", path, "--each", "--rows", "gained"])
    assert str(refused.exception) == "--rows are of one comparison; leave --each out"
    run = CliRunner().invoke(app, ["whatif", path, "--each"])
    lines = {line[:22].strip(): line[22:].split() for line in run.output.splitlines()}
    arrow = "->"
    assert lines["nothing"][:9] == ["8", "2", *"0000", "0.350", arrow, "0.350"]
    assert lines["pass_rate_filter"][:9] == ["12", "3", "4", *"000", "0.350", arrow, "0.550"]
    weight = ["8", "2", "0", "0", "2", "0", "0.350", arrow, "-0.025", "0.724"]
    assert lines["weight accuracy"][:10] == weight
    assert lines["math_verify_mapper"][:3] == ["needed", "by", "group_stats_mapper,"]
