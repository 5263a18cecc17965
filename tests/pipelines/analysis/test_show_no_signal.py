"""One line at the end of a run of which no group has a signal, the same however it was run."""

import shutil

import pytest
from command import runner

from rejuice.pipelines.analysis.funnel import NoSignal, WrongExample, no_signal_line

PROCESS = [
    {"prompt_template_mapper": None},
    {"recorded_rollout_mapper": {"columns": ["out"]}},
    {"math_verify_mapper": None},
    {"format_reward_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    {"grpo_advantage_mapper": None},
]
FORGOTTEN = (
    "No group has a signal: no response is correct (wrong_answer 8): for example, reference "
    "'worked solution, so it is 1' against extracted answer '1'. That reference seems to hold more "
    "than an answer: reference_pattern or reference_form may be missing in prompt_template_mapper."
)


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def solutions(prefix="worked solution, so it is "):
    """Four prompts of two responses, of which the first is right."""
    return [
        {"question": f"{n} + 1?", "answer": f"{prefix}{n + 1}", "out": [rf"\boxed{{{n + k}}}" for k in (1, 2)]}
        for n in range(4)
    ]  # fmt: skip


def last_line(out):
    return out.splitlines()[-1]


def test_a_reference_pattern_that_was_forgotten(rejuice, recipe_file):
    path = recipe_file(PROCESS, solutions())
    code, out, _ = rejuice("run", path)
    assert (code, last_line(out)) == (0, FORGOTTEN)
    assert [line.split("   ")[-1].strip() for line in map(str.rstrip, out.splitlines()[4:8])] == [
        "verdict: wrong_answer 8; reward_accuracy: 0.000",
        "reward_format: -0.100", "reward: -0.100", "advantage: 0.000",
    ]  # fmt: skip


def test_the_line_is_the_same_from_the_cache_and_without_it(rejuice, recipe_file, tmp_path):
    path = recipe_file(PROCESS, solutions())
    assert last_line(rejuice("run", path)[1]) == FORGOTTEN
    again, err = rejuice("run", path)[1:]
    assert (last_line(again), "nothing to do" in err) == (FORGOTTEN, True)
    report = rejuice("report", "out/curated.parquet")[1]
    assert last_line(report) == FORGOTTEN
    assert last_line(rejuice("report", path)[1]) == FORGOTTEN
    shutil.rmtree(tmp_path / "out" / ".rejuice")
    assert rejuice("report", "out/curated.parquet")[1] == report
    (tmp_path / "out" / "curated.parquet").unlink()
    found = last_line(rejuice("report", "out/curated.parquet")[1])
    assert found == "No group has a signal: no response is correct (wrong_answer 8)."


@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_the_line_does_not_depend_on_chunks(rejuice, recipe_file, chunk_rows):
    path = recipe_file(PROCESS, solutions())
    assert last_line(rejuice("run", path, "--chunk_rows", chunk_rows)[1]) == FORGOTTEN


def test_rows_that_a_filter_drops_have_no_signal_either(rejuice, recipe_file, tmp_path):
    rated = [*PROCESS[:3], {"group_stats_mapper": None}, {"pass_rate_filter": {"min": 0.1}}]
    path = recipe_file([*rated, *PROCESS[3:]], solutions())
    code, out, _ = rejuice("run", path, "--allow_empty")
    assert (code, last_line(out)) == (0, FORGOTTEN)


@pytest.mark.parametrize("steps", [PROCESS, PROCESS[:5], PROCESS[:3]])
def test_a_run_with_a_signal_has_no_such_line(rejuice, recipe_file, steps):
    path = recipe_file(steps, solutions(prefix=""))
    code, out, _ = rejuice("run", path)
    assert (code, "signal" in out) == (0, False)


def test_without_a_step_for_advantages_rewards_decide(rejuice, recipe_file):
    path = recipe_file(PROCESS[:5], solutions())
    assert last_line(rejuice("run", path)[1]) == FORGOTTEN


def test_a_response_that_steers_the_terminal_is_shown_as_text(rejuice, recipe_file):
    rows = [{"question": "?", "answer": "1", "out": ["Well,\n\x1b[31m I do not know"] * 2}]
    out = rejuice("run", recipe_file(PROCESS, rows))[1]
    assert last_line(out) == (
        "No group has a signal: no response is correct (no_answer 2): for example, no answer was "
        r"found in one that begins 'Well, \u001b[31m I do not know'. The prompt may not ask for "
        "the form of answers that math_verify_mapper reads."
    )


STEPS = {
    "advantage": "grpo_advantage_mapper",
    "reward": "reward_sum_mapper",
    "verdict": "math_verify_mapper",
}


def finding(cause, **fields):
    given = {
        "verdicts": {"wrong_answer": 1200, "correct": 3}, "missing": None, "all_right": 0,
        "all_wrong": 0, "reward": None, "example": None, "response": None, "cut_off": 0,
    }  # fmt: skip
    return NoSignal(cause, STEPS, **{**given, **fields})


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (finding("missing"), "no group has two rewards."),
        (
            finding("missing", missing=("accuracy", "timeout", 1200)),
            "no group has two rewards: most often accuracy is missing (timeout 1,200).",
        ),
        (
            finding("group_of_one"),
            "each group has one response, which is compared with nothing: sample n: 2 or more, or "
            "sort recorded rows by prompt.",
        ),
        (
            finding("advantage"),
            "rewards differ within groups, but grpo_advantage_mapper gives each row 0 or nothing.",
        ),
        (
            finding("weights"),
            "right and wrong responses to a prompt have the same reward: see the weights of "
            "reward_sum_mapper.",
        ),
        (
            finding("correct", verdicts={"correct": 8, "timeout": 1}),
            "every graded response is correct (correct 8, timeout 1): the prompts are too easy.",
        ),
        (
            finding("dropped"),
            "groups whose responses differ were dropped before grpo_advantage_mapper.",
        ),
        (
            finding("same_verdict", all_right=1, all_wrong=2000),
            "all responses to a prompt have the same verdict (of the groups, 1 all right, 2,000 all "
            "wrong): more responses to each, or a higher temperature, may differ.",
        ),
        (
            finding("same_reward", reward=-0.1),
            "all responses to a prompt have the same reward (-0.100 in all rows).",
        ),
        (finding("same_reward"), "all responses to a prompt have the same reward."),
        (
            finding("wrong_answer", example=WrongExample("8", "apples " * 20)),
            "no response is correct (wrong_answer 1,200, correct 3): for example, reference '8' "
            f"against extracted answer '{('apples ' * 20)[:57]}...'.",
        ),
        (
            finding("wrong_answer", example=WrongExample(f"{'so ' * 30}#### 8", "9")),
            "no response is correct (wrong_answer 1,200, correct 3): for example, reference "
            f"'...{('so ' * 30 + '#### 8')[-57:]}' against extracted answer '9'. That reference seems "
            "to hold more than an answer: reference_pattern or reference_form may be missing in "
            "prompt_template_mapper.",
        ),
        (
            finding("no_answer", verdicts={"no_answer": 4}, response=" ", cut_off=1),
            "no response is correct (no_answer 4): for example, no answer was found in one that is "
            "empty. The prompt may not ask for the form of answers that math_verify_mapper reads.",
        ),
        (
            finding("no_answer", verdicts={"no_answer": 4}, response="First, I", cut_off=2),
            "no response is correct (no_answer 4): for example, no answer was found in one that "
            "begins 'First, I'. Of them, 2 ended at max_tokens, which may be too few.",
        ),
    ],
)  # fmt: skip
def test_each_cause_is_one_sentence_and_what_may_help(found, line):
    assert no_signal_line(found) == f"No group has a signal: {line}"
