"""`rejuice export verl` of a finished run: the prompts that are left, as verl reads them."""

import json
import shlex

import command
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rejuice.operators import DataError, RecipeError
from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.pipelines.cli.export import app
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load
from rejuice.trainer.export.rows import prompts_of
from rejuice.trainer.export.verl import export_rows, export_verl
from rejuice.trainer.export.verl_reward import RowReward

RIGHT, WRONG = "<answer>2</answer>", "<answer>7</answer>"
SAMPLES = ([RIGHT, WRONG], [WRONG, WRONG], [RIGHT, WRONG, WRONG], [RIGHT, RIGHT], [WRONG, RIGHT])
"""The second and the fourth prompt are dropped: one is too hard, one too easy."""
ROWS = [
    {
        "question": f"{k}: 1 + 1?",
        "answer": "2",
        "samples": samples,
        "data_source": "mine/sums",
        "ability": "math",
        "level": k,
        "extra_info": {"index": 100 + k, "split": "test", "note": f"n{k}"},
        "reward_model": {"style": "rule", "ground_truth": "two", "weight": 0.5},
    }
    for k, samples in enumerate(SAMPLES)
]
BEGIN = ({"prompt_template_mapper": {}}, {"recorded_rollout_mapper": {"columns": ["samples"]}})
GRADE = ("math_verify_mapper", "group_stats_mapper", {"pass_rate_filter": {"min": 0.1, "max": 0.9}})
SUM = {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}}
OF_RESPONSES = "response, response_id, verdict, extracted_answer, reward_accuracy, reward_accuracy_missing, reward, advantage"  # fmt: skip


@pytest.fixture
def finished(recipe_file, tmp_path):
    """A factory of finished runs, which gives their exports."""

    def make(*after, rows=ROWS, **head):
        engine.run(load(recipe_file([*BEGIN, *GRADE, *after], rows=rows, **head)))
        return tmp_path / "out" / "curated.parquet"

    return make


def quoted(key, path):
    """An override whose value has a space, as it is typed in a shell."""
    return shlex.quote(f"{key}='{path}'")


def test_the_prompts_that_are_left_keep_the_columns_of_the_user(finished, tmp_path):
    export = finished(SUM, "grpo_advantage_mapper")
    done = CliRunner().invoke(app, ["verl", str(export), str(tmp_path / "for verl")])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"{tmp_path}/for verl: 3 train prompts of 7 rows.",
        f"Columns left out: of single responses: {OF_RESPONSES}.",
        "Responses are scored by math_verify_mapper, reward_sum_mapper.",
        "verl also needs data.val_files: add --val_rows N, or give a file of your own.",
        "Give verl:",
        f"  {quoted('data.train_files', tmp_path / 'for verl' / 'train.parquet')}",
        f"  {quoted('reward.custom_reward_function.path', tmp_path / 'for verl' / 'reward.py')}",
    ]
    table = pq.read_table(tmp_path / "for verl" / "train.parquet")
    rows, kept = table.to_pylist(), [ROWS[0], ROWS[2], ROWS[4]]
    for row, own in zip(rows, kept, strict=True):
        assert {**row["extra_info"], **own["extra_info"], "prompt_id": row["prompt_id"]} == row["extra_info"]  # fmt: skip
        for name in ("data_source", "ability", "level", "reward_model", "question"):
            assert row[name] == own[name]
        assert own["question"] in row["prompt"][0]["content"]
    assert [row["pass_rate"] for row in rows] == [0.5, 1 / 3, 0.5]
    reward = RowReward(tmp_path / "for verl")
    scores = [reward(text, rows[1]["extra_info"])["score"] for text in (RIGHT, WRONG)]
    assert scores == [1.0, 0.0]


def test_what_the_user_does_not_say_is_added(tmp_path):
    table = pa.table({"prompt": ["1 + 1?", "2 + 2?"], "reference": ["2", None], "reward": [0.5, 0.7]})  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    made = export_rows(tmp_path / "rows.parquet", tmp_path / "export")
    first, second = pq.read_table(tmp_path / "export" / "train.parquet").to_pylist()
    assert first["prompt"] == [{"role": "user", "content": "1 + 1?"}]
    assert (first["data_source"], first["ability"], first["reward"]) == ("rejuice", "any", 0.5)
    assert first["reward_model"] == {"style": "rule", "ground_truth": "2"}
    assert second["reward_model"]["ground_truth"] == ""
    assert second["extra_info"] == {"index": 1, "split": "train", "prompt_id": second["prompt_id"]}
    assert next(made.sentences()) == (
        "No reward function: no recipe is stored beside the rows. verl needs "
        "reward.custom_reward_function.path, or a data_source that it knows."
    )
    assert not (tmp_path / "export" / "train.arrow").exists()


def test_a_prompt_is_one_row_of_columns_that_its_rows_share():
    rows = pa.table(
        {
            "prompt_id": ["b", "a", "b", None, "c"],
            "prompt": ["B", "A", "B", "D", None],
            "response": ["1", "2", "3", "4", "5"],
            "reward_model": ["x"] * 5,
            "noise": [float("nan")] * 4 + [0.0],
            "tags": [["u"], ["v"], ["u"], [], []],
            "seconds": [1, 2, 3, 4, 5],
        }
    )
    found = prompts_of(rows)
    assert found.table["prompt"].to_pylist() == ["B", "A"]
    assert found.table.column_names == ["prompt_id", "prompt", "reward_model", "noise", "tags"]
    assert list(found.sentences()) == [
        "Columns left out: of single responses: response; not the same for a prompt: seconds.",
        "Rows left out: without a prompt 2.",
    ]
    with pytest.raises(DataError, match="rows with the same 'prompt_id' have different prompts"):
        prompts_of(rows.set_column(1, "prompt", pa.array(list("BACDE"))))
    with pytest.raises(DataError, match="no prompt is left of 1 rows"):
        prompts_of(rows.slice(4))


def test_columns_of_the_user_and_verification_prompts_are_known_by_what_runs_have_written():
    rows = pa.table(
        {
            "prompt_id": ["a", "a", "b"],
            "prompt": ["A", "A", "is it right?"],
            "response": ["1", "2", None],
            "reward": [5.0, 5.0, None],
            "verdict": ["easy", "easy", None],
            "task": ["generate", "generate", "verify"],
        }
    )
    found = prompts_of(rows, {"prompt_id", "prompt", "response", "task"})
    assert found.table.to_pylist() == [
        {"prompt_id": "a", "prompt": "A", "reward": 5.0, "verdict": "easy", "task": "generate"}
    ]
    assert list(found.sentences())[1:] == ["Rows left out: verification prompts 1."]
    assert prompts_of(rows).table["prompt"].to_pylist() == ["A", "is it right?"]


@pytest.mark.recommended("trainer/export/verl.py", "--val_rows N")
@pytest.mark.recommended("trainer/export/verl.py", "--val_rows {…} of")
def test_prompts_are_held_out_for_validation(finished, tmp_path):
    words = ["verl", str(finished(SUM)), str(tmp_path / "export"), "--val_rows", "1"]
    for more in ([], ["--overwrite"]):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.output.startswith(f"{tmp_path}/export: 2 train prompts, 1 validation prompts of 7")  # fmt: skip
    assert f"  data.val_files={tmp_path}/export/validation.parquet" in done.output
    (row,) = pq.read_table(tmp_path / "export" / "validation.parquet").to_pylist()
    assert RowReward(tmp_path / "export")(RIGHT, row["extra_info"])["score"] == 1.0
    with pytest.raises(DataError, match="--val_rows 3 of 3 prompts leaves none to train on"):
        export_rows(tmp_path / "out" / "curated.parquet", tmp_path / "b", val_rows=3)
    with pytest.raises(DataError, match="out is not empty; give another folder"):
        export_rows(tmp_path / "out" / "curated.parquet", tmp_path / "out")


@pytest.mark.recommended("pipelines/cli/export.py", "--val_rows is an option of an export")
def test_validation_prompts_of_a_recipe_are_its_own(finished, tmp_path):
    finished(SUM)
    words = ["verl", str(tmp_path / "recipe.yaml"), str(tmp_path / "export"), "--val_rows", "1"]
    assert str(CliRunner().invoke(app, words).exception) == (
        "--val_rows is an option of an export; set train.validation_path in the recipe"
    )


@pytest.mark.recommended("trainer/export/verl.py", "give no --leave_out")
def test_without_a_reward_of_one_response_there_are_prompts_only(finished, tmp_path):
    total = {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "diversity": 0.5}}}
    export = finished("diversity_reward_mapper", total)
    made = export_rows(export, tmp_path / "a")
    assert (made.scoring, made.no_reward) == (None, (
        "verl's reward function is given one response at a time: diversity_reward_mapper looks at "
        "more than one response; give --leave_out diversity_reward_mapper, or train with "
        "`rejuice train`, which runs every step"))  # fmt: skip
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["train.parquet"]
    made = export_rows(export, tmp_path / "a2", ["diversity_reward_mapper", "pass_rate_filter"])
    assert "Responses are scored by math_verify_mapper, reward_sum_mapper, without diversity." in made.sentences()  # fmt: skip
    made = export_rows(finished(), tmp_path / "b")
    assert made.no_reward == "no step writes the column reward"
    with pytest.raises(RecipeError, match="no step 'x' to leave out; the steps are: prompt_temp"):
        export_rows(export, tmp_path / "c", ["x"])
    stored = tmp_path / "out" / "curated.run" / "recipe.yaml"
    stored.write_text(stored.read_text().replace("math_verify_mapper", "not_installed_mapper"))
    made = export_rows(export, tmp_path / "c")
    assert made.no_reward.startswith(f"{stored}, line ")
    assert "not_installed_mapper" in made.no_reward
    with pytest.raises(RecipeError, match="no recipe of the rows that can be read; give no --lea"):
        export_rows(export, tmp_path / "d", ["diversity_reward_mapper"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"extra_info": "a"}, "column 'extra_info' is string, and verl reads a struct; rename it"),
        ({"reward_model": "a"}, "column 'reward_model' is string, and verl reads a struct; rename"),
        (
            {"extra_info": {"prompt_id": "a"}},
            "'extra_info' has a field 'prompt_id', by which the reward finds its row; rename it",
        ),
    ],
)
def test_a_column_that_verl_reads_otherwise_is_an_error(tmp_path, columns, message):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "?", **columns}))
    with pytest.raises(DataError, match=rf"rows\.jsonl: {message}"):
        export_rows(tmp_path / "rows.jsonl", tmp_path / "export")
    with pytest.raises(
        DataError, match=r"no\.jsonl does not exist; give a file or a folder of rows"
    ):
        export_rows(tmp_path / "no.jsonl", tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_recipe_keeps_the_columns_of_its_dataset(recipe_file, tmp_path):
    process = [BEGIN[0], {"policy_rollout_mapper": {"n": 2}}, "math_verify_mapper", SUM]
    own = [{name: row[name] for name in row if name != "samples"} for row in ROWS]
    export_verl(load(recipe_file(process, rows=own)), tmp_path / "export")
    made = pq.read_table(tmp_path / "export" / "train.parquet").to_pylist()
    for row, given in zip(made, own, strict=True):
        assert row["extra_info"].items() >= given.pop("extra_info").items()
        assert row.items() >= given.items()
    assert RowReward(tmp_path / "export")(RIGHT, made[3]["extra_info"])["score"] == 1.0


def test_code_of_the_run_needs_trust(finished, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "from rejuice.operators import Mapper, component, component_columns\n\n\n"
        "class ShortRewardMapper(Mapper):\n    def reads(self):\n        return ('response',)\n\n"
        "    def writes(self):\n        return component_columns('short')\n\n"
        "    def map(self, table):\n        return component('short', [0.25] * table.num_rows)\n"
    )
    total = {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "short": 1.0}}}
    export = finished("short_reward_mapper", total, custom_operator_paths=[str(tmp_path / "mine.py")])  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rejuice = command.runner(monkeypatch, capsys, tmp_path)
    code, _, err = rejuice("export", "verl", export.relative_to(tmp_path), "a")
    typed = "rejuice export verl out/curated.parquet a --trust"
    right = f"if you made it, or trust whoever did, run `{typed}`"
    found = "out/curated.run makes code run: custom_operator_paths"
    assert (code, err) == (2, f"rejuice: {found}; {right}\n")
    code, out, _ = rejuice(*shlex.split(typed)[1:])
    assert code == 0
    assert "scored by math_verify_mapper, short_reward_mapper, reward_sum_mapper." in out
    info = pq.read_table(tmp_path / "a" / "train.parquet")["extra_info"][0].as_py()
    (tmp_path / "mine.py").unlink()
    assert RowReward(tmp_path / "a")(RIGHT, info)["score"] == 1.25


@pytest.mark.slow
def test_verl_loads_the_prompts_and_the_reward(verl, finished, tmp_path):
    from hydra import compose, initialize_config_module
    from transformers import AutoTokenizer
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.utils.dataset.rl_dataset import RLHFDataset

    made = export_rows(finished(SUM), tmp_path / "export", val_rows=1)
    words = [f"{key}={value}" for key, value in made.overrides.items()]
    words += [f"actor_rollout_ref.model.path={EMBEDDED}", f"+data.cache_dir={tmp_path}"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=words)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    train, held_out = (
        RLHFDataset(files, tokenizer, config.data)
        for files in (config.data.train_files, config.data.val_files)
    )
    assert (len(train), len(held_out)) == (2, 1)
    score = get_custom_reward_fn(config)
    for row in (*train, *held_out):
        assert row["raw_prompt"][0]["role"] == "user"
        assert row["data_source"] == "mine/sums"
        assert row["index"] == row["extra_info"]["index"] >= 100
        given = {"data_source": row["data_source"], "ground_truth": "two", "solution_str": RIGHT}
        assert score(**given, extra_info=row["extra_info"])["score"] == 1.0


@pytest.mark.parametrize(
    ("name", "asked", "picture"),
    [("image", "What?", 1), ("images", "What?", [1]), ("image_1", "<image> What?", [1])],
)
def test_pictures_that_verl_would_not_show_are_refused(tmp_path, name, asked, picture):
    one = {"bytes": b"1", "path": None}
    given = [one] if isinstance(picture, list) else one
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": [asked], name: [given]}), path)
    with pytest.raises(
        DataError, match=rf"has pictures in column '{name}', .*; let a column images"
    ):
        export_rows(path, tmp_path / "out")
    pq.write_table(pa.table({"prompt": ["<image> What?"], "images": [[one]]}), path)
    assert export_rows(path, tmp_path / "out").prompts == {"train": 1}
