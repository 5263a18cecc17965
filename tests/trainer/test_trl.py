"""A recipe as TRL's reward: what TRL's trainer would call, and the trainer itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import DataError, OperatorError, RecipeError
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.run import Policy
from rejuice.trainer.split import split_recipe
from rejuice.trainer.trl import grpo_settings, reward_funcs, train_dataset

RIGHT, WRONG, BARE = (
    "<think>1 + 1 = 2</think><answer>2</answer>",
    "<think>1 + 1 = 3</think><answer>3</answer>",
    "2",
)
END = 779  # <|im_end|> of the embedded policy
REWARDS = (
    {"math_verify_mapper": None},
    {"format_reward_mapper": None},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
)


@pytest.fixture
def recipe(recipe_file):
    """A factory of recipes with some steps after sampling; two responses to a prompt."""

    def make(*after, n=2, rows=None, **head):
        process = [
            {"prompt_template_mapper": None},
            {"policy_rollout_mapper": {"n": n, "max_tokens": 4}},
            *(after or REWARDS),
        ]
        rows = rows or [{"question": "1 + 1?", "answer": "2"}]
        return recipe_file(
            [step if None not in step.values() else next(iter(step)) for step in process],
            rows=rows,
            **head,
        )

    return make


def called(function, responses, questions=None, **more):
    """The rewards of responses to questions, each question in a row as often as TRL asks it."""
    questions = questions or ["1 + 1?"] * len(responses)
    columns = {"reference": ["2"] * len(responses), "unread": [object()] * len(responses)}
    return function(
        prompts=[[{"role": "user", "content": question}] for question in questions],
        completions=[[{"role": "assistant", "content": text}] for text in responses],
        **{"completion_ids": [[1, END] for _ in responses], **columns, **more},
    )


def test_the_reward_is_the_recipes(recipe):
    (reward,) = reward_funcs(recipe())
    assert called(reward, [RIGHT, WRONG, BARE, ""], ["a", "a", "b", "b"]) == [1.1, 0.1, 0.9, -0.1]
    assert reward.__name__ == "reward"


def test_texts_are_taken_like_chats(recipe):
    (reward,) = reward_funcs(recipe())
    reported = {"completion_ids": [[1], [1]], "reference": ["2", "2"]}
    assert reward(prompts=["1 + 1?"] * 2, completions=[RIGHT, WRONG], **reported) == [1.1, 0.1]


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from([RIGHT, WRONG, BARE, ""]), min_size=3, max_size=3), min_size=1, max_size=4))  # fmt: skip
def test_rewards_are_those_of_the_same_steps_offline(tmp_path_factory, groups):
    path = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    after = [
        "math_verify_mapper",
        "format_reward_mapper",
        {"diversity_reward_mapper": {"gate": "mixed_groups_only"}},
        {"pass_rate_filter": {"min": 0.1, "max": 0.9}},
        {
            "reward_sum_mapper": {
                "weights": {"accuracy": 1.0, "diversity": 0.3},
                "on_missing": "drop_row",
            }
        },
    ]
    process = ["prompt_template_mapper", {"policy_rollout_mapper": {"n": 3}}, *after]
    path.write_text(json.dumps({"dataset_path": "d.jsonl", "export_path": "e.parquet", "process": process}))  # fmt: skip
    texts = [text for group in groups for text in group]
    names = [f"prompt {g}" for g, group in enumerate(groups) for _ in group]
    ids = [str(row) for row in range(len(texts))]
    table = pa.table({"prompt_id": names, "response_id": ids, "response": texts, "reference": ["2"] * len(texts)})  # fmt: skip
    left = run_in_memory([step.operator for step in split_recipe(load(path)).after], table)
    offline = dict(zip(left["response_id"].to_pylist(), left["reward"].to_pylist(), strict=True))
    found = called(reward_funcs(path)[0], texts, names, prompt_id=names)
    assert found == [offline.get(name) for name in ids]


def test_what_is_dropped_has_no_reward_and_is_logged(recipe):
    after = [REWARDS[0], {"pass_rate_filter": {"max": 0.9}}, *REWARDS[1:]]
    metrics, extra = {}, {}
    found = called(
        reward_funcs(recipe(*after))[0],
        [RIGHT, RIGHT, RIGHT, WRONG],
        ["a", "a", "b", "b"],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert found == [None, None, 1.1, 0.1]
    assert extra["dropped"] == ["pass_rate_filter: too_easy"] * 2 + [None] * 2
    assert extra["reward_accuracy"] == [None, None, 1.0, 0.0]
    assert extra["reward_accuracy_missing"] == [None] * 4
    assert metrics["rejuice/reward_accuracy"] == 0.75  # Of what was sampled.
    assert metrics["rejuice/pass_rate"] == 0.75
    assert metrics["rejuice/dropped/too_easy"] == 2
    assert metrics["rejuice/rows_trained"] == 2


def test_all_may_be_dropped(recipe):
    metrics = {}
    after = [REWARDS[0], {"pass_rate_filter": {"max": 0.9}}, *REWARDS[1:]]
    reward = reward_funcs(recipe(*after))[0]
    assert called(reward, [RIGHT] * 2, log_metric=metrics.__setitem__) == [None, None]
    assert metrics["rejuice/rows_trained"] == 0


def test_a_missing_component_is_none_and_never_0(recipe):
    weights = {"weights": {"accuracy": 1.0, "format": 1.0}}
    after = [*REWARDS[:2], {"reward_sum_mapper": {**weights, "on_missing": "drop_row"}}]
    reward = reward_funcs(recipe(*after))[0]
    assert called(reward, [RIGHT, WRONG], reference=[None, "2"], prompt_id=["a"] * 2) == [None, 0.1]
    (reward,) = reward_funcs(recipe())  # on_missing: fail
    with pytest.raises(DataError, match=r"step 5 reward_sum_mapper: reward_accuracy is missing \(no_reference\)"):  # fmt: skip
        called(reward, [RIGHT, WRONG], reference=[None, "2"], prompt_id=["a"] * 2)


def test_a_column_that_the_dataset_lacks_is_named(recipe):
    (reward,) = reward_funcs(recipe())
    with pytest.raises(DataError, match="step 3 math_verify_mapper: column 'reference' is missing"):
        reward(prompts=["a"] * 2, completions=["b"] * 2, completion_ids=[[1]] * 2)


def test_only_whole_groups_are_scored(recipe):
    (reward,) = reward_funcs(recipe(n=4))
    with pytest.raises(DataError) as caught:
        called(reward, [RIGHT] * 2, prompt_id=["a", "a"])
    assert str(caught.value) == (
        "2 completions of prompt 'a' came together, the recipe has n: 4; set num_generations to 4, "
        "per_device_train_batch_size * steps_per_generation to a multiple of it, and give each "
        "prompt once"
    )
    with pytest.raises(DataError, match="prompt 'a' is in a batch twice; give each prompt once"):
        called(reward_funcs(recipe())[0], [RIGHT] * 6, prompt_id=list("aabbaa"))


@pytest.mark.parametrize(
    ("completion", "output"),
    [
        ([{"role": "assistant", "content": "a"}] * 3, "a completion has 3 messages"),
        ([{"role": "assistant", "content": [{"type": "text"}]}], "the content of a message is"),
        ([{"role": "assistant", "content": None}], "the content of a message is None"),
        (
            [{"role": "assistant", "content": "a", "reasoning_content": "b"}],
            "a message has 'reasoning_content' beside its content",
        ),
    ],
)
def test_a_completion_that_is_not_one_text_is_refused(recipe, completion, output):
    (reward,) = reward_funcs(recipe(n=1))
    with pytest.raises(DataError, match=output):
        reward(prompts=["a"], completions=[completion], completion_ids=[[1]], reference=["2"])


def test_a_dataset_that_the_recipe_generates_is_written(recipe, tmp_path):
    name = str(tmp_path / "made.jsonl")
    generated = {name: {"type": "arithmetic", "prompts": 3}}
    found = train_dataset(recipe(dataset_path=name, generated_datasets=generated))
    assert len(found) == 3


def test_weights_follow_the_progress_of_training(recipe):
    weights = {"accuracy": {"from": 1.0, "to": 0.0}}
    after = [REWARDS[0], {"reward_sum_mapper": {"weights": weights}}]
    (reward,) = reward_funcs(recipe(*after))

    def at(step):
        state = SimpleNamespace(global_step=step, max_steps=5)
        return called(reward, [RIGHT, WRONG], trainer_state=state)

    assert [at(step) for step in (0, 2, 4)] == [[1.0, 0.0], [0.5, 0.0], [0.0, 0.0]]
    assert called(reward, [RIGHT, WRONG]) == [1.0, 0.0]  # as the recipe itself says


@pytest.mark.slow  # It loads transformers.
def test_a_response_that_does_not_end_is_truncated(recipe):
    (reward,) = reward_funcs(recipe(*REWARDS[:2], {"truncated_response_filter": None}, REWARDS[2]))
    ids = [[1, 2, 3, END], [1, 2, 3, 4]]
    assert called(reward, [RIGHT, RIGHT], completion_ids=ids) == [1.1, None]
    assert END in Policy.load("embedded").end_token_ids


def test_a_step_that_trl_does_not_feed_is_refused_before_anything_runs(recipe):
    path = recipe(*REWARDS, {"column_range_filter": {"column": "response_logprobs", "min": 0}})
    with pytest.raises(RecipeError) as caught:
        reward_funcs(path)
    assert str(caught.value) == (
        f"{path}, step 6 column_range_filter: reads column 'response_logprobs', which TRL does not "
        "pass; leave the step out"
    )


def test_a_step_that_makes_rows_has_no_place(recipe, tmp_path):
    (tmp_path / "twice.py").write_text(
        "import numpy as np\nfrom rejuice.operators import Change, Operator\n\n\n"
        "class TwiceMapper(Operator):\n    def apply(self, table):\n"
        "        return Change(parents=np.repeat(np.arange(table.num_rows), 2))\n"
    )
    path = recipe({"twice_mapper": None}, *REWARDS, custom_operator_paths=[str(tmp_path / "twice.py")])  # fmt: skip
    with pytest.raises(OperatorError, match="a step makes new rows; TRL has no place for them"):
        called(reward_funcs(path)[0], [RIGHT, WRONG])


def test_the_dataset_has_every_column_and_each_prompt_once(recipe):
    rows = [{"question": q, "answer": "2", "level": 1} for q in ("1 + 1?", "3 - 1?", "1 + 1?")]
    found = train_dataset(recipe(rows=rows))
    assert found["question"][:] == ["1 + 1?", "3 - 1?"]
    assert found["prompt"][1] == [{"role": "user", "content": "3 - 1?"}]
    assert set(found.column_names) == {"question", "answer", "level", "prompt", "reference", "prompt_id"}  # fmt: skip
    assert found["reference"][:] == ["2", "2"]


def test_suffixes_say_which_files_of_the_dataset_prompts_are_made_of(recipe, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (folder / "b.jsonl").write_text('{"question": "3 - 1?", "answer": "2"}\n')
    path = recipe(dataset_path=str(folder), suffixes="json")
    assert train_dataset(path)["question"][:] == ["1 + 1?"]
    assert train_dataset(path, folder / "b.jsonl")["question"][:] == ["3 - 1?"]


def test_a_column_of_the_dataset_is_not_replaced(recipe):
    path = recipe(rows=[{"question": "1 + 1?", "answer": "2", "verdict": "as I say"}])
    with pytest.raises(
        RecipeError, match="step 3 math_verify_mapper: would replace column 'verdict'"
    ):
        train_dataset(path)


def test_the_settings_are_the_recipes(recipe):
    found = grpo_settings(recipe())
    assert found == {
        "num_generations": 2,
        "max_completion_length": 4,
        "temperature": 1.0,
        "top_p": 1.0,
        "chat_template_kwargs": None,
        "scale_rewards": "group",
    }
    centred = recipe(*REWARDS, {"grpo_advantage_mapper": {"normalise": "none"}})
    assert grpo_settings(centred)["scale_rewards"] == "none"


@pytest.mark.parametrize(
    ("fields", "lacking"),
    [
        ({"normalise": "leave_one_out"}, "leave_one_out"),
        ({"normalise": "mean"}, "mean"),
        ({"normalise": "batch_std"}, "batch_std"),
        ({"clip": 5.0}, "clip"),
        ({"std_floor": 0.1}, "std_floor"),
        ({"epsilon": 0.01}, "epsilon"),
    ],
)
def test_an_advantage_that_trl_cannot_compute_is_refused(recipe, fields, lacking):
    with pytest.raises(RecipeError, match=f"step 6 grpo_advantage_mapper: TRL has no {lacking}"):
        grpo_settings(recipe(*REWARDS, {"grpo_advantage_mapper": fields}))


def test_weights_that_trl_would_not_use_are_refused(recipe):
    weigh = {"loss_weight_mapper": {"where": {"finish_reason": "length"}}}
    found = "step 6 loss_weight_mapper: TRL computes advantages itself, and would not use loss_weig"
    with pytest.raises(RecipeError, match=found):
        grpo_settings(recipe(*REWARDS, weigh, {"grpo_advantage_mapper": {}}))


def test_the_last_advantage_counts_as_in_training(recipe):
    first, last = {"normalise": "leave_one_out"}, {"normalise": "none", "epsilon": 0.01}
    found = grpo_settings(recipe(*REWARDS, *({"grpo_advantage_mapper": f} for f in (first, last))))
    assert found["scale_rewards"] == "none"


def test_a_policy_that_judges_is_not_for_trl(recipe):
    path = recipe(
        *REWARDS,
        {"self_verification_mapper": None},
        {"policy_rollout_mapper": {"n": 2, "max_tokens": 4, "task": "verify"}},
        {"judgement_reward_mapper": None},
        {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    )
    for call in (reward_funcs, train_dataset, grpo_settings):
        with pytest.raises(RecipeError, match="which only `rejuice train` does"):
            call(path)


# trl is in a process of its own: verl, in that of other tests, fails where it is importable.
TRAIN = """
import json, sys
import torch
from trl import GRPOConfig, GRPOTrainer
from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.trainer.trl import grpo_settings, reward_funcs, train_dataset

recipe, folder = sys.argv[1:]

def trained(functions, steps, **more):
    config = GRPOConfig(
        **grpo_settings(recipe), output_dir=folder, per_device_train_batch_size=8, max_steps=steps,
        learning_rate=1e-3, use_cpu=True, bf16=False, gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"}, logging_steps=1, report_to="none",
        save_strategy="no", disable_tqdm=True, **more)
    trainer = GRPOTrainer(model=str(EMBEDDED), args=config, train_dataset=train_dataset(recipe), reward_funcs=functions)
    before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
    trainer.train()
    after = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    logs = trainer._logs
    return {
        "moved": float((after - before).abs().max()),
        "history": trainer.state.log_history,
        "rewards": {name: list(values) for name, values in logs["rewards"].items()},
        "advantages": list(logs["advantages"]),
        "extra": {name: list(values) for name, values in logs["extra"].items()},
    }

def other(completions, **_):
    return [1.0] * len(completions)

alone = trained(reward_funcs(recipe), 2)
beside = trained([*reward_funcs(recipe), other], 1, reward_weights=[1.0, 0.0])
print(json.dumps([alone, beside]))
"""


@pytest.mark.slow
def test_trl_trains_on_it_and_leaves_dropped_rows_out(recipe_file, tmp_path):
    (tmp_path / "none.py").write_text(
        "from rejuice.operators import Filter, Groups, drop\n\n\n"
        "class ThirdFilter(Filter):\n    def reads(self):\n        return ('prompt_id',)\n\n"
        "    def decide(self, table):\n"
        "        return drop({'third': Groups.of(table).position() == 2})\n"
    )
    rows = [{"question": f"Tom has {k} apples and buys 3. How many has he?", "answer": str(k + 3)} for k in range(8)]  # fmt: skip
    process = [
        "prompt_template_mapper",
        {"policy_rollout_mapper": {"n": 4, "max_tokens": 48}},
        {"diversity_reward_mapper": {"measure": "pairwise"}},
        "third_filter",
        {"reward_sum_mapper": {"weights": {"diversity": 1.0}}},
    ]
    path = recipe_file(process, rows=rows, custom_operator_paths=[str(tmp_path / "none.py")])
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, path, tmp_path / "run"],
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    alone, beside = json.loads(done.stdout.splitlines()[-1])
    assert alone["moved"] > 0
    assert [line["rejuice/dropped/third"] for line in alone["history"][:2]] == [2, 2]
    assert alone["extra"]["dropped"] == [None, None, "third_filter: third", None] * 2
    for start in (0, 4):
        rewards = alone["rewards"]["reward"][start : start + 4]
        advantages = alone["advantages"][start : start + 4]
        assert rewards[2] != rewards[2]  # nan
        assert advantages[2] == 0.0
        counted = [reward for k, reward in enumerate(rewards) if k != 2]
        mean = sum(counted) / 3
        spread = (sum((reward - mean) ** 2 for reward in counted) / 2) ** 0.5
        for k in (0, 1, 3):
            assert advantages[k] == pytest.approx((rewards[k] - mean) / (spread + 1e-4), abs=1e-3)
    # Why it is one function: beside another, with weight 0, what is missing counts as a 0.
    assert all(
        beside["rewards"]["reward"][row] != beside["rewards"]["reward"][row] for row in (2, 6)
    )
    assert all(abs(beside["advantages"][row]) > 0.1 for row in (2, 6))


@pytest.mark.slow
def test_the_example_of_the_documents_trains(tmp_path):
    root = Path(__file__).parents[2]
    code = (root / "docs" / "exports.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "recipes").mkdir()
    shutil.copy(root / "recipes" / "grpo_arithmetic.yaml", tmp_path / "recipes")
    write_dataset(
        tmp_path / "outputs" / "arithmetic" / "train.jsonl",
        "arithmetic",
        DemoOptions(prompts=70, levels=(1,)),
    )
    small = code.replace("max_steps=20", "max_steps=1").replace("_steps=8", "_steps=1")
    assert small.count("_steps=1") == 3
    done = subprocess.run(
        [sys.executable, "-c", small],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'rejuice/reward_accuracy': '" in done.stdout
