"""What `rejuice export` writes, read by those whom it is for: verl's loaders and `datasets`."""

import asyncio
import json
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rejuice.operators import DataError, RecipeError, RejuiceError
from rejuice.operators.functions.pool import close_pools
from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.pipelines.cli.export import app
from rejuice.pipelines.dataset.write import mark_written
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.export.huggingface import export_hf
from rejuice.trainer.export.trl_formats import Completions, Pairs
from rejuice.trainer.export.verl import export_verl, override_words
from rejuice.trainer.export.verl_reward import RowReward
from rejuice.trainer.split import split_recipe

RIGHT, WRONG, BARE = (
    "<think>1 + 1 = 2</think><answer>2</answer>",
    "<think>1 + 1 = 3</think><answer>3</answer>",
    "2",
)
ROWS = [{"question": f"1 + {k}?", "answer": str(k + 1)} for k in range(4)]
VERIFY, FORM, SUM = (
    "math_verify_mapper",
    "format_reward_mapper",
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 0.5}}},
)


@pytest.fixture
def recipe(recipe_file):
    """A factory of recipes with some steps after sampling."""

    def make(*after, rows=ROWS, template=None, **head):
        first = {"prompt_template_mapper": template or {}}
        process = [first, {"policy_rollout_mapper": {"n": 2}}]
        path = recipe_file([*process, *(after or (VERIFY, FORM, SUM))], rows=rows, **head)
        return load(path)

    return make


# ------------------------------------------------------------------ verl


@pytest.fixture
def exported(recipe, tmp_path):
    """A folder that was exported, with held-out prompts, and what export_verl returns."""
    (tmp_path / "held_out.jsonl").write_text(json.dumps({"question": "5 + 5?", "answer": "10"}))
    train = {"validation_path": str(tmp_path / "held_out.jsonl")}
    return tmp_path / "export", export_verl(recipe(train=train), tmp_path / "export")


@pytest.fixture
def config(verl, exported, tmp_path):
    """verl's own configuration with the overrides that the export names."""
    from hydra import compose, initialize_config_module

    words = [f"{key}={value}" for key, value in exported[1].overrides.items()]
    words += [f"actor_rollout_ref.model.path={EMBEDDED}", f"+data.cache_dir={tmp_path}"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words)


@pytest.mark.slow
def test_verl_reads_the_prompts(config):
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    train = RLHFDataset(config.data.train_files, tokenizer, config.data)
    assert [row["raw_prompt"][0]["content"] for row in train] == [row["question"] for row in ROWS]
    assert train[2]["reward_model"] == {"style": "rule", "ground_truth": "3"}
    held_out = RLHFDataset(config.data.val_files, tokenizer, config.data)
    assert held_out[0]["extra_info"]["split"] == "validation"


@pytest.mark.slow
def test_verl_finds_the_reward_function(config, exported):
    from verl.trainer.ppo.reward import get_custom_reward_fn

    score = get_custom_reward_fn(config)
    rows = pq.read_table(exported[0] / "train.parquet").to_pylist()
    requested = {"data_source": "rejuice", "ground_truth": "2", "extra_info": rows[1]["extra_info"]}
    assert score(solution_str=RIGHT, **requested) == {
        "score": 1.05,
        "acc": 1.0,
        "reward_accuracy": 1.0,
        "reward_format": 0.1,
    }
    assert score(solution_str=BARE, **requested)["score"] == 0.95


@pytest.mark.slow
def test_verls_reward_loop_gives_the_score(config, exported):
    import numpy as np
    import torch
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    row = pq.read_table(exported[0] / "train.parquet").to_pylist()[1]
    ids = [*tokenizer.encode(RIGHT), tokenizer.eos_token_id]
    tensors = {"prompts": [[1]], "responses": [ids], "attention_mask": [[1] * (len(ids) + 1)]}
    reported = {**row, "__num_turns__": 2, "tool_extra_fields": {"global_steps": 1}}
    data = DataProto(
        batch=TensorDict({k: torch.tensor(v) for k, v in tensors.items()}, batch_size=1),
        non_tensor_batch={key: np.array([value], dtype=object) for key, value in reported.items()},
    )

    async def scored():
        return await load_reward_manager(config, tokenizer).run_single(data)

    found = asyncio.run(scored())
    assert found["reward_score"] == 1.05
    assert found["reward_extra_info"]["acc"] == 1.0


@pytest.mark.slow
def test_verls_names_are_the_overrides(exported):
    folder, made = exported
    assert made.prompts == {"train": 4, "validation": 1}
    assert made.overrides == {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "validation.parquet"),
        "data.max_prompt_length": 512,
        "reward.custom_reward_function.path": str(folder / "reward.py"),
    }


@given(st.sampled_from([RIGHT, WRONG, BARE, "", "<answer>2", "\\boxed{2}"]), st.integers(0, 3))
def test_a_score_is_the_reward_offline_to_the_bit(tmp_path_factory, response, index):
    folder = tmp_path_factory.getbasetemp() / "shared_export"
    if not folder.exists():
        data = folder.parent / "shared_export.jsonl"
        data.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        document = {"dataset_path": str(data), "export_path": "e.parquet", "process": [
            "prompt_template_mapper", {"policy_rollout_mapper": {"n": 2}}, VERIFY, FORM, SUM]}  # fmt: skip
        (folder.parent / "shared_export.yaml").write_text(yaml.safe_dump(document))
        export_verl(load(folder.parent / "shared_export.yaml"), folder)
    steps = split_recipe(load(folder.parent / "shared_export.yaml")).after
    info = pq.read_table(folder / "train.parquet")["extra_info"][index].as_py()
    row = pa.table({"prompt_id": ["p"], "reference": [ROWS[index]["answer"]], "response": [response]})  # fmt: skip
    offline = run_in_memory([step.operator for step in steps], row)
    assert RowReward(folder)(response, info)["score"] == offline["reward"][0].as_py()


@pytest.mark.slow
def test_threads_score_at_once(exported):
    reward = RowReward(exported[0])
    infos = pq.read_table(exported[0] / "train.parquet")["extra_info"].to_pylist()
    requested = [(f"<answer>{k % 5}</answer>", infos[k % 4]) for k in range(64)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: reward(*pair)["acc"], requested))
    assert found == [float(k % 5 == k % 4 + 1) for k in range(64)]


@pytest.mark.slow
def test_the_folder_can_be_moved(exported, tmp_path):
    shutil.move(exported[0], tmp_path / "elsewhere")
    info = pq.read_table(tmp_path / "elsewhere" / "train.parquet")["extra_info"][1].as_py()
    code = "import json, sys; from reward import compute_score; print(compute_score('', sys.argv[1], '', json.loads(sys.argv[2]))['score'])"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, RIGHT, json.dumps(info)],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    assert done.stdout == "1.05\n"


def test_a_folder_with_operators_of_the_recipes_own_can_be_moved_too(recipe, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "short.py").write_text(
        "import numpy as np\nfrom rejuice.operators import Mapper, component, component_columns\n\n\n"
        "class ShortRewardMapper(Mapper):\n    def reads(self):\n        return ('response',)\n\n"
        "    def writes(self):\n        return component_columns('short')\n\n"
        "    def map(self, table):\n"
        "        return component('short', np.full(table.num_rows, 0.25))\n"
    )
    total = {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "short": 1.0}}}
    requested = recipe(VERIFY, "short_reward_mapper", total, custom_operator_paths=[str(tmp_path / "mine")])  # fmt: skip
    export_verl(requested, tmp_path / "export")
    export_verl(requested, tmp_path / "export", overwrite=True)  # Over an earlier one.
    shutil.move(tmp_path / "export", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "mine")
    document = yaml.safe_load((tmp_path / "elsewhere" / "scoring.yaml").read_text())
    assert document["custom_operator_paths"] == ["operators/1/short.py"]
    info = pq.read_table(tmp_path / "elsewhere" / "train.parquet")["extra_info"][1].as_py()
    assert RowReward(tmp_path / "elsewhere")(RIGHT, info)["score"] == 1.25


@pytest.mark.slow
def test_a_folder_with_a_reward_function_can_be_moved_too(recipe, tmp_path):
    files = {
        "mine.py": "import beside\ndef compute_score(response): return beside.VALUE\n",
        "beside.py": "def __getattr__(name):\n    from used.part import VALUE\n    return VALUE\n",
        "used/part.py": "VALUE = 0.25\n",
        "unused.py": "",
        "data/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    step = {"function": f"{tmp_path}/code/mine.py:compute_score"}
    again = {**step, "component": "again"}
    total = {"reward_sum_mapper": {"weights": {"function": 1.0, "again": 2.0}}}
    requested = recipe({"reward_function_mapper": step}, {"reward_function_mapper": again}, total)
    export_verl(requested, tmp_path / "export")
    export_verl(requested, tmp_path / "export", overwrite=True)  # Over an earlier one.
    shutil.move(tmp_path / "export", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "code")
    made = tmp_path / "elsewhere" / "functions"
    copied = sorted(str(each.relative_to(made)) for each in made.rglob("*.py"))
    assert copied == ["1/beside.py", "1/mine.py", "1/used/part.py"]
    assert str(tmp_path) not in (tmp_path / "elsewhere" / "scoring.yaml").read_text()
    info = pq.read_table(tmp_path / "elsewhere" / "train.parquet")["extra_info"][1].as_py()
    assert RowReward(tmp_path / "elsewhere")(RIGHT, info)["score"] == 0.75
    close_pools()


def test_a_policy_that_judges_is_not_for_stock_verl(recipe, tmp_path):
    judged = (
        {"policy_rollout_mapper": {"n": 2, "task": "verify"}},
        "judgement_reward_mapper",
        {"reward_sum_mapper": {"task": "verify", "weights": {"verification": 1.0}}},
    )
    requested = recipe(VERIFY, FORM, SUM, "self_verification_mapper", *judged)
    with pytest.raises(RecipeError) as caught:
        export_verl(requested, tmp_path / "export")
    assert str(caught.value) == (
        f"{requested.path}: the policy judges its own answers, which only `rejuice train` does; "
        "leave out self_verification_mapper and what follows it"
    )


def test_agents_are_not_for_stock_verl(recipe, tmp_path):
    requested = recipe(VERIFY, SUM)
    text = requested.path.read_text().replace("policy_rollout_mapper", "agent_rollout_mapper")
    requested.path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        export_verl(load(requested.path), tmp_path / "export")
    assert str(caught.value) == (
        f"{requested.path}: agent_rollout_mapper samples trajectories to train on, which only "
        "`rejuice train` does; sample one response to each prompt, by policy_rollout_mapper"
    )


def test_credit_of_ones_own_is_left_out_only_if_one_says_so(recipe, tmp_path):
    code = """
from rejuice.operators import Mapper


class OwnAdvantageMapper(Mapper):
    \'\'\'An advantage.\'\'\'

    def reads(self):
        return ("reward",)

    def writes(self):
        return ("advantage",)

    def map(self, table):
        return {"advantage": table["reward"].combine_chunks()}
"""
    (tmp_path / "own.py").write_text(code)
    requested = recipe(
        VERIFY,
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
        "own_advantage_mapper",
        custom_operator_paths=[str(tmp_path / "own.py")],
    )
    found = "own_advantage_mapper gives credit, which stock verl computes itself"
    with pytest.raises(RecipeError, match=found):
        export_verl(requested, tmp_path / "export")
    export_verl(requested, tmp_path / "export", leave_out=["own_advantage_mapper"])
    assert (tmp_path / "export" / "train.parquet").exists()


def test_what_cannot_score_one_response_is_refused_in_one_line(recipe, tmp_path):
    requested = recipe(
        VERIFY,
        "diversity_reward_mapper",
        "truncated_response_filter",
        {"column_range_filter": {"column": "level", "min": 1}},
        "pass_rate_filter",
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "diversity": 0.5}}},
        "grpo_advantage_mapper",
        rows=[{**row, "level": 1} for row in ROWS],
    )
    with pytest.raises(RecipeError) as caught:
        export_verl(requested, tmp_path / "export")
    assert str(caught.value) == (
        "verl's reward function is given one response at a time: diversity_reward_mapper looks at "
        "more than one response, truncated_response_filter drops rows, column_range_filter drops "
        "rows, pass_rate_filter looks at more than one response; run the recipe and export the "
        "prompts that its filters leave, or give --leave_out diversity_reward_mapper --leave_out truncated_response_filter "
        "--leave_out column_range_filter --leave_out pass_rate_filter, or train with "
        "`rejuice train`, which runs every step"
    )
    assert not (tmp_path / "export").exists()
    gone = ("diversity_reward_mapper", "truncated_response_filter", "column_range_filter", "pass_rate_filter")  # fmt: skip
    made = export_verl(requested, tmp_path / "export", gone)
    assert [step.name for step in made.scoring.steps] == [VERIFY, "reward_sum_mapper"]
    assert made.scoring.components == ("diversity",)
    info = pq.read_table(tmp_path / "export" / "train.parquet")["extra_info"][1].as_py()
    assert RowReward(tmp_path / "export")(RIGHT, info)["score"] == 1.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gates": {"accuracy": "mixed_groups_only"}}, "has a gate that looks at the group"),
        ({"on_missing": "group_mean"}, "takes the mean of the group for what is missing"),
        (
            {"weights": {"accuracy": {"from": 1.0, "to": 0.5}}},
            "has a weight that changes from step to step",
        ),
    ],
)
def test_a_sum_that_needs_more_than_a_response_is_refused(recipe, tmp_path, fields, message):
    total = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, **fields}}
    remedy = "train with `rejuice train`, which runs every step"  # Without the sum nothing is left.
    with pytest.raises(RecipeError, match=f": reward_sum_mapper {message}; {remedy}$"):
        export_verl(recipe(VERIFY, total), tmp_path / "export")


COPY = """
from rejuice.operators import Mapper


class CopyMapper(Mapper):
    def reads(self):
        return ("reward_diversity",)

    def writes(self):
        return ("copy",)

    def map(self, table):
        return {"copy": table["reward_diversity"]}
"""
DIVERSITY = {
    "weights": {"accuracy": 1.0, "diversity": {"from": 0.5, "to": 0.3}},
    "gates": {"diversity": "mixed_groups_only"},
}


@pytest.mark.recommended("trainer/export/verl_reward.py", "--leave_out {…}")
@pytest.mark.recommended("trainer/export/verl_reward.py", "train with `rejuice train`")
@pytest.mark.parametrize("given", [(), ("format_reward_mapper",)])
def test_the_options_that_a_refusal_names_are_enough(recipe, tmp_path, given):
    (tmp_path / "copy.py").write_text(COPY)
    steps = (VERIFY, FORM, "diversity_reward_mapper", "copy_mapper", {"reward_sum_mapper": DIVERSITY})  # fmt: skip
    requested = recipe(*steps, custom_operator_paths=[str(tmp_path / "copy.py")])
    with pytest.raises(RecipeError) as caught:
        export_verl(requested, tmp_path / "export", given)
    named = (*given, "diversity_reward_mapper", "copy_mapper")
    flags = " ".join(f"--leave_out {name}" for name in named)
    assert str(caught.value).endswith(f"; give {flags}, or train with `rejuice train`, which runs every step")  # fmt: skip
    made = export_verl(requested, tmp_path / "export", named)
    assert made.scoring.components == ("diversity",)


def test_settings_are_printed_where_hydra_is_not_installed(recipe, tmp_path, monkeypatch):
    for name in [each for each in sys.modules if each.split(".")[0] in ("hydra", "omegaconf")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("hydra", "omegaconf"):
        monkeypatch.setitem(sys.modules, name, None)  # An import fails, as if it were absent.
    folder = tmp_path / "the model's"
    done = CliRunner().invoke(app, ["verl", str(recipe().path), str(folder)])
    assert done.exit_code == 0, done.output
    reward = str(folder / "reward.py").replace("'", "\\'")
    word = f"reward.custom_reward_function.path='{reward}'"
    assert f"  {shlex.quote(word)}\n" in done.output


@example("a\\\n")
@given(st.text(st.sampled_from("ab\\' \"\n{},:=\u00e9"), max_size=9))
def test_words_are_quoted_as_hydra_quotes_them(text):
    from hydra.core.override_parser.types import Quote, QuotedString

    assert override_words({"key": text}) == [
        f"key={QuotedString(text, Quote.single).with_quotes()}"
    ]


def test_a_step_that_reads_what_verl_does_not_tell_is_refused(recipe, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import pyarrow as pa\nfrom rejuice.operators import Mapper\n\n\n"
        "class LongMapper(Mapper):\n    def reads(self):\n        return ('response_token_ids',)\n\n"
        "    def map(self, table):\n        return {}\n"
    )
    requested = recipe(
        VERIFY, "long_mapper", FORM, SUM, custom_operator_paths=[str(tmp_path / "mine.py")]
    )
    with pytest.raises(RecipeError, match="long_mapper reads column 'response_token_ids'"):
        export_verl(requested, tmp_path / "export")


def test_leaving_out_too_much_is_refused(recipe, tmp_path):
    with pytest.raises(RecipeError, match="no reward component is left; leave out less"):
        export_verl(recipe(), tmp_path / "a", (VERIFY, FORM))
    with pytest.raises(RecipeError, match="nothing is left that writes the column reward"):
        export_verl(recipe(), tmp_path / "a", ("reward_sum_mapper",))
    with pytest.raises(RecipeError, match="no step 'format_mapper' to leave out; did you mean"):
        export_verl(recipe(), tmp_path / "a", ("format_mapper",))


def test_a_column_reward_of_the_dataset_is_no_obstacle(recipe, tmp_path):
    requested = recipe()
    table = pa.Table.from_pylist([{**row, "reward": 7.0} for row in ROWS])
    path = tmp_path / "earlier.parquet"  # The export of a run that has scored the rows.
    pq.write_table(table.cast(mark_written(table.schema, ["reward"])), path)
    text = requested.path.read_text().replace(str(tmp_path / "data.jsonl"), str(path))
    requested.path.write_text(text)
    requested = load(requested.path)
    assert export_verl(requested, tmp_path / "export").prompts == {"train": 4}
    info = pq.read_table(tmp_path / "export" / "train.parquet")["extra_info"][1].as_py()
    assert RowReward(tmp_path / "export")(RIGHT, info)["score"] == 1.05
    with pytest.raises(RecipeError, match="nothing is left that writes the column reward"):
        export_verl(requested, tmp_path / "b", ("reward_sum_mapper",))


@pytest.mark.parametrize("on_missing", ["fail", "drop_row", "drop_group"])
def test_a_missing_reward_is_an_error_and_no_number(recipe, tmp_path, on_missing):
    rows = [{**ROWS[0], "answer": "\\frac{"}, *ROWS[1:]]
    total = {"weights": {"accuracy": 1.0}, "on_missing": on_missing}
    export_verl(recipe(VERIFY, {"reward_sum_mapper": total}, rows=rows), tmp_path / "export")
    info = pq.read_table(tmp_path / "export" / "train.parquet")["extra_info"][0].as_py()
    why = "reward_accuracy is missing" if on_missing == "fail" else "no reward for a response to prompt '.*' .missing_component."  # fmt: skip
    with pytest.raises(DataError, match=why):
        RowReward(tmp_path / "export")("<answer>\\frac{1}{2}</answer>", info)


def test_another_export_is_not_taken_for_this_one(recipe, tmp_path):
    export_verl(recipe(), tmp_path / "export")
    info = pq.read_table(tmp_path / "export" / "train.parquet")["extra_info"][1].as_py()
    reward = RowReward(tmp_path / "export")
    assert reward(RIGHT, {**info, "index": 2, "split": "test"})["acc"] == 1.0  # The user's own.
    with pytest.raises(DataError, match=r"prompt 'x' is not in .*export; train on the Parquet"):
        reward(RIGHT, {**info, "prompt_id": "x"})
    with pytest.raises(DataError, match="extra_info has no 'prompt_id'; train on the files in"):
        reward(RIGHT, {"index": 1, "split": "train"})
    (tmp_path / "export" / "train.arrow").unlink()
    with pytest.raises(DataError, match="has no prompts; keep the files of an export together"):
        RowReward(tmp_path / "export")


@pytest.mark.slow
def test_datasets_that_the_recipe_generates_are_written(recipe, tmp_path):
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "held_out")}
    made = export_verl(
        recipe(
            template={"reference_pattern": "#### (.*)"},
            dataset_path=paths["train"],
            generated_datasets={
                paths["train"]: {"type": "arithmetic", "prompts": 3},
                paths["held_out"]: {"type": "arithmetic", "prompts": 2, "split": "validation"},
            },
            train={"validation_path": paths["held_out"]},
        ),
        tmp_path / "export",
    )
    assert made.prompts == {"train": 3, "validation": 2}


@pytest.mark.slow
def test_prompts_that_are_too_long_are_left_out_as_in_training(recipe, tmp_path):
    long = {"question": "1 + 1? " * 200, "answer": "2"}
    made = export_verl(recipe(rows=[*ROWS, long], train={"max_prompt_tokens": 64}), tmp_path / "a")
    assert made.prompts == {"train": 4}
    decisions = pq.read_table(tmp_path / "a" / "train-decisions.parquet")
    assert decisions["reason"].to_pylist() == ["prompt_too_long"]
    assert made.overrides["data.max_prompt_length"] == 64
    assert export_verl(recipe(rows=[*ROWS, long]), tmp_path / "b").prompts == {"train": 5}


def test_verl_gets_the_chat_template_arguments_of_training(recipe_file, tmp_path):
    rollout = {"n": 2, "chat_template_kwargs": {"enable_thinking": False, "date": "3 May"}}
    process = ["prompt_template_mapper", {"policy_rollout_mapper": rollout}, VERIFY, FORM, SUM]
    path = recipe_file(process, rows=ROWS)
    done = CliRunner().invoke(app, ["verl", str(path), str(tmp_path / "export")])
    assert done.output.splitlines()[-4:] == [
        f"  data.train_files={tmp_path}/export/train.parquet",
        "  +data.apply_chat_template_kwargs.enable_thinking=False",
        "  '+data.apply_chat_template_kwargs.date='\"'\"'3 May'\"'\"''",
        f"  reward.custom_reward_function.path={tmp_path}/export/reward.py",
    ]


def test_a_training_run_is_not_written_over(recipe, tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "train.parquet").touch()
    with pytest.raises(RejuiceError, match="holds a training run; give another folder"):
        export_verl(recipe(), tmp_path)


# ------------------------------------------------------------------ datasets

TABLE = pa.table(
    {
        "prompt_id": list("aaabbc"),
        "prompt": [[{"role": "user", "content": name}] for name in "aaabbc"],
        "response": ["x", "y", "z", "u", "v", "w"],
        "reward": [0.5, 1.0, 0.0, 0.3, 0.3, None],
        "verdict": ["wrong_answer", "correct", "wrong_answer", "correct", "correct", None],
    }
)


@pytest.fixture
def curated(tmp_path):
    path = tmp_path / "curated.parquet"
    pq.write_table(TABLE, path)
    return path


def test_datasets_loads_what_was_written(curated, tmp_path):
    from datasets import load_dataset, load_from_disk

    assert export_hf(curated, tmp_path / "hf").rows == 6
    found = load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    assert found.to_list() == TABLE.to_pylist()
    assert load_from_disk(str(tmp_path / "hf" / "arrow")).to_list() == TABLE.to_pylist()


def test_a_card_states_columns_figures_funnel_and_recipe(recipe_file, tmp_path):
    rows = [{"prompt_id": name, "reward": reward} for name, reward in zip("aab", (1.0, 0.0, 0.5), strict=True)]  # fmt: skip
    path = recipe_file(
        [{"column_range_filter": {"column": "reward", "min": 0.2}}], rows=rows, project_name="mine"
    )
    engine.run(load(path))
    export_hf(tmp_path / "out" / "curated.parquet", tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    front, body = card.split("---\n")[1:]
    assert yaml.safe_load(front)["configs"][0]["data_files"] == "data/train.parquet"
    assert body.startswith("\n# mine\n\n2 rows to 2 prompts. Written by rejuice ")
    assert "| `prompt_id` | string |" in body
    assert "| `reward` | 2 | 0.75 | 0.5 | 1 |  |" in body
    assert "| column_range_filter | 3 |  | below_min 1 | 2 |" in body
    recipe = yaml.safe_load(body.split("```yaml\n")[1].split("```")[0])
    assert recipe["process"][0]["column_range_filter"]["min"] == 0.2


def test_a_card_needs_no_recipe(recipe_file, tmp_path):
    path = recipe_file([{"length_filter": {"min": 1}}], rows=[{"response": "x"}])
    engine.run(load(path))
    (tmp_path / "out" / "curated.run" / "recipe.yaml").unlink()  # `dj-process` writes none.
    export_hf(tmp_path / "out" / "curated.parquet", tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "| length_filter | 1 |" in card
    assert "## Recipe" not in card


def test_a_card_says_what_was_left_out(curated, tmp_path):
    export_hf(curated, tmp_path / "hf", Completions())
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "3 completions made of 6 rows to 3 prompts" in card
    assert "`correct_only`: True.\n\nRows left out: wrong 2, ungraded 1." in card
    assert "| `verdict` | 5 | | | | correct 3, wrong_answer 2 |" in card


def test_what_cannot_be_written_is_an_error_and_writes_nothing(curated, tmp_path):
    with pytest.raises(DataError, match="is not empty; give another folder"):
        export_hf(curated, tmp_path)
    with pytest.raises(
        DataError, match=r"nowhere\.parquet does not exist; give a file or a folder"
    ):
        export_hf(tmp_path / "nowhere.parquet", tmp_path / "hf")
    with pytest.raises(DataError, match=r"curated\.parquet: no pair is left of 6 rows"):
        export_hf(curated, tmp_path / "hf", Pairs(min_margin=2.0))
    assert not (tmp_path / "hf").exists()


# ------------------------------------------------------------------ the command


def test_the_command_prints_what_to_give_verl(recipe, tmp_path):
    path = recipe(VERIFY, FORM, "pass_rate_filter", SUM).path
    folder = tmp_path / "export"
    done = CliRunner().invoke(
        app, ["verl", str(path), str(folder), "--leave_out", "pass_rate_filter"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"{folder}: 4 train prompts.",
        "Responses are scored by math_verify_mapper, format_reward_mapper, reward_sum_mapper.",
        "verl also needs data.val_files: set train.validation_path in the recipe, or give a file "
        "of your own.",
        "Give verl:",
        f"  data.train_files={folder}/train.parquet",
        f"  reward.custom_reward_function.path={folder}/reward.py",
    ]
    done = CliRunner().invoke(app, ["hf", str(folder / "train.parquet"), str(tmp_path / "hf")])
    assert done.stdout.splitlines()[-1] == f"{tmp_path / 'hf'}: 4 rows."


def test_the_command_writes_correct_completions_and_counts_the_rest(curated, tmp_path):
    folder = tmp_path / "hf"
    done = CliRunner().invoke(app, ["hf", str(curated), str(folder), "--as", "completions"])
    assert done.stdout.splitlines() == [
        f"{folder}: 3 completions of 6 rows.",
        "Rows left out: wrong 2, ungraded 1.",
    ]
    written = pq.read_table(folder / "data" / "train.parquet")["completion"].to_pylist()
    assert [chat[0]["content"] for chat in written] == ["y", "u", "v"]


def test_the_command_names_columns_that_are_left_out_and_draws_no_bars(curated, tmp_path, capfd):
    table = TABLE.append_column("level", pa.array([1] * len(TABLE)))
    pq.write_table(table, curated)
    folder = tmp_path / "hf"
    done = CliRunner().invoke(app, ["hf", str(curated), str(folder), "--as", "completions"])
    assert done.stdout.splitlines()[-1] == "Columns left out: level."
    assert "Columns left out: level." in (folder / "README.md").read_text()
    done = CliRunner().invoke(app, ["hf", str(curated), str(tmp_path / "all")])
    assert done.stdout.splitlines() == [f"{tmp_path / 'all'}: 6 rows."]
    assert "examples" not in done.stderr + capfd.readouterr().err


@pytest.mark.recommended("pipelines/cli/export.py", "--all is an option of completions")
@pytest.mark.recommended("pipelines/cli/export.py", "add --as completions")
def test_the_command_writes_all_completions_if_that_is_requested(curated, tmp_path):
    words = ["hf", str(curated), str(tmp_path / "hf"), "--as", "completions", "--all"]
    assert CliRunner().invoke(app, words).stdout.splitlines() == [
        f"{tmp_path / 'hf'}: 6 completions of 6 rows.",
        "Completions by verdict: correct 3, wrong 2, ungraded 1.",
    ]


@pytest.mark.recommended(
    "pipelines/cli/export.py",
    "--min_margin, --pairs_per_group and --match_length are options of pairs",
)
@pytest.mark.recommended("pipelines/cli/export.py", "add --as pairs")
def test_the_command_writes_pairs_and_counts_groups_without_one(curated, tmp_path):
    words = ["hf", str(curated), str(tmp_path / "hf"), "--as", "pairs"]
    options = ["--min_margin", "0.5", "--pairs_per_group", "2", "--match_length"]
    assert CliRunner().invoke(app, [*words, *options]).stdout.splitlines() == [
        f"{tmp_path / 'hf'}: 1 pairs of 6 rows.",
        "Rows left out: no_reward 1.",
        "Groups without a pair: equal_rewards 1, no_row_left 1.",
        "1 of 3 groups gave pairs.",
        "Mean length in characters: chosen 1.0, rejected 1.0.",
        "Chosen by verdict: correct 1, wrong 0, ungraded 0.",
    ]
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "`min_margin`: 0.5, `pairs_per_group`: 2, `match_length`: True." in card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all"], "--all is an option of completions; add --as completions"),
        (["--as", "pairs", "--all"], "--all is an option of completions; add --as completions"),
        *(
            (
                words,
                "--min_margin, --pairs_per_group and --match_length are options of pairs; "
                "add --as pairs",
            )
            for words in (
                ["--min_margin", "0.5"],
                ["--as", "completions", "--pairs_per_group", "2"],
                ["--match_length"],
            )
        ),
    ],
)
def test_an_option_of_another_format_is_refused(curated, tmp_path, words, message):
    done = CliRunner().invoke(app, ["hf", str(curated), str(tmp_path / "hf"), *words])
    assert isinstance(done.exception, RejuiceError)
    assert str(done.exception) == message
    assert not (tmp_path / "hf").exists()


@pytest.mark.slow
def test_the_command_loads_nothing_heavy():
    heavy = ("torch", "verl", "trl", "datasets", "transformers", "ray", "pandas")
    code = (
        f"import sys, rejuice.pipelines.cli.export; print([n for n in {heavy} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    )
    assert done.stdout == "[]\n"
