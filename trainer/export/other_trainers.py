"""Rows as OpenRLHF and LLaMA-Factory read them, and the settings with which they do.

The formats are those of OpenRLHF 0.11.0 (`openrlhf/datasets/`) and LLaMA-Factory 0.9.6.dev0
(`src/llamafactory/data/`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ...operators import DataError
from ...operators.chats import check_chats
from ...operators.columns import MESSAGES, is_text
from ...pipelines.dataset.files import filled
from .rows import as_chats, prompts_of_dataset, read_rows
from .trajectories import has_trajectories
from .trl_formats import Format, Pairs, converted, pictures

_Conversation: TypeAlias = list[dict[str, str]]


class TrainerFiles(NamedTuple):
    what: str  # what it has, such as `pairs`
    size: int  # how many
    rows: int  # of how many rows
    sentences: tuple[str, ...]  # what was left out, and what else there is to know
    used_by: str  # the command or file that takes the settings
    settings: tuple[str, ...]  # with which the trainer reads the file, a line each


def _read_texts(dataset: Path) -> pa.Table:
    rows = read_rows(dataset)
    _check_texts(dataset, rows)
    return rows


def _check_texts(dataset: Path, rows: pa.Table) -> None:
    """Refuse pictures, and other prompts that are no texts."""
    for name in pictures(rows):
        what = f"{dataset} has pictures in column '{name}', which would be lost"
        raise DataError(what, "leave the column out, or export it with `export hf`")
    if "prompt" in rows.column_names and not is_text(rows["prompt"].type):
        check_chats(rows["prompt"])


# --- OpenRLHF -------------------------------------------------------------------------

_PROGRAMS = {"prompts": "train_ppo_ray", "completions": "train_sft", "pairs": "train_dpo"}
_KEYS = {
    "prompts": {"input_key": "prompt"},
    "completions": {"input_key": "prompt", "output_key": "completion"},
    "pairs": {"prompt_key": "prompt", "chosen_key": "chosen", "rejected_key": "rejected"},
}


def export_openrlhf(
    dataset: Path, folder: Path, form: Format | None, *, overwrite: bool = False
) -> TrainerFiles:
    """Write a Parquet file for OpenRLHF; without a form, prompts with all that describes them."""
    name = "prompts" if form is None else form.name
    keys = dict(_KEYS[name])
    if form is None:
        prompts = prompts_of_dataset(dataset)
        _check_texts(dataset, prompts.table)
        table, rows, sentences = prompts.table, prompts.rows, [*prompts.sentences()]
        sentences.append("OpenRLHF also needs a reward: its option is --reward.remote_url.")
        if "reference" in table.column_names:
            keys["label_key"] = "reference"
    else:
        read = _read_texts(dataset)
        made, agents = converted(dataset, read, form, tool_calls=False), has_trajectories(read)
        table, rows, sentences = made.table, made.rows, [*made.sentences()]
        if agents and name == "completions":  # The loss is on messages of the assistant alone.
            both = zip(table["prompt"].to_pylist(), table["completion"].to_pylist(), strict=True)
            table = pa.table({"messages": pa.array([p + c for p, c in both], MESSAGES)})
            keys = {"input_key": "messages", "multiturn": ""}
    if "prompt" not in table.column_names or not is_text(table["prompt"].type):
        keys["apply_chat_template"] = ""
    elif name == "completions":  # By default it writes `User:` before the prompt.
        keys["input_template"] = "{}"
    path = folder.resolve() / f"{name}.parquet"
    with filled(folder, overwrite=overwrite) as into:
        pq.write_table(table, into / path.name)
    file = {"prompt_dataset" if form is None else "dataset": str(path)}
    settings = [
        f"--data.{key} {shlex.quote(value)}" if value else f"--data.{key}"
        for key, value in (file | keys).items()
    ]
    used_by = f"openrlhf.cli.{_PROGRAMS[name]}"
    return TrainerFiles(name, table.num_rows, rows, tuple(sentences), used_by, tuple(settings))


# --- LLaMA-Factory --------------------------------------------------------------------

_SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def export_llama_factory(
    dataset: Path, folder: Path, form: Format, *, overwrite: bool = False
) -> TrainerFiles:
    """Write LLaMA-Factory's sharegpt format, and `dataset_info.json`.

    Rows in whose conversation user and model do not take turns are left out as `not_alternating`:
    LLaMA-Factory skips them.
    """
    read = _read_texts(dataset)
    made, agents = converted(dataset, read, form, tool_calls=False), has_trajectories(read)
    ranking = isinstance(form, Pairs)
    if ranking and agents:
        what = f"{dataset} has trajectories, and LLaMA-Factory compares single messages"
        raise DataError(what, "give --as completions")
    prompts = as_chats(made.table["prompt"]).to_pylist()
    examples = [each for each in _sharegpt(prompts, made.table) if each is not None]
    lost = len(prompts) - len(examples)
    if not examples:
        what = f"{dataset}: no conversation is left of {len(prompts):,} (not_alternating {lost:,})"
        raise DataError(what, "give prompts that end with the message of a user")
    info = {
        "file_name": f"{form.name}.jsonl",
        "formatting": "sharegpt",
        "ranking": ranking,
        "columns": {"messages": "conversations"}
        | {name: name for name in ("chosen", "rejected") if ranking},
    }
    lines = (json.dumps(each, ensure_ascii=False) for each in examples)
    with filled(folder, overwrite=overwrite) as into:
        (into / f"{form.name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (into / "dataset_info.json").write_text(json.dumps({form.name: info}, indent=2), "utf-8")
    settings = [
        f"stage: {'dpo' if ranking else 'sft'}",
        f"dataset_dir: {json.dumps(str(folder.resolve()), ensure_ascii=False)}",
        f"dataset: {form.name}",
    ]
    shown = any(message["role"] == "assistant" for prompt in prompts for message in prompt)
    if shown and not ranking and not agents:
        settings.append("mask_history: true")  # Or it would train on the prompts, too.
    sentences = (*made.sentences(), *([f"Left out: not_alternating {lost:,}."] if lost else []))
    used_by = "llamafactory-cli train, in its YAML"
    return TrainerFiles(form.name, len(examples), made.rows, sentences, used_by, tuple(settings))


def _sharegpt(prompts: Sequence[_Conversation], table: pa.Table) -> Iterator[dict[str, Any] | None]:
    """None for those that LLaMA-Factory would skip."""
    names = [name for name in ("completion", "chosen", "rejected") if name in table.column_names]
    answers = zip(*(table[name].to_pylist() for name in names), strict=True)
    for prompt, row in zip(prompts, answers, strict=True):
        texts = [_spoken(each) for each in row]
        if names == ["completion"]:
            found: dict[str, Any] = {"conversations": [*_spoken(prompt), *texts[0]]}
        else:
            pair = {name: each[0] for name, each in zip(names, texts, strict=True)}
            found = {"conversations": _spoken(prompt), **pair}
        yield found if _alternates(found["conversations"], len(names) > 1) else None


def _spoken(messages: str | _Conversation) -> _Conversation:
    if isinstance(messages, str):
        return [{"from": "gpt", "value": messages}]
    return [
        {"from": _SPEAKERS.get(each["role"], each["role"]), "value": each["content"]}
        for each in messages
    ]


def _alternates(messages: _Conversation, ranking: bool) -> bool:
    """Whether user and model take turns, after a system message if any; pairs end with the user."""
    speakers = [message["from"] for message in messages]
    speakers = speakers[1:] if speakers[:1] == ["system"] else speakers
    asks, answers = speakers[::2], speakers[1::2]
    known = {*asks} <= {"human", "observation"} and {*answers} <= {"gpt"}
    return known and len(speakers) > 0 and len(speakers) % 2 == ranking
