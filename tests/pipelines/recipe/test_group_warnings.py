"""Which steps change the group that later steps compute from: a line for each, and for no other."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import runner
from each import check_each

from rejuice.operators import RecipeError
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe.columns import checked_schema, group_warnings
from rejuice.pipelines.recipe.recipe import load

RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))
SAMPLED = [
    {"prompt_template_mapper": {"reference": "solution"}},
    {"recorded_rollout_mapper": {"columns": ["samples"]}},
    "math_verify_mapper",
]
PROMPTS = [{"question": "1 + 1?", "solution": "2", "samples": ["2", "2", "3"], "hard": 1}]
EXACT, STATS, RATE = "exact_deduplicator", "group_stats_mapper", "pass_rate_filter"
SUM, ADVANTAGE = {"reward_sum_mapper": {"weights": {"accuracy": 1}}}, "grpo_advantage_mapper"
LONG = {"length_filter": {"max": 9}}
CUSTOM = """
from rejuice.operators import Filter, drop
import pyarrow.compute as pc
class QuestionMarkFilter(Filter):
    reasons = {"asks": "it asks"}
    def reads(self): return ("response",)
    def decide(self, table): return drop({"asks": pc.match_substring(table["response"], "?")})
class HardFilter(QuestionMarkFilter):
    def drops_within_groups(self): return False
"""


@pytest.fixture
def warned(recipe_file, tmp_path):
    """The names of the steps of which a recipe is warned, after the steps that verify."""
    (tmp_path / "mine.py").write_text(CUSTOM)

    def of(process, *, first=SAMPLED, columns=(), **head):
        mine = [str(tmp_path / "mine.py")]
        path = recipe_file([*first, *process], PROMPTS, custom_operator_paths=mine, **head)
        lines = group_warnings(load(path), columns)
        return [line.split(": ")[0].split()[-1] for line in lines]

    return of


def test_steps_that_drop_single_responses_before_a_group_is_summarised(warned):
    cases = [
        ([STATS, RATE, SUM, ADVANTAGE, EXACT, LONG], []),
        ([EXACT, RATE], [EXACT]),
        ([EXACT, LONG, SUM, ADVANTAGE], [EXACT, "length_filter"]),
        # The pass rate is that of the sample, and nothing else is computed of the group.
        ([STATS, EXACT, RATE], []),
        # The statistics themselves come too late.
        ([EXACT, STATS, RATE], [EXACT]),
        ([STATS, EXACT, RATE, SUM, ADVANTAGE], [EXACT]),
        ([EXACT, "minhash_deduplicator", SUM, "reward_std_filter"], [EXACT, "minhash_deduplicator"]),
        ([{"diverse_response_selector": {"k": 2}}, SUM, ADVANTAGE], ["diverse_response_selector"]),
        # Nothing is computed of the group: there is nothing to be off.
        ([EXACT, LONG, SUM], []),
        # Whole groups leave the others as they were sampled.
        ([{EXACT: {"unit": "prompt"}}, RATE, "group_size_filter", SUM, ADVANTAGE], []),
        ([STATS, {"column_range_filter": {"column": "pass_rate", "max": 0.8}}, SUM, ADVANTAGE], []),
        ([{"column_range_filter": {"column": "hard", "max": 1}}, SUM, ADVANTAGE], []),
        ([{"length_filter": {"column": "prompt", "max": 99}}, SUM, ADVANTAGE], []),
        # A row without a reward is not compared with the others in any case.
        ([{"reward_sum_mapper": {"weights": {"accuracy": 1}, "on_missing": "drop_row"}}, ADVANTAGE], []),
        # Your own, unless it says that it drops whole groups.
        (["question_mark_filter", SUM, ADVANTAGE], ["question_mark_filter"]),
        (["hard_filter", SUM, ADVANTAGE], []),
        # Data-Juicer's, too.
        ([{"text_length_filter": {"text_key": "response"}}, SUM, ADVANTAGE], ["text_length_filter"]),
        ([{"text_length_filter": {"text_key": "question"}}, SUM, ADVANTAGE], []),
    ]  # fmt: skip

    def check(process, found):
        assert warned(process) == found

    check_each(cases, check)


def test_prompts_may_be_chosen_by_their_content_before_sampling(warned):
    once, short = {EXACT: {"column": "question", "within": "all"}}, {"length_filter": {"column": "question", "max": 99}}  # fmt: skip
    assert warned([SUM, ADVANTAGE], first=[once, short, *SAMPLED]) == []


def test_recorded_responses_are_sampled_before_they_are_read(warned):
    by_text = [{EXACT: {"column": "samples", "within": "all"}}, *SAMPLED]
    assert warned([SUM, ADVANTAGE], first=by_text) == [EXACT]


@pytest.mark.slow
def test_no_recipe_that_is_shipped_is_warned_of():
    def check(path):
        assert group_warnings(load(path)) == []

    check_each(RECIPES, check)


def test_responses_of_the_dataset_are_sampled_before_the_first_step(warned):
    assert warned([EXACT, RATE], first=[]) == [EXACT]
    # Unless the dataset has the pass rate of the sample.
    assert warned([EXACT, RATE], first=[], columns=["pass_rate", "verdict"]) == []


def test_verification_prompts_may_be_balanced_before_they_are_judged(warned):
    ask = ["self_verification_mapper", {"label_balance_selector": {"column": "label"}}]
    judged = [{"policy_rollout_mapper": {"task": "verify"}}, SUM, ADVANTAGE]
    assert warned([*ask, *judged]) == []
    assert warned([EXACT, *ask, *judged]) == [EXACT]


def test_a_recipe_for_training_has_an_advantage_even_if_it_does_not_say_so(warned):
    assert warned([EXACT, SUM], train={"steps": 1}) == [EXACT]


@pytest.mark.parametrize(
    ("process", "head", "line"),
    [
        (
            [EXACT, RATE, SUM, ADVANTAGE],
            {},
            "line 10, step 4 exact_deduplicator: drops repeated responses, the policy's likeliest, "
            "before pass_rate_filter and grpo_advantage_mapper: the pass rate, the mean and "
            "deviation of the rewards are then those of the rest, not of the group that was "
            "sampled; put it after grpo_advantage_mapper, or group_stats_mapper before it for the "
            "pass rate",
        ),
        (
            [EXACT, STATS, RATE],
            {},
            "line 10, step 4 exact_deduplicator: drops repeated responses, the policy's likeliest, "
            "before group_stats_mapper: the pass rate and size of the group are then those of the "
            "rest, not of the group that was sampled; put it after group_stats_mapper",
        ),
        (
            [STATS, LONG, RATE, SUM, ADVANTAGE],
            {"train": {"steps": 1}},
            "line 11, step 5 length_filter: drops single responses by their content before "
            "grpo_advantage_mapper: the mean and deviation of the rewards are then those of the "
            "rest, not of the group that was sampled, and what it drops has no gradient; leave it "
            "out of training",
        ),
    ],
)
def test_the_line_says_what_it_does_and_what_would_be_right(recipe_file, process, head, line):
    path = recipe_file([*SAMPLED, *process], PROMPTS, **head)
    assert group_warnings(load(path)) == [f"{path}, {line}"]


def test_check_and_run_print_it_once(recipe_file, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    path = recipe_file([*SAMPLED, EXACT, RATE], PROMPTS)
    (line,) = group_warnings(load(path))
    expected = f"rejuice: warning: {line}\n".replace(f"{tmp_path}/", "")
    code, out, err = rejuice("check", path)
    assert (code, err) == (0, expected)
    assert out == "recipe.yaml: 5 steps, all fields and columns are right.\n"
    code, _, err = rejuice("run", path)
    assert (code, err.count(expected)) == (0, 1)
    assert rejuice("run", path, "-q")[2] == ""
    (tmp_path / "data.jsonl").unlink()
    assert rejuice("check", path)[2] == expected


def test_what_stands_in_the_dataset_must_not_be_of_other_verdicts(recipe_file, tmp_path):
    stored = [{**PROMPTS[0], "pass_rate": 0.5}]
    path = recipe_file([*SAMPLED, RATE], stored)
    with pytest.raises(RecipeError) as caught:
        checked_schema(load(path))
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "recipe.yaml, line 10, step 4 pass_rate_filter: column 'pass_rate' is the dataset's, and "
        "'verdict' was written since; group_stats_mapper writes it: put that step before this one, "
        "or rename it in the dataset"
    )


def test_a_pass_rate_of_yours_is_not_replaced(recipe_file, tmp_path):
    path = recipe_file([*SAMPLED, STATS, RATE], [{**PROMPTS[0], "pass_rate": 0.5}])
    with pytest.raises(RecipeError) as caught:
        checked_schema(load(path))
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "recipe.yaml, line 10, step 4 group_stats_mapper: would replace column 'pass_rate' of the "
        "dataset; rename it there, or drop it there to have it computed again"
    )


def test_what_a_run_wrote_is_computed_again(recipe_file, tmp_path):
    run(load(recipe_file([*SAMPLED, STATS], PROMPTS)))
    export = tmp_path / "out" / "curated.parquet"
    again = recipe_file(
        ["math_verify_mapper", STATS, RATE], name="again.yaml", dataset_path=str(export),
        export_path=str(tmp_path / "again" / "curated.parquet"),
    )  # fmt: skip
    run(load(again))
    table = pq.read_table(tmp_path / "again" / "curated.parquet")
    assert table["pass_rate"].to_pylist() == [2 / 3] * 3


def test_statistics_of_what_an_earlier_run_left_are_warned_of(recipe_file, tmp_path):
    run(load(recipe_file([*SAMPLED, STATS, EXACT], PROMPTS)))
    export = tmp_path / "out" / "curated.parquet"
    lines = list[str]()
    for process in (["math_verify_mapper", STATS], [RATE], [{"length_filter": {"max": 9}}, STATS]):
        out = str(tmp_path / "again.parquet")
        again = recipe_file(process, name="again.yaml", dataset_path=str(export), export_path=out)
        run(load(again), warn=lambda line: lines.append(line.replace(f"{tmp_path}/", "")))
    assert [line.partition(": ")[0] for line in lines if "replaces" in line] == [
        "again.yaml, line 5, step 2 group_stats_mapper",
        "again.yaml, line 6, step 2 group_stats_mapper",
    ]
    assert group_warnings(load(recipe_file([*SAMPLED, STATS], PROMPTS)), ["pass_rate"]) == []


def test_a_stored_pass_rate_goes_with_stored_verdicts(recipe_file, tmp_path):
    rows = [
        {"prompt_id": "a", "verdict": "correct", "pass_rate": 0.9},
        {"prompt_id": "b", "verdict": "correct", "pass_rate": 0.5},
    ]
    path = recipe_file([{RATE: {"max": 0.8}}], rows)
    run(load(path))
    assert pq.read_table(tmp_path / "out" / "curated.parquet")["prompt_id"].to_pylist() == ["b"]
    report = json.loads((tmp_path / "out" / "curated.run" / "report.json").read_text())
    assert report["steps"][0]["dropped"] == {"too_easy": 1}
