"""What each kind of step has as evidence, of rows that it has seen."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_responses
import tiny_run
from fake_judge import FakeJudge, verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators.deduplicator.exact_deduplicator import ExactDeduplicator
from rejuice.operators.deduplicator.minhash_deduplicator import MinhashDeduplicator
from rejuice.operators.mapper.diversity_reward_mapper import DiversityRewardMapper
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.text.embedding import hashed_ngram
from rejuice.pipelines.analysis.evidence import evidence, evidence_of_rows, seen_by
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.steps import iterate_steps
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.steps import number_steps


def step_of(operator):
    return number_steps([operator])[0]


def rows_of(*groups):
    """Groups of responses; ids `0.1` and so on."""
    places = [(at, nth) for at, group in enumerate(groups) for nth in range(len(group))]
    return pa.table(
        {
            "response_id": [f"{at}.{nth}" for at, nth in places],
            "prompt_id": [f"p{at}" for at, _ in places],
            "response": pa.array([text for group in groups for text in group], pa.string()),
        }
    )


def repeats(operator, table):
    reasons = operator.decide(operator.digest(table))
    return evidence(step_of(operator), table, reasons)["repeats"].to_pylist()


def test_the_nearest_of_a_group():
    table = rows_of(
        ["one two three four", "one two three five", "six seven", None, " "],
        ["alone", ""],
        ["one two three four", "one two three four"],
    )
    found = evidence(step_of(DiversityRewardMapper()), table, None)
    assert found["nearest_response_id"].to_pylist() == [
        *("0.1", "0.0", "0.0", None, None),
        *(None, None),
        *("2.1", "2.0"),
    ]
    unit = hashed_ngram(table["response"].to_pylist()[:3]).astype(float)
    cosines = unit @ unit.T
    near, mean = (found[name].to_pylist() for name in ("nearest_cosine", "mean_cosine"))
    assert near[:2] == pytest.approx([cosines[0, 1]] * 2, abs=1e-6)
    assert mean[0] == pytest.approx((cosines[0, 1] + cosines[0, 2]) / 2, abs=1e-6)
    assert near[3:7] == mean[3:7] == [None] * 4
    assert near[7:] == pytest.approx([1.0, 1.0])


def test_a_model_is_loaded_only_where_that_is_wanted():
    operator = DiversityRewardMapper(backend="sentence_transformers", model="nowhere/at-all")
    assert evidence(step_of(operator), rows_of(["a", "b"]), None) == {}


def test_exact_repeats():
    table = rows_of(["a", "b", "a", None, "A", "a"], ["a", None])
    assert repeats(ExactDeduplicator(), table) == [None, None, "0.0", None, None, "0.0", None, None]
    assert repeats(ExactDeduplicator(within="all", lowercase=True), table) == [
        *(None, None, "0.0", None, "0.0", "0.0"),
        *("0.0", None),
    ]


def test_repeated_prompts():
    table = rows_of(["a", "b"], ["c"], ["d", "e"])
    table = table.append_column("prompt", pa.array(["x", "x", "y", "x", "x"]))
    operator = ExactDeduplicator(unit="prompt")
    assert repeats(operator, table) == [None, None, None, "p0", "p0"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "1", "2"]), max_size=6), max_size=14
    ),
    st.sampled_from([None, "all"]),
    st.booleans(),
)
def test_what_a_near_duplicate_repeats_stayed_before_it(words, within, numbers):
    fields = {"within": within, "keep_different_numbers": numbers, "threshold": 0.4, "ngram": 1}
    operator = MinhashDeduplicator(**fields)
    table = rows_of([" ".join(each) for each in words[::2]], [" ".join(e) for e in words[1::2]])
    reasons = operator.decide(operator.digest(table)).to_pylist()
    ids = table["response_id"].to_pylist()
    for row, (reason, kept) in enumerate(zip(reasons, repeats(operator, table), strict=True)):
        assert (kept is not None) == (reason is not None)
        if kept is not None:
            assert reasons[ids.index(kept)] is None
            assert ids.index(kept) < row


def test_rows_that_stayed_elsewhere_are_not_guessed():
    """In some of the groups only, the row that stayed may be missing: then nothing is stated."""
    operator = ExactDeduplicator(within="all")
    table = rows_of(["a"], ["a"], ["a"])
    reasons = operator.decide(operator.digest(table))
    found = evidence(step_of(operator), table.slice(1), reasons.slice(1))
    assert found["repeats"].to_pylist() == [None, None]


def test_real_repeats():
    table = pq.read_table(real_responses.FOLDER / "responses.parquet")
    n = table.num_rows
    rows = pa.table(
        {
            "response_id": [str(row) for row in range(n)],
            "prompt_id": table["problem"].cast(pa.string()),
            "response": table["response"],
        }
    )
    operator = MinhashDeduplicator()
    dropped_N = np.asarray(operator.decide(operator.digest(rows)).is_valid())
    found = np.array([each is not None for each in repeats(operator, rows)])
    assert dropped_N.any()
    assert (found == dropped_N).all()


def test_steps_without_evidence():
    step, table = step_of(FormatRewardMapper(style="boxed")), rows_of(["a"])
    assert evidence(step, table, None) == {}


JUDGE = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 0.1, "attempts": 2}


def judged_run(folder, judge):
    fields = {
        "model": "m",
        "server": {**JUDGE, "base_url": judge.url},
        "cache": str(folder / "scores.sqlite"),
    }
    process = [
        *tiny_run.PROCESS[:3],
        {"llm_quality_reward_mapper": fields},
        {
            "reward_sum_mapper": {
                "weights": {"accuracy": 1.0, "quality": 1.0},
                "on_missing": "drop_row",
            }
        },
    ]
    return tiny_run.run_tiny(folder, process)


def judge_evidence(folder):
    """By response, what is known of its judge."""
    found = {}
    (one,) = open_stored(folder / "curated.parquet").sets
    for part in range(one.parts):
        for each in one.applied(part):
            if isinstance(each.step.operator, LlmQualityRewardMapper):
                table = seen_by(each, np.arange(each.before.num_rows))
                columns = evidence(each.step, table, None)
                pairs = zip(*(column.to_pylist() for column in columns.values()), strict=True)
                found |= dict(zip(table["response"].to_pylist(), pairs, strict=True))
    return found


def test_a_judges_words_of_a_run_and_after_a_retry(tmp_path):
    """A malformed answer is final until it is asked for again, and its text is there."""
    raw = "No.\n<script>window.hit=1</script>\u202e"
    with FakeJudge(says={11: [raw, verdict([1, 1, 1, 1])]}) as judge:
        judged_run(tmp_path, judge)
        before, asked = judge_evidence(tmp_path), sum(judge.attempts.values())
        assert before["It is 11."] == (None, raw)
        assert before["It is 9."][0].startswith('{"accuracy": ')
        assert before["It is 9."][1] is None
        recipe = load(tmp_path / "tiny.yaml")
        engine.run(recipe, chunk_rows=1, overwrite=True)
        assert sum(judge.attempts.values()) == asked, "a failure is final"
        engine.run(recipe, chunk_rows=1, retry_missing="llm_quality_reward_mapper")
        assert sum(judge.attempts.values()) == asked + 1
        assert judge_evidence(tmp_path)["It is 11."] == (verdict([1, 1, 1, 1]), None)


def test_what_is_read_must_be_there(tmp_path):
    tiny_run.run_tiny(tmp_path)
    (one,) = open_stored(tmp_path / "curated.parquet").sets
    verify = next(iterate_steps(one.steps, one.base(0), one.results(0)))
    rows = [np.arange(2)]
    assert set(evidence_of_rows([verify], rows)) == {"found_by", "found_at"}
    frame = type(verify.before).of(pa.table({"response": ["a"], "reference": ["b"]}))
    assert evidence_of_rows([verify._replace(before=frame)], rows) == {}
