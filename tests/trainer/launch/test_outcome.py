"""What a run says of rows that became no prompt, and of a policy that nothing is learnt from."""

import io
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import runner
from fake_run import line, write_run
from rich.console import Console
from trained_run import tiny_rollouts, write_trained

from rejuice.operators.mapper.prompt_template_mapper import PromptTemplateMapper
from rejuice.operators.sampling.protocol import Settings
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.launch import training
from rejuice.trainer.launch.prompts import make_held_out, make_prompts, make_replay
from rejuice.trainer.launch.training import failure
from rejuice.trainer.report.watch import Watch, left_out_lines
from rejuice.trainer.split import HeldOutSet

STEPS = number_steps([PromptTemplateMapper(on_bad_row="drop_row")])


def encode(messages):
    return [0] * len(messages[-1][1])


@pytest.fixture
def folder(tmp_path):
    """The folder of a run of one step."""
    return write_run(tmp_path / "run", [line(1, 0.5)])


@pytest.fixture
def made(folder, tmp_path):
    """Make the prompts of a set out of questions, each with the answer 1."""

    def make(questions, name="train", n=None):
        rows = [{"question": text, "answer": "1"} for text in questions]
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        if n is None:
            make_prompts(
                path, STEPS, folder / "prompts", name, source="x", encode=encode, longest=9
            )
        else:
            sampled = Settings(n, 1.0, 1.0, 16)
            held_out = HeldOutSet(name, path, name, "x", tuple(STEPS), sampled)
            make_held_out(held_out, folder / "prompts", encode=encode, longest=9)

    return make


def lines(folder):
    return list(left_out_lines(folder))


def test_where_every_row_became_a_prompt_there_is_no_line(made, folder):
    made(["a", "b"])
    made(["a", "b"], "validation", 1)
    assert lines(folder) == []


def test_what_training_does_not_have_is_counted_by_reason(made, folder):
    made(["a", "b", "a", "a", "a long question", ""])
    assert lines(folder) == [
        "dropped before training: 4 of 6 rows (repeated_prompt 2, no_question 1, prompt_too_long 1)"
    ]


def test_a_validation_set_with_every_problem_several_times(made, folder):
    made(["a", "b", "c"] * 4, "validation", 1)
    assert lines(folder) == [
        "validation: 9 of 12 rows repeat an earlier prompt and are left out; validation_n says how "
        "many responses each prompt gets"
    ]


def test_a_named_set_has_its_own_n(made, folder):
    made(["a", "b", "a", "a long question"], "validation-aime-24", 8)
    assert lines(folder) == [
        "validation aime-24: 1 of 4 rows repeat an earlier prompt and are left out; n of "
        "train.validation.aime-24 says how many responses each prompt gets",
        "dropped before validation aime-24: 1 of 4 rows (prompt_too_long 1)",
    ]


def test_a_replay_counts_responses(folder, tmp_path):
    table = pa.table(
        {
            "prompt_id": ["a", "a", "b"],
            "prompt": [[{"role": "user", "content": "?"}]] * 3,
            "reference": ["1"] * 3,
            "prompt_token_ids": pa.array([[5]] * 3, pa.list_(pa.int32())),
            "response": list("uvw"),
            "response_token_ids": pa.array([[1]] * 3, pa.list_(pa.int32())),
            "response_logprobs": pa.array([[-1.0]] * 3, pa.list_(pa.float32())),
            "reward": [0.0, 1.0, 2.0],
        }
    )
    path = tmp_path / "collected.parquet"
    pq.write_table(table, path)
    make_replay(path, folder / "prompts", source="x", longest=(4, 4), most=8)
    assert lines(folder) == ["dropped before training: 1 of 3 rows (group_of_one 1)"]


def test_the_report_has_the_lines_after_its_table(made, folder):
    made(["a", "a"])
    console = Console(file=io.StringIO(), width=200)
    training.show(folder, "try", console)
    shown = console.file.getvalue().splitlines()
    at = shown.index("dropped before training: 1 of 2 rows (repeated_prompt 1)")
    assert shown[at - 1].startswith("rows dropped ")


def test_they_are_printed_before_verl_starts(made, folder):
    made(["a", "a"])
    console = Console(file=io.StringIO(), width=200)
    with Watch(folder, 4, console):
        assert console.file.getvalue().splitlines() == [
            "dropped before training: 1 of 2 rows (repeated_prompt 1)",
            f"starting verl (about a minute); its output is in {folder}/verl.log",
        ]


@pytest.fixture
def trained(tmp_path):
    """A run of two steps in which no response is right."""
    (tmp_path / "tiny").mkdir()
    rollouts = tiny_rollouts(tmp_path / "tiny")
    at = rollouts.column_names.index("reference")
    rollouts = rollouts.set_column(at, "reference", pa.array(["0"] * rollouts.num_rows))
    process = [
        {"prompt_template_mapper": {}}, {"policy_rollout_mapper": {"n": 4}},
        {"math_verify_mapper": {}}, {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
        {"grpo_advantage_mapper": {}},
    ]  # fmt: skip
    return write_trained(tmp_path / "try", rollouts, (1, 2), process=process)


ALL_WRONG = (
    "No group has a signal: no response is correct (wrong_answer 12): for example, reference '0' "
    "against extracted answer '7': if that reference holds more than an answer, set "
    "reference_pattern or reference_form of prompt_template_mapper."
)


@pytest.mark.parametrize(("share", "shown"), [(1.0, [1, 2]), (0.5, [1])])
def test_each_step_without_signal_shows_why(trained, share, shown):
    figures = {"rejuice/groups_without_signal": share}
    (trained / "metrics.jsonl").unlink()
    console = Console(file=io.StringIO(), width=200)
    with Watch(trained, 2, console):
        text = line(1, 0.0, **{"rejuice/groups_without_signal": 1.0}) + line(2, 0.0, **figures)
        (trained / "metrics.jsonl").write_text(text)
    seen = console.file.getvalue().splitlines()
    logged = [each for each in seen if "No group" in each]
    assert logged == [f"step {step}: {ALL_WRONG}" for step in shown]
    assert (failure(trained) is not None) is (share == 1.0)


def test_without_rollouts_on_file_training_ends_as_ever(trained):
    shutil.rmtree(trained / "steps")
    (trained / "metrics.jsonl").unlink()
    console = Console(file=io.StringIO(), width=200)
    with Watch(trained, 1, console):
        text = line(1, 0.0, **{"rejuice/groups_without_signal": 1.0})
        (trained / "metrics.jsonl").write_text(text)
    assert console.file.getvalue().splitlines()[-1].startswith("step 1/1: reward")


IDLE = {"rejuice/groups_without_signal": 1.0}


def of_set(mean):
    names = {"mean@1": mean, "mean_low": mean - 0.1, "mean_high": mean + 0.1}
    return {f"rejuice/validation/a/{name}": value for name, value in names.items()}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([line(1, 0.5, **of_set(0.8)), line(2, 0.5, **of_set(0.2)), line(3, 0.4, **IDLE)],
         "step 2: the validation has collapsed to 0.200, from 0.800 at step 1"),
        ([line(1, 0.5, **of_set(0.8)), line(2, 0.5, **of_set(0.2)), line(3, 0.4, **of_set(0.2))], None),
        ([line(1, 0.5, **of_set(0.2)), line(2, 1.0, **IDLE, **of_set(0.9))], None),
        ([line(1, 0.5, **of_set(0.8)), line(2, 0.5, **of_set(0.1)), line(3, 1.0, **IDLE, **of_set(0.7))],
         None),
        ([line(1, 0.5), line(2, 0.4), line(3, 0.0, **IDLE), line(4, 0.0, **IDLE)],
         "step 3: no response is right any more, of which 45% were before"),
        ([line(1, 0.5), line(2, 1.0, **IDLE)], None),
        ([line(1, 0.01), line(2, 0.0, **IDLE)], None),  # Perhaps by chance.
        ([line(1, 0.5), line(2, 0.0, **IDLE, **{"rejuice/choice/eligible": 9.0})], None),
    ],
)  # fmt: skip
def test_steps_without_signal_after_a_collapse_are_a_failure(tmp_path, lines, found):
    reason = failure(write_run(tmp_path / "run", lines))
    assert reason is None if found is None else reason.startswith(found)


@pytest.mark.parametrize(("where", "rows"), [("", 24), ("steps/000002", 12)])
def test_the_report_of_such_a_run_or_step_ends_with_why(trained, monkeypatch, capsys, where, rows):
    status, out, err = runner(monkeypatch, capsys, trained.parent)("report", trained / where)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == ALL_WRONG.replace("12", str(rows))
