"""Rows as OpenRLHF and LLaMA-Factory read them, and the settings with which they do.

The formats are those of OpenRLHF 0.11.0 (`openrlhf/datasets/`) and LLaMA-Factory 0.9.5
(`src/llamafactory/data/`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...operators import DataError
from ...operators.columns import MESSAGES, is_text
from .rows import as_chats, check_is_empty, prompts_of_dataset, read_rows
from .trajectories import has_trajectories
from .trl_formats import Converted, Format, Pairs


class Written(NamedTuple):
    """A file that was written."""

    what: str  # what it has, such as `pairs`
    count: int  # how many
    rows: int  # of how many rows
    sentences: tuple[str, ...]  # what was left out, and what else there is to know
    used_by: str  # the command or file that takes the settings
    settings: tuple[str, ...]  # with which the trainer reads the file, a line each


def _converted(dataset: Path, form: Format) -> tuple[Converted, bool]:
    """Return rows in a format, and whether they are trajectories."""
    rows = read_rows(dataset)
    try:
        return form.convert(rows, tool_calls=False), has_trajectories(rows)
    except DataError as error:
        raise error.at(str(dataset)) from None


# --- OpenRLHF -------------------------------------------------------------------------


def export_openrlhf(dataset: Path, folder: Path, form: Format | None) -> Written:
    """Write completions, pairs or prompts as a Parquet file for OpenRLHF.

    Args:
        dataset: the export of a run, or other rows.
        folder: where to write; it is empty or does not exist yet.
        form: the format; None: prompts, with all columns that describe them.

    Raises:
        DataError: the folder holds something, the dataset lacks a column, or nothing is left.
    """
    check_is_empty(folder)
    if form is None:
        prompts = prompts_of_dataset(dataset)
        table, name, rows = prompts.table, "prompts", prompts.rows
        sentences = (
            *prompts.sentences(),
            "OpenRLHF also needs a reward: its option is --reward.remote_url.",
        )
        trainer, keys = "train_ppo_ray", ["--data.input_key prompt"]
        if "reference" in table.column_names:
            keys.append("--data.label_key reference")
    else:
        made, agents = _converted(dataset, form)
        table, name, rows, sentences = made.table, form.name, made.rows, tuple(made.sentences())
        if isinstance(form, Pairs):
            trainer, keys = "train_dpo", [
                "--data.prompt_key prompt", "--data.chosen_key chosen",
                "--data.rejected_key rejected",
            ]  # fmt: skip
        elif agents:  # The loss is on the messages of the assistant alone.
            both = zip(table["prompt"].to_pylist(), table["completion"].to_pylist(), strict=True)
            table = pa.table({"messages": pa.array([p + c for p, c in both], MESSAGES)})
            trainer, keys = "train_sft", ["--data.input_key messages", "--data.multiturn"]
        else:
            trainer = "train_sft"
            keys = ["--data.input_key prompt", "--data.output_key completion"]
    if "prompt" not in table.column_names or not is_text(table["prompt"].type):
        keys.append("--data.apply_chat_template")
    elif trainer == "train_sft":  # By default it writes `User:` before the prompt.
        keys.append("--data.input_template '{}'")
    path = folder.resolve() / f"{name}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    file = f"--data.{'prompt_dataset' if form is None else 'dataset'} {shlex.quote(str(path))}"
    used_by = f"openrlhf.cli.{trainer}"
    return Written(name, table.num_rows, rows, sentences, used_by, (file, *keys))


# --- LLaMA-Factory --------------------------------------------------------------------

_SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def export_llama_factory(dataset: Path, folder: Path, form: Format) -> Written:
    """Write completions or pairs in LLaMA-Factory's sharegpt format, and `dataset_info.json`.

    Rows in whose conversation user and model do not take turns are left out as `not_alternating`:
    LLaMA-Factory skips them.

    Args:
        dataset: the export of a run, or other rows.
        folder: where to write; it is empty or does not exist yet.
        form: the format.

    Raises:
        DataError: the folder holds something, the dataset lacks a column, or nothing is left.
    """
    check_is_empty(folder)
    made, agents = _converted(dataset, form)
    ranking = isinstance(form, Pairs)
    if ranking and agents:
        raise DataError(
            f"{dataset} has trajectories, and LLaMA-Factory compares single messages",
            "give --as completions",
        )
    prompts = as_chats(made.table["prompt"]).to_pylist()
    answers = {
        name: [_messages(answer) for answer in made.table[name].to_pylist()]
        for name in made.table.column_names
        if name in ("completion", "chosen", "rejected")
    }
    examples, masked = list[dict[str, Any]](), False
    for row, prompt in enumerate(prompts):
        completion = [] if ranking else answers["completion"][row]
        both = [_said(each) for each in (*prompt, *completion)]
        if _alternates(both, ranking):
            pair = {name: _said(answers[name][row][0]) for name in answers if ranking}
            examples.append({"conversations": both, **pair})
            masked |= not agents and any(each["role"] == "assistant" for each in prompt)
    lost = len(prompts) - len(examples)
    if not examples:
        raise DataError(
            f"{dataset}: no conversation is left of {len(prompts):,} (not_alternating {lost:,})",
            "give prompts that end with the message of a user",
        )
    columns = {"messages": "conversations", **{name: name for name in answers if ranking}}
    info = {
        "file_name": f"{form.name}.jsonl",
        "formatting": "sharegpt",
        "ranking": ranking,
        "columns": columns,
    }
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(each, ensure_ascii=False) for each in examples)
    (folder / f"{form.name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "dataset_info.json").write_text(json.dumps({form.name: info}, indent=2), "utf-8")
    settings = [
        f"stage: {'dpo' if ranking else 'sft'}",
        f"dataset_dir: {json.dumps(str(folder.resolve()), ensure_ascii=False)}",
        f"dataset: {form.name}",
    ]
    if masked and not ranking:  # It would train on the model's messages in the prompts, too.
        settings.append("mask_history: true")
    sentences = (*made.sentences(), *([f"Left out: not_alternating {lost:,}."] if lost else []))
    used_by = "llamafactory-cli train, in its YAML"
    return Written(form.name, len(examples), made.rows, sentences, used_by, tuple(settings))


def _messages(answer: str | list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer


def _said(message: dict[str, str]) -> dict[str, str]:
    """Return a message in the sharegpt format."""
    role = message["role"]
    return {"from": _SPEAKERS.get(role, role), "value": message["content"]}


def _alternates(messages: Sequence[dict[str, str]], ranking: bool) -> bool:
    """Whether user and model take turns, after a system message if any; pairs end with the user."""
    speakers = [message["from"] for message in messages]
    speakers = speakers[1:] if speakers[:1] == ["system"] else speakers
    asks, answers = speakers[::2], speakers[1::2]
    known = {*asks} <= {"human", "observation"} and {*answers} <= {"gpt"}
    return known and len(speakers) > 0 and len(speakers) % 2 == ranking
