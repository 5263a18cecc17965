"""What the signs need of rows, against the tables that the rows are in."""

import numpy as np
import pyarrow as pa
import pytest
from tiny_run import AFTER, ROWS, run_tiny
from trained_run import tiny_rollouts, write_trained

from rejuice.pipelines.analysis import reward_hacking as module
from rejuice.pipelines.analysis.reward_hacking import echoes, sign_rows
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.cli.shared import open_run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder)
    return open_stored(folder / "curated.parquet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return open_run(write_trained(folder / "run", tiny_rollouts(folder), (1, 3, 4)))


def test_rows_of_an_export_in_three_parts(tiny):
    rows = sign_rows(tiny.sets, "", 0)
    table = stored_rows(tiny.sets[0]).table
    assert rows.response_ids == table["response_id"].to_pylist()
    assert rows.groups_N.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert rows.right_N.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert rows.lengths_N.tolist() == [len(text) for row in ROWS for text in row["responses"]]
    assert rows.components["format"][:4].tolist() == pytest.approx([0.1, -0.1, 0.1, -0.1])
    kept = np.r_[0:4, 8:12]
    advantages = table["advantage"].take(pa.array(kept)).to_pylist()
    assert rows.advantages_N[kept] == pytest.approx(advantages)
    assert np.isnan(rows.advantages_N[4:8]).all(), "B is dropped"
    assert sum(rows.parts.values())[kept] == pytest.approx(advantages)
    assert rows.boxes_N.tolist() == [0] * 12
    assert rows.steps_N.tolist() == [0] * 12
    # correct, and wrong_answer or no_answer: a stratum of length is one verdict.
    verdicts = table["verdict"].to_pylist()
    assert len(set(zip(verdicts, rows.verdicts_N.tolist(), strict=True))) == len(set(verdicts))


def test_the_same_prompt_in_another_step_is_another_group(trained):
    rows = sign_rows(trained.sets, "answers", 0)
    assert rows.steps_N.tolist() == [1] * 12 + [3] * 12 + [4] * 12
    assert rows.groups_N.tolist() == [group for group in range(9) for _ in range(4)]
    assert rows.right_N[:12].tolist() == rows.right_N[24:].tolist()


def test_a_sample_of_whole_groups_is_seeded(trained, tiny, monkeypatch):
    whole = sign_rows(trained.sets, "answers", 0)
    monkeypatch.setattr(module, "MOST_GROUPS", 6)
    drawn = {}
    for seed in range(4):
        rows = sign_rows(trained.sets, "answers", seed)
        assert np.bincount(rows.groups_N).tolist() == [4] * 6  # Two of each of three steps.
        again = sign_rows(trained.sets, "answers", seed)
        assert (rows.steps_N == again.steps_N).all()
        assert rows.response_ids == again.response_ids
        keys = zip(rows.steps_N.tolist(), rows.response_ids, strict=True)
        drawn[seed] = frozenset(keys)
        assert drawn[seed] < set(zip(whole.steps_N.tolist(), whole.response_ids, strict=True))
    assert len(set(drawn.values())) > 1
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    assert np.bincount(sign_rows(tiny.sets, "", 0).groups_N).tolist() == [4] * 3  # One of a part.


@pytest.mark.slow
def test_every_group_is_as_likely_in_the_sample(trained, monkeypatch):
    monkeypatch.setattr(module, "MOST_GROUPS", 3)
    counts = np.zeros(5)
    for seed in range(20):
        counts += np.bincount(sign_rows(trained.sets, "answers", seed).steps_N, minlength=5) / 4
    # 20 each on average, of 20 samples of 3 of 9 groups: a standard deviation of 3.2.
    assert counts[[1, 3, 4]] == pytest.approx(20, abs=13)


def test_boxes_and_echoes_of_the_responses(tmp_path):
    question = "A farm has nine ducks and each of them lays two eggs every day"
    data = [{"question": question, "answer": "7", "responses": [
        question, r"\boxed{1} or \boxed{7}", r"\boxed{7}", f"nothing of that and then {question}",
    ]}]  # fmt: skip
    process = [
        {"prompt_template_mapper": {}}, {"recorded_rollout_mapper": {"columns": ["responses"]}}, *AFTER[:2],
    ]  # fmt: skip
    stored = run_on(tmp_path, data, process)
    rows = sign_rows(stored.sets, "", 0)
    assert rows.boxes_N.tolist() == [0, 1, 0, 0]
    n = len(question.split())
    assert rows.echo_N.tolist() == pytest.approx([1, 0, 0, (n - 7) / (n + 5 - 7)])
    assert rows.parts == {}
    assert np.isnan(rows.advantages_N).all()


def run_on(folder, data, process):
    """A run of other rows than those of TINY."""
    import json

    from tiny_run import write_tiny

    from rejuice.pipelines.engine import run as engine
    from rejuice.pipelines.recipe.recipe import load

    path = write_tiny(folder, process)
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in data), "utf-8")
    engine.run(load(path), chunk_rows=40)
    return open_stored(folder / "curated.parquet")


def test_echoes_are_of_the_own_prompt_only():
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    first, second = " ".join(words), " ".join(words[::-1])
    prompts = pa.array([first, second], pa.large_string())
    responses = pa.array([first, second, first, None, "", "ten " * 9], pa.large_string())
    found = echoes(prompts, responses, np.array([0, 0, 1, 0, 0, 1]))
    assert found.tolist() == [1, 0, 0, 0, 0, 0]
    assert len(echoes(prompts, responses[:0], np.zeros(0, np.int64))) == 0


def test_echoes_do_not_depend_on_blocks():
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{at}" for at in range(5)])
    texts = [" ".join(vocabulary[rng.integers(0, 5, 2000)]) for _ in range(60)]
    prompts = pa.array(texts[:6], pa.large_string())
    responses = pa.array(texts, pa.large_string())  # More than a block of bytes.
    codes = np.arange(60) % 6
    found = echoes(prompts, responses, codes)
    assert found[:6].tolist() == [1.0] * 6
    for at in (7, 33, 59):
        one = echoes(prompts.slice(codes[at], 1), responses.slice(at, 1), np.zeros(1, np.int64))
        assert found[at] == one[0]


def test_judgements_are_right_by_their_reward(tmp_path):
    label = {"task": "verify", "label": "Yes"}
    data = [
        {
            "question": f"Is {at} right?",
            "answer": "1",
            **label,
            "responses": [r"\boxed{Yes}", r"\boxed{No}", "?"],
        }
        for at in range(2)
    ]
    process = [
        {"prompt_template_mapper": {}}, {"recorded_rollout_mapper": {"columns": ["responses"]}},
        {"judgement_reward_mapper": {}},
    ]  # fmt: skip
    rows = sign_rows(run_on(tmp_path, data, process).sets, "", 0)
    assert rows.right_N.tolist() == [1, 0, 0] * 2
    assert list(rows.components) == ["verification"]
