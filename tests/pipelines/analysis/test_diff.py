"""Two recipes in words, and two runs on data."""

import json
import shlex

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from command import runner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tiny_run import AFTER, PROCESS, run_tiny, write_tiny

from rejuice.pipelines.analysis.comparison import recipe_differences
from rejuice.pipelines.analysis.diff import by_chance, component_changes, new_responses, set_diff
from rejuice.pipelines.analysis.diff_words import show_set_diff
from rejuice.pipelines.analysis.figures import row_figures, set_figures
from rejuice.pipelines.analysis.replay import SetSamples
from rejuice.pipelines.analysis.rows import row_table, stored_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.recipe.recipe import load

EASY = [*PROCESS[:5], {"pass_rate_filter": {"max": 1.0}}, *PROCESS[6:]]
WEIGHED = [*PROCESS[:6], {"reward_sum_mapper": {"weights": {"accuracy": 0.5, "format": 2.0}}}, *PROCESS[7:]]  # fmt: skip


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """TINY, TINY that keeps easy prompts, and TINY with other weights."""
    processes = {"tiny": PROCESS, "easy": EASY, "weighed": WEIGHED}
    return {
        name: run_tiny(tmp_path_factory.mktemp(name), process).path
        for name, process in processes.items()
    }


def diffed(a, b):
    (one,), (two,) = open_stored(a).sets, open_stored(b).sets
    return set_diff(one, two, (a, b))


def lines_of(out):
    return [" ".join(line.split()) for line in out.splitlines()]


def test_recipes_in_words(runs):
    tiny, easy, weighed = (load(path) for path in runs.values())
    assert recipe_differences(tiny, easy)[1:] == ["pass_rate_filter.max 0.9 -> 1.0"]
    data, *rest = recipe_differences(tiny, weighed)
    assert data.startswith("dataset_path /")
    assert rest == [
        "reward_sum_mapper.weights.accuracy 1.0 -> 0.5",
        "reward_sum_mapper.weights.format 1.0 -> 2.0",
    ]
    assert recipe_differences(tiny, tiny) == []


def test_steps_and_training_in_words(tmp_path):
    train = {"steps": 3, "validation_path": "v.jsonl"}
    one = write_tiny(tmp_path, project_name="a", train=train)
    first = load(one)
    swapped = [*PROCESS[:2], AFTER[1], AFTER[0], *AFTER[2:5]]
    two = write_tiny(tmp_path, swapped, project_name="b", train={**train, "steps": 7})
    found = recipe_differences(first, load(two))
    assert found == ["train.steps 3 -> 7", "grpo_advantage_mapper left out", "the order of steps"]
    three = write_tiny(tmp_path)
    assert recipe_differences(first, load(three)) == ["train left out"]
    assert recipe_differences(load(three), first) == ["train added"]


def test_generated_datasets_in_words(tmp_path, monkeypatch):
    def recipe(name, **generated):
        (tmp_path / name).mkdir()
        path = tmp_path / "data.jsonl"
        return load(
            write_tiny(tmp_path / name, dataset_path=str(path), generated_datasets=generated)
        )

    def found(a, b):
        return recipe_differences(a, b)

    monkeypatch.chdir(tmp_path)
    none = recipe("none")
    one = recipe("one", **{"v.jsonl": {"type": "lookup", "prompts": 1280}})
    more = {"type": "lookup", "prompts": 1280, "seed": 4}
    two = recipe("two", **{str(tmp_path / "v.jsonl"): more, "w.jsonl": {"type": "code"}})
    assert found(none, one) == ["generated_datasets.v.jsonl added"]
    assert found(one, none) == ["generated_datasets.v.jsonl left out"]
    assert found(one, two) == [
        "generated_datasets.v.jsonl.seed 0 -> 4",
        "generated_datasets.w.jsonl added",
    ]


@pytest.mark.slow
def test_two_runs_on_data_by_hand(runs):
    """B, 4 rows of 1.1, -0.1, -0.1 and ... is kept only where easy prompts are."""
    each = diffed(runs["tiny"], runs["easy"])
    assert each.common.rows.num_rows == 12
    assert (each.common.kept_in_both, each.common.counts["gained"]) == (8, 4)
    assert [side.kept for side in each.figures] == [8, 12]
    assert each.prompts == (3, 3, 3)
    # Rewards of A: 1.1, 0.9, 0.1, -0.1; of C: 1.1 and three of -0.1; of B: 1.1 and three of 0.9.
    rewards = [side.reward for side in each.figures]
    assert rewards == pytest.approx((2.8 / 8, (2.8 + 3.8) / 12))
    accuracy, form = (each.components[name] for name in ("accuracy", "format"))
    assert accuracy.added == pytest.approx((3 / 8, 7 / 12))
    assert form.added == pytest.approx((-0.2 / 8, -0.4 / 12))
    assert (accuracy.by_weight, form.by_weight) == (0, 0)
    assert each.moved == []
    assert [side.pass_rate for side in each.figures] == pytest.approx((7 / 12, 7 / 12))
    assert each.new == {}


def test_a_changed_weight_is_no_changed_value(runs):
    each = diffed(runs["tiny"], runs["weighed"])
    accuracy, form = (each.components[name] for name in ("accuracy", "format"))
    assert (accuracy.by_values, accuracy.by_weight) == pytest.approx((0, -0.5 * 3 / 8))
    assert (form.by_values, form.by_weight) == pytest.approx((0, -0.2 / 8))
    # Of 8 rewards with a mean of 0.35, groups A and C are 0.6 above and below: an error of 0.106.
    error = np.sqrt(2 * 0.6**2) / 8
    groups = np.array([[0.7, 0.3, 0.2, -0.2], [0.7, -0.2, -0.2, -0.2]])  # With the other weights.
    other = np.sqrt(((groups.sum(1) - 4 * groups.mean()) ** 2).sum()) / 8
    half = 1.959964 * np.hypot(error, other)
    gap = groups.mean() - 0.35
    assert by_chance(each.figures) == pytest.approx((gap - half, gap + half))
    gaps = [abs(x.after - x.before) for x in each.moved]
    assert len(gaps) == 2
    assert gaps == sorted(gaps, reverse=True)


VERIFY = {"self_verification_mapper": {"mode": "answer", "candidates": "all", "template": "{question} {answer}?"}}  # fmt: skip


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """TINY with verification prompts: its export, as `dj-process` leaves it, and with a reward
    that no step has summed."""
    folder = tmp_path_factory.mktemp("exports")
    run_tiny(folder, [*PROCESS, VERIFY])
    table = pq.read_table(folder / "curated.parquet")
    report = json.loads((folder / "curated.run" / "report.json").read_text())
    other = pc.multiply(table["reward"], 2.0)
    rewarded = table.set_column(table.column_names.index("reward"), "reward", other)
    for name, rows in {"dj": table, "rewarded": rewarded}.items():
        pq.write_table(rows, folder / f"{name}.parquet")
        (folder / f"{name}.run").mkdir()
        of_dj = {**report, "cache": "", "recipe": str(folder / "tiny.yaml"), "export_path": str(folder / f"{name}.parquet")}  # fmt: skip
        (folder / f"{name}.run" / "report.json").write_text(json.dumps(of_dj))
    return folder


def test_figures_of_a_diff_are_those_of_the_page(exports):
    """Verification prompts are no groups without signal: they have no responses."""
    (one,) = open_stored(exports / "curated.parquet").sets
    rows = stored_rows(one)
    groups = set_figures(rows, ()).groups
    assert (groups.groups, groups.without_signal) == (3, 1)
    assert row_figures(rows).silent == 1 / 3
    assert set_diff(one, one, (exports, exports)).prompts == (3, 3, 3)
    assert rows.table.num_rows > 12


def test_an_export_of_dj_process(rejuice, exports):
    """What needs dropped rows is not known; components are, from the rows that are left."""
    code, out, err = rejuice("diff", exports / "curated.parquet", exports / "dj.parquet")
    assert (code, err) == (0, "")
    lines = lines_of(out)
    assert "of B only those that are left: dj-process saves no commits; what needs the others is -" in lines  # fmt: skip
    assert "sampled 8 rows in both, all with the same fate, reward and advantage" in lines
    for line in (
        "pass rate 0.583 -",
        "groups without signal 0.333 -",
        "accuracy 0.375 0.375 +0.000 +0.000 +0.000 0.0% -> -",
        "mean reward 0.350 0.350 +0.000",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith(("of no component", "components"))]


def test_parts_that_are_not_known_are_not_0(rejuice, exports):
    _, out, _ = rejuice("diff", exports / "curated.parquet", exports / "rewarded.parquet")
    lines = lines_of(out)
    assert "accuracy 0.375 - - - - 0.0% -> -" in lines
    assert "of no component 0.000 0.700 +0.700" in lines
    assert (
        "components of B not known: no step with values that are on file sums its reward" in lines
    )


def test_the_command(rejuice, runs):
    code, out, err = rejuice("diff", runs["tiny"], runs["easy"])
    assert (code, err) == (0, "")
    lines = lines_of(out)
    assert "sampled 12 rows in both: 8 kept in both, 4 only in B (too_easy 4), 0 only in A" in lines
    assert "rows kept 8 12" in lines
    assert "mean reward 0.350 0.550 +0.200" in lines
    assert lines[-1].endswith("--rows gained")


def test_prompts_that_moved_are_named_as_explain_takes_them(rejuice, runs):
    moved = diffed(runs["tiny"], runs["weighed"]).moved[0].prompt_id
    lines = lines_of(rejuice("diff", runs["tiny"], runs["weighed"])[1])
    assert [line for line in lines if line.startswith(f"moved prompt {moved}: ")]
    assert rejuice("explain", runs["tiny"], moved)[0] == 0


def test_lengths_in_two_units_are_labelled(capsys, runs):
    """One policy gave token ids, and the other is behind a chat server."""
    each = diffed(runs["tiny"], runs["easy"])
    one, two = each.figures
    assert (one.unit, two.unit) == ("characters", "characters")
    each = each._replace(figures=(one._replace(unit="tokens"), two))
    show_set_diff(each, "rejuice diff a b", Console())
    lines = lines_of(capsys.readouterr().out)
    assert [line for line in lines if line.startswith("mean length, tokens and characters ")]


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/comparison.py", "{…} --rows {…}")
def test_rows_of_a_figure(rejuice, runs):
    _, out, _ = rejuice("diff", runs["easy"], runs["weighed"])
    shown = out[out.index("\ndetails ") :].replace("\ndetails", "").strip().splitlines()
    printed = [shlex.split(line) for line in shown]
    assert [words[-1] for words in printed] == ["lost", "prompts"]
    for name, *words in printed:  # Each line can be copied.
        code, out, err = rejuice(*words)
        assert name == "rejuice"
        assert (code, err) == (0, "")
        assert all(json.loads(line) for line in out.splitlines())
        assert out
    rows = [json.loads(x) for x in rejuice("diff", runs["tiny"], runs["easy"], "--rows", "gained")[1].splitlines()]  # fmt: skip
    assert [row["reason_before"] for row in rows] == ["too_easy"] * 4


@pytest.mark.slow
def test_a_run_and_itself(rejuice, runs):
    code, out, err = rejuice("diff", runs["tiny"], runs["tiny"])
    assert (code, err) == (0, "")
    lines = lines_of(out)
    assert "recipe the same: no field differs" in lines
    assert "sampled 12 rows in both, all with the same fate, reward and advantage" in lines
    assert "details" not in out


def test_recipes_that_were_not_run(rejuice, tmp_path, runs):
    path = write_tiny(tmp_path, EASY)
    code, out, err = rejuice("diff", path, runs["tiny"])
    assert (code, err) == (0, "")
    assert "pass_rate_filter.max 1.0 -> 0.9" in out
    assert "tiny.yaml has not been run: there are no rows to compare" in out


def test_what_is_no_run(rejuice, tmp_path):
    code, _, err = rejuice("diff", "a.parquet", "b.parquet")
    assert code == 2
    assert err.startswith("rejuice: a.parquet does not exist; ")


def test_new_responses_are_frequent_and_absent_before():
    before, after = ["a  b", None], ["a b"] * 4 + ["c\nd", "c d", " c d"] + ["e"] * 2 + [None] * 5
    assert new_responses(before, after) == {"c d": 3}


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([0.0, 0.3, 1.0, -0.5, 2.0]), min_size=4, max_size=4),
    st.sampled_from([0.5, 0.6, 0.9, 1.0]),
)
def test_the_split_is_exact(runs, weights, most):
    """What components add differs by as much as the mean reward does."""
    (one,) = open_stored(runs["tiny"]).sets
    tables, used = [], []
    for at in (0, 2):
        named = dict(zip(("accuracy", "format"), weights[at : at + 2], strict=True))
        fields = {f"reward_sum_mapper.weights.{k}": str(v) for k, v in named.items()}
        if at:
            fields["pass_rate_filter.max"] = str(most)
        samples = SetSamples.of(one)
        applied = samples.replay(one.fit(load(runs["tiny"], fields)))
        tables.append(row_table(samples.base, applied))
        used.append(named)
    found = component_changes(*tables, used)
    before, after = (row_figures(table).reward for table in tables)
    if not (np.isfinite(before) and np.isfinite(after)):
        return
    parts = [each.added[1] - each.added[0] for each in found.values()]
    assert sum(parts) == pytest.approx(after - before, abs=1e-12)
    for each in found.values():
        gap = each.added[1] - each.added[0]
        assert each.by_values + each.by_weight == pytest.approx(gap, abs=1e-12)


def test_figures_are_those_of_the_files(runs):
    (one,) = open_stored(runs["tiny"]).sets
    rows = stored_rows(one)
    kept = pq.read_table(runs["tiny"].parent / "curated.parquet")
    found = row_figures(rows)
    assert found.reward == pytest.approx(np.mean(kept["reward"].to_numpy()))
    assert found.kept == kept.num_rows
