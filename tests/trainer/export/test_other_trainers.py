"""What is written for OpenRLHF and LLaMA-Factory, read as these read it.

Neither is installed here. The readers below are ours: they do what the files that they name do.
"""

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tool_turns import ANSWER, CALL, policy, tool, trajectories
from typer.testing import CliRunner

from rejuice.operators import DataError, RejuiceError
from rejuice.operators.columns import MESSAGES
from rejuice.pipelines.cli.export import app
from rejuice.trainer.export.other_trainers import export_llama_factory
from rejuice.trainer.export.trl_formats import Completions, Pairs

SYSTEM, ASK = {"role": "system", "content": "S"}, {"role": "user", "content": "1 + 1?"}
SHOT = [{"role": "user", "content": "0?"}, {"role": "assistant", "content": "0"}]


def rollouts(*prompts, **columns):
    """Two responses to each prompt, the first of which is right."""
    n = len(prompts)
    kind = pa.string() if isinstance(prompts[0], str) else MESSAGES
    columns = {name: [value for value in values for _ in "xx"] for name, values in columns.items()}
    return pa.table(
        {
            "prompt_id": [f"p{k}" for k in range(n) for _ in "xx"],
            "prompt": pa.array([prompt for prompt in prompts for _ in "xx"], kind),
            "reference": ["2"] * (2 * n),
            "response": ["2", "3"] * n,
            "verdict": ["correct", "wrong_answer"] * n,
            "reward": [1.0, 0.0] * n,
            **columns,
        }
    )


@pytest.fixture
def exported(tmp_path):
    """A factory: what the command prints for these rows, and the lines below `Give ...`."""

    def make(name, form, table, *options):
        path = tmp_path / "rows.parquet"
        pq.write_table(table, path)
        words = [name, str(path), str(tmp_path / "export"), "--as", form, *options]
        done = CliRunner().invoke(app, words)
        if done.exception is not None:
            raise done.exception
        printed, given = done.output.split("Give ")
        return printed, given.split(":\n", 1)

    return make


# ------------------------------------------------------------------ OpenRLHF 0.11.0


def template(messages, add_generation_prompt=False):
    """A chat template."""
    text = "".join(f"[{m['role']}]{m['content']}" for m in messages)
    return text + "[assistant]" * add_generation_prompt


def arguments(lines):
    words = iter(shlex.split(lines))
    alone = ("--data.apply_chat_template", "--data.multiturn")
    return {word: True if word in alone else next(words) for word in words}


def loaded(file, cache):
    """openrlhf/datasets/utils.py, blending_datasets: a Parquet file, by its ending."""
    from datasets import load_dataset

    assert file.endswith(".parquet")
    return load_dataset("parquet", data_files=file, cache_dir=str(cache))["train"]


def read_sft(row, options):
    """openrlhf/datasets/sft_dataset.py: prompt, response, and which messages have a loss."""
    asked = row[options["--data.input_key"]]
    if "--data.multiturn" in options:
        assert "--data.output_key" not in options
        learned = [m["content"] for m in asked if m["role"] == "assistant"]
        prompt = template(asked[:-1], True)
        return prompt, template(asked)[len(prompt) :], learned
    answer = row[options["--data.output_key"]]
    if "--data.apply_chat_template" in options:
        prompt = template(asked, True)
        return prompt, template(asked + answer)[len(prompt) :], None
    return options["--data.input_template"].format(asked), answer, None


def read_pair(row, options):
    """openrlhf/datasets/reward_dataset.py, with a prompt key."""
    prompt, *answers = (row[options[f"--data.{key}_key"]] for key in ("prompt", "chosen", "rejected"))  # fmt: skip
    if "--data.apply_chat_template" not in options:
        return prompt, *answers
    begin = template(prompt, True)
    return begin, *(template(prompt + each)[len(begin) :] for each in answers)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [([SYSTEM, ASK], "[system]S[user]1 + 1?[assistant]"), ("1 + 1? {x}", "1 + 1? {x}")],
)
@pytest.mark.parametrize("form", ["completions", "pairs"])
@pytest.mark.recommended("trainer/export/other_trainers.py", "--data.{…}")
def test_openrlhf_reads_completions_and_pairs(exported, tmp_path, form, prompt, expected):
    printed, (program, lines) = exported("openrlhf", form, rollouts(prompt))
    options = arguments(lines)
    (row,) = loaded(options["--data.dataset"], tmp_path / "cache")
    if form == "completions":
        assert printed == f"{tmp_path}/export: 1 completions of 2 rows.\nRows left out: wrong 1.\n"
        assert program == "openrlhf.cli.train_sft"
        assert read_sft(row, options) == (expected, "2", None)
    else:
        assert program == "openrlhf.cli.train_dpo"
        assert read_pair(row, options) == (expected, "2", "3")


@pytest.mark.recommended("trainer/export/other_trainers.py", "its option is --reward.remote_url")
def test_openrlhf_reads_prompts_and_labels(exported, tmp_path):
    table = rollouts([ASK], [SYSTEM, ASK], datasource=["a", "b"], label=["mine", None])
    printed, (program, lines) = exported("openrlhf", "prompts", table)
    assert printed.splitlines() == [
        f"{tmp_path}/export: 2 prompts of 4 rows.",
        "Columns left out: of single responses: response, verdict, reward.",
        "OpenRLHF also needs a reward: its option is --reward.remote_url.",
    ]
    assert program == "openrlhf.cli.train_ppo_ray"
    options = arguments(lines)
    rows = loaded(options["--data.prompt_dataset"], tmp_path / "cache")
    # openrlhf/datasets/prompts_dataset.py
    assert [template(row[options["--data.input_key"]], True) for row in rows] == [
        "[user]1 + 1?[assistant]", "[system]S[user]1 + 1?[assistant]"]  # fmt: skip
    assert [row[options["--data.label_key"]] for row in rows] == ["2", "2"]
    assert [row.get("datasource", "default") for row in rows] == ["a", "b"]
    assert rows["label"] == ["mine", None]


def test_openrlhf_reads_trajectories_as_plain_chats(exported, tmp_path):
    table = trajectories([policy(CALL), tool(), policy(ANSWER)], [policy(ANSWER)])
    _, (_, lines) = exported("openrlhf", "completions", table)
    options = arguments(lines)
    first, _ = loaded(options["--data.dataset"], tmp_path / "cache")
    assert "--data.apply_chat_template" in options
    prompt, response, learned = read_sft(first, options)
    assert prompt == f"[user]8 * 46?[assistant]{CALL}[user]368[assistant]"
    assert (response, learned) == (ANSWER, [CALL, ANSWER])


# ------------------------------------------------------------------ LLaMA-Factory 0.9.6.dev0


def read_llama_factory(lines):
    """src/llamafactory/data/parser.py and converter.py: prompt, responses and system of each row.

    What it skips with a warning is an error here.
    """
    from datasets import load_dataset

    settings = yaml.safe_load(lines)
    folder = settings["dataset_dir"]
    with open(f"{folder}/dataset_info.json") as file:
        info = json.load(file)[settings["dataset"]]
    assert (info["formatting"], "tags" in info) == ("sharegpt", False)  # So names are the defaults.
    roles = {"human": "user", "gpt": "assistant", "observation": "observation"}
    for row in load_dataset("json", data_files=f"{folder}/{info['file_name']}", cache_dir=f"{folder}/cache")["train"]:  # fmt: skip
        messages, system = row[info["columns"]["messages"]], ""
        if messages[0]["from"] == "system":
            system, *messages = messages[0]["value"], *messages[1:]
        for place, message in enumerate(messages):
            assert message["from"] in (("gpt", "function_call") if place % 2 else ("human", "observation"))  # fmt: skip
        assert len(messages) % 2 == info["ranking"]
        spoken = [(roles[m["from"]], m["value"]) for m in messages]
        if info["ranking"]:
            pair = [row[info["columns"][name]] for name in ("chosen", "rejected")]
            yield spoken, [(roles[m["from"]], m["value"]) for m in pair], system
        else:
            yield spoken[:-1], spoken[-1:], system


@pytest.mark.parametrize("form", ["completions", "pairs"])
def test_llama_factory_reads_completions_and_pairs(exported, form):
    table = rollouts([ASK], [SYSTEM, *SHOT, ASK], [ASK, ASK], [*SHOT])
    printed, (program, lines) = exported("llama_factory", form, table)
    assert program == "llamafactory-cli train, in its YAML"
    assert printed.splitlines()[0].endswith(f"export: 2 {form} of 8 rows.")
    assert printed.splitlines()[-1] == "Left out: not_alternating 2."
    answers = [("assistant", "2"), ("assistant", "3")][: 1 + (form == "pairs")]
    asked = [("user", "1 + 1?")]
    assert list(read_llama_factory(lines)) == [
        (asked, answers, ""),
        ([("user", "0?"), ("assistant", "0"), *asked], answers, "S"),
    ]
    settings = yaml.safe_load(lines)
    assert settings["stage"] == {"completions": "sft", "pairs": "dpo"}[form]
    assert settings.get("mask_history", False) == (form == "completions")  # It has an example.


def test_llama_factory_reads_prompts_that_are_texts(exported):
    _, (_, lines) = exported("llama_factory", "completions", rollouts("1 + 1? “é”"))
    (found,) = read_llama_factory(lines)
    assert found == ([("user", "1 + 1? “é”")], [("assistant", "2")], "")
    assert "mask_history" not in lines


@pytest.mark.recommended("trainer/export/other_trainers.py", "give --as completions")
def test_llama_factory_reads_completions_of_trajectories(exported, tmp_path):
    table = trajectories([policy(CALL), tool(), policy(ANSWER)], [policy(ANSWER)])
    pq.write_table(table, tmp_path / "agents.parquet")
    with pytest.raises(DataError, match="compares single messages; give --as completions"):
        export_llama_factory(tmp_path / "agents.parquet", tmp_path / "export", Pairs())
    _, (_, lines) = exported("llama_factory", "completions", table)
    first, _ = read_llama_factory(lines)
    asked = [("user", "8 * 46?"), ("assistant", CALL), ("user", "368")]
    assert first == (asked, [("assistant", ANSWER)], "")


def test_what_cannot_be_written_is_an_error(exported, tmp_path):
    with pytest.raises(RejuiceError, match="--all is an option of completions; add --as comp"):
        exported("openrlhf", "prompts", rollouts([ASK]), "--all")
    with pytest.raises(DataError, match=r"rows\.parquet: no conversation is left of 1 \(not_alter"):
        exported("llama_factory", "completions", rollouts([ASK, ASK]))
    with pytest.raises(DataError, match=r"rows\.parquet: no pair is left of 2 rows \(below_margin"):
        exported("openrlhf", "pairs", rollouts([ASK]), "--min_margin", "2")
    assert not (tmp_path / "export").exists()
    with pytest.raises(DataError, match="is not empty; give another folder"):
        export_llama_factory(tmp_path / "rows.parquet", tmp_path, Completions())


@pytest.mark.parametrize(
    ("name", "form"),
    [("openrlhf", "completions"), ("llama_factory", "completions"), ("openrlhf", "prompts")],
)
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("images", ["a.png"], r"has pictures in column 'images', which would be lost; leave the"),
        ("prompt", [{"role": "user", "content": [{"type": "image"}]}], "column 'prompt' is list<"),
        ("image", "data:image/png;base64,AA==", r"has pictures in column 'image'"),
        ("image", {"bytes": b"1", "path": None}, r"has pictures in column 'image'"),
        (
            "decoded_image",
            {"bytes": b"1", "path": "a.png"},
            r"has pictures in column 'decoded_image'",
        ),
        ("image_1", [{"bytes": b"1", "path": None}], r"has pictures in column 'image_1'"),
        ("prompt", [{**ASK, "image": "a.png"}], "messages in 'prompt' have a 'image'"),
    ],
)
def test_pictures_are_refused(exported, name, form, column, values, message):
    table = rollouts([ASK])
    changed = pa.array([values] * table.num_rows)
    table = table.drop_columns([column] if column in table.column_names else [])
    with pytest.raises(DataError, match=message):
        exported(name, form, table.append_column(column, changed))


@pytest.mark.parametrize("name", ["openrlhf", "llama_factory"])
@pytest.mark.parametrize("column", [[None] * 2, ["node:20-alpine"] * 2, [[]] * 2, [None, [[]]]])
def test_columns_of_that_name_without_pictures_are_none(exported, name, column):
    table = rollouts([ASK]).append_column("images", pa.array(column))
    assert len(exported(name, "completions", table))
