"""Why no group of a run has a signal: one line, however the run was made."""

import re
import shutil
from typing import NamedTuple

import pyarrow as pa
import pytest
from command import runner

from rejuice.operators import ColumnRangeFilter, GroupStatsMapper, Mapper, PassRateFilter
from rejuice.operators.columns import component
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.reward_function_mapper import RewardFunctionMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.analysis.no_signal import no_signal_of_sets
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import iterate_steps, run_step
from rejuice.pipelines.recipe.steps import number_steps

NAMES = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout"}


class LetterMapper(Mapper):
    """The verdict that the first letter of a response stands for; accuracy is missing for t."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("verdict", "extracted_answer", "reward_accuracy", "reward_accuracy_missing")

    def map(self, table):
        texts = table["response"].to_pylist()
        slugs = [NAMES[text[0]] for text in texts]
        values = pa.array([float(slug == "correct") for slug in slugs]).to_numpy()
        why = pa.array([slug if slug == "timeout" else None for slug in slugs], pa.string())
        answers = pa.array([text[1:].strip() or None for text in texts], pa.string())
        found = component("accuracy", values, why)
        return {"verdict": pa.array(slugs, pa.string()), "extracted_answer": answers, **found}


class ZeroMapper(Mapper):
    """An advantage of 0."""

    def writes(self):
        return ("advantage",)

    def map(self, table):
        return {"advantage": pa.array([0.0] * table.num_rows)}


SUM = RewardSumMapper(weights={"accuracy": 1.0}, on_missing="drop_row")
IGNORING = RewardSumMapper(weights={"accuracy": 0.0}, on_missing="drop_row")
STEPS = (LetterMapper(), SUM, GrpoAdvantageMapper())
RATED = (LetterMapper(), GroupStatsMapper())


class Rows(NamedTuple):
    """A set of rows, in parts."""

    steps: tuple
    tables: list

    incomplete = ""

    @property
    def parts(self):
        return len(self.tables)

    def base(self, part):
        return Frame.of(self.tables[part])

    def applied(self, part):
        return iterate_steps(self.steps, self.base(part), run_step)


def line(groups, steps=STEPS, references=("7",), ends=("stop",), in_parts=False):
    """The line about groups, whose letters or words are the responses."""
    words = [text.split("|") if "|" in text else list(text) for text in groups]
    tables, reference, end = [], "", ""
    references, ends = iter(references), iter(ends)
    for at, each in enumerate(words):
        columns = {
            "prompt_id": [],
            "response_id": [],
            "response": [],
            "reference": [],
            "finish_reason": [],
        }
        for k, word in enumerate(each):
            reference, end = next(references, reference), next(ends, end)
            for name, value in zip(
                columns, (f"p{at}", f"p{at}-{k}", word, reference, end), strict=True
            ):
                columns[name].append(value)
        tables.append(pa.table(columns))
    tables = tables if in_parts or not tables else [pa.concat_tables(tables)]
    found = list(no_signal_of_sets([Rows(number_steps(list(steps)), tables)]))
    assert len(found) <= 1
    return "".join(found).removeprefix("No group has a signal: ")


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("groups", "steps", "facts"),
    [
        (["ww", "ww"], STEPS, r"no response is correct \(wrong_answer 4\)"),
        (["nw", "nn"], STEPS, r"no response is correct \(no_answer 3, wrong_answer 1\).*letter_mapper"),
        (["cc", "cct"], STEPS, r"every graded response is correct \(correct 4, timeout 1\)"),
        (["cc", "ww", "cc"], STEPS, "in 2 of 3 groups every graded response is correct"),
        (["c", "w"], STEPS, "one response, which is compared with nothing: sample n: 2"),
        (["tt", "tt"], STEPS, r"accuracy is missing \(timeout 4\)"),
        (["ct", "wt"], STEPS, r"accuracy is missing \(timeout 2\)"),
        (["cw", "cw"], (LetterMapper(), IGNORING, GrpoAdvantageMapper()), "differ.* weights.* grpo_advantage_mapper"),
        (["cw"], (*STEPS[:2], ZeroMapper()), "differ, but zero_mapper"),
        # Without an advantage, rewards decide; without rewards, verdicts.
        (["ww", "w"], STEPS[:2], "no response is correct"),
        (["ww", "ww"], STEPS[:1], "no response is correct"),
        # What a filter drops later was graded all the same.
        (["ww"], (*RATED, PassRateFilter(min=0.1), *STEPS[1:]), "no response is correct"),
        (["wc", "ww", "cc"], (*RATED, PassRateFilter(max=0.1), *STEPS[1:]), "dropped before grpo_advantage_mapper"),
        (["cw", "ccw"], (*STEPS[:2], ColumnRangeFilter(column="reward", min=0.5), *STEPS[2:]), "dropped before grpo"),
    ],
)  # fmt: skip
def test_what_most_groups_lack(groups, steps, facts, in_parts):
    assert re.search(facts, line(groups, steps, in_parts=in_parts))


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("groups", "steps"),
    [
        (["cw", "ww"], STEPS),
        (["ww", "cw"], STEPS[:2]),
        (["ww", "cw"], STEPS[:1]),
        (["c", "w"], STEPS[:2]),  # Nothing is compared.
        (["c", "w"], STEPS[:1]),
        (["ww"], ()),
        ([], STEPS),
    ],
)
def test_a_signal_or_nothing_that_decides_is_no_finding(groups, steps, in_parts):
    assert line(groups, steps, in_parts=in_parts) == ""


EQUAL = r"equal, to the byte.*greedy.*seed.*cache"


def test_responses_that_are_all_equal():
    assert re.search(EQUAL, line(["ww", "cc"]))
    assert not re.search(EQUAL, line(["ww", "w|w "]))
    assert not re.search(EQUAL, line(["tt", "tt"]))


BY_TURNS = """
def f(completions, **_):
    return [float(sum(map(len, completions)) < len(each)) for each in completions]
"""


@pytest.mark.slow
def test_a_function_that_compares_completions_is_given_one(tmp_path):
    (tmp_path / "f.py").write_text(BY_TURNS)
    function = RewardFunctionMapper(function=f"{tmp_path / 'f.py'}:f")
    total = RewardSumMapper(weights={"function": 1.0}, on_missing="drop_row")
    found = line(["wc", "cw"], (function, total, GrpoAdvantageMapper()))
    assert "one response a call" in found
    found = line(["wc", "cw"], (function, LetterMapper(), IGNORING, GrpoAdvantageMapper()))
    assert "a call" not in found


@pytest.mark.parametrize(
    ("reference", "answer", "holds_more"),
    [
        ("sum #### 8", "9", True),
        (r"so \boxed{8}", "9", True),
        ("worked solution, so it is 1", "1", True),
        ("first he sells half of them and then the rest", "1", True),
        ("8 apples", "8", False),
        ("1/2", "1", False),
        (r"\frac{1}{2} \text{ or } 3", "3", False),
        ("The Battle of Hastings", "1066", False),
    ],
)
def test_a_reference_that_holds_more_than_an_answer(reference, answer, holds_more):
    found = line([f"w{answer}|w{answer}"], references=[reference])
    assert f"reference '{reference}' against extracted answer '{answer}'" in found
    assert ("reference_pattern" in found) is holds_more


def test_a_long_example_is_cut():
    found = line([f"w{'apples ' * 20}|w"], references=[f"{'so ' * 30}#### 8"])
    assert f"'...{('so ' * 30 + '#### 8')[-57:]}'" in found
    assert f"'{('apples ' * 20)[:57]}...'" in found


def test_responses_that_were_cut_off_have_no_answer():
    assert "2 of 2 responses ended at max_tokens" in line(["n one|n two"], ends=["length"])
    assert "2 of 3 responses ended as context_full: max_prompt_tokens" in line(
        ["nnn"], ends=["context_full", "context_full", "stop"]
    )
    assert "max_tokens" not in line(["nnn"], ends=["length", "stop"])


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


@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_a_run_and_its_report_end_with_the_line(rejuice, recipe_file, tmp_path, chunk_rows):
    path = recipe_file(PROCESS, solutions())
    code, out, _ = rejuice("run", path, "--chunk_rows", chunk_rows)
    assert (code, last_line(out)) == (0, FORGOTTEN)
    again, err = rejuice("run", path, "--chunk_rows", chunk_rows)[1:]
    assert (last_line(again), "nothing to do" in err) == (FORGOTTEN, True)
    report = rejuice("report", "out/curated.parquet")[1]
    assert last_line(report) == FORGOTTEN
    shutil.rmtree(tmp_path / "out" / ".rejuice")
    assert rejuice("report", "out/curated.parquet")[1] == report
    (tmp_path / "out" / "curated.parquet").unlink()
    found = last_line(rejuice("report", "out/curated.parquet")[1])
    assert found == "No group has a signal: all advantages are 0 (wrong_answer 8)."


def test_without_a_step_for_advantages_rewards_decide(rejuice, recipe_file):
    path = recipe_file(PROCESS[:5], solutions())
    assert last_line(rejuice("run", path)[1]) == FORGOTTEN


@pytest.mark.parametrize("steps", [PROCESS, PROCESS[:5], PROCESS[:3]])
def test_a_run_with_a_signal_has_no_such_line(rejuice, recipe_file, steps):
    path = recipe_file(steps, solutions(prefix=""))
    code, out, _ = rejuice("run", path)
    assert (code, "signal" in out) == (0, False)


def test_a_response_that_steers_the_terminal_is_shown_as_text(rejuice, recipe_file):
    rows = [{"question": "?", "answer": "1", "out": ["Well,\n\x1b[31m I do not know"] * 2}]
    out = last_line(rejuice("run", recipe_file(PROCESS, rows))[1])
    assert r"begins 'Well, \u001b[31m I do not know'" in out
    assert "the form of answers that math_verify_mapper reads" in out
