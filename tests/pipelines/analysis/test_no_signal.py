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


class FlatMapper(Mapper):
    """The same reward for all."""

    def writes(self):
        return ("reward",)

    def map(self, table):
        return {"reward": pa.array([0.5] * table.num_rows)}


SUM = RewardSumMapper(weights={"accuracy": 1.0}, on_missing="drop_row")
IGNORING = RewardSumMapper(weights={"accuracy": 0.0}, on_missing="drop_row")
STEPS = (LetterMapper(), SUM, GrpoAdvantageMapper())
RATED = (LetterMapper(), GroupStatsMapper())


class Rows(NamedTuple):
    """A set of rows, in parts."""

    steps: tuple
    tables: list

    incomplete = ""
    training_step = None

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
        (["nw", "nn"], STEPS, r"no response is correct \(no_answer 3, wrong_answer 1\).*no answer in a form"),
        (["cc", "cct"], STEPS, r"every graded response is correct \(correct 4, timeout 1\)"),
        (["cc", "ww", "cc"], STEPS, "in 2 of 3 groups every graded response is correct"),
        (["c", "w"], STEPS, "one response, which is compared with nothing: sample n: 2"),
        (["tt", "tt"], STEPS, "fewer than two responses have a reward"),
        (["ct", "wt"], STEPS, "fewer than two responses have a reward"),
        (["cw", "cw"], (LetterMapper(), IGNORING, GrpoAdvantageMapper()), "differ.* grpo_advantage_mapper .*the weights"),
        (["cw"], (*STEPS[:2], ZeroMapper()), "differ, but zero_mapper"),
        # Without an advantage, rewards decide; without rewards, verdicts.
        (["ww", "w"], STEPS[:2], "no response is correct"),
        (["ww", "ww"], STEPS[:1], "no response is correct"),
        # What a filter drops later was graded all the same.
        (["ww"], (*RATED, PassRateFilter(min=0.1), *STEPS[1:]), "no response is correct"),
        (["wc", "ww", "cc"], (*RATED, PassRateFilter(max=0.1), *STEPS[1:]), "grpo_advantage_mapper .*filters before it"),
        (["cw", "ccw"], (*STEPS[:2], ColumnRangeFilter(column="reward", min=0.5), *STEPS[2:]), "filters before it"),
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


@pytest.mark.parametrize("reference", ["sum #### 8", "8 apples", r"\frac{1}{2}"])
def test_an_example_shows_reference_and_answer(reference):
    found = line(["w9|w9"], references=[reference])
    assert f"reference '{reference}' against extracted answer '9'" in found
    assert "reference_pattern" in found


def test_a_long_example_is_cut():
    found = line([f"w{'apples ' * 20}|w"], references=[f"{'so ' * 30}#### 8"])
    assert f"...{('so ' * 30 + '#### 8')[-30:]}'" in found
    assert f"'{('apples ' * 20)[:30]}..." in found


def test_responses_that_were_cut_off_have_no_answer():
    assert "2 of 2 responses ended by length" in line(["n one|n two"], ends=["length"])
    assert "2 of 3 responses ended by context_full (no_answer 3): max_prompt_tokens" in line(
        ["nnn"], ends=["context_full", "context_full", "stop"]
    )
    assert "max_tokens" not in line(["nnn"], ends=["length", "stop"])


def test_without_a_verifier_there_are_no_verdicts_to_count():
    found = line(["ww"], (LetterMapper(), *STEPS[1:]), ends=["length"])
    assert "(wrong_answer 2)" in found
    operator = ColumnRangeFilter(column="reward", min=0)
    found = line(["ww"], (FlatMapper(), operator, GrpoAdvantageMapper()), ends=["length"])
    assert found == "2 of 2 responses ended by length: max_tokens may be too small."


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
    "'worked solution, so it is 1' against extracted answer '1': if that reference holds more than "
    "an answer, set reference_pattern or reference_form of prompt_template_mapper."
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
    assert r"'Well, \u001b[31m I do not know' has no answer in a form" in out
