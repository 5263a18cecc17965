"""Trajectories of agents as chats: what the model wrote, its tool calls, and what these gave."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...operators import RejuiceError
from ...operators.agents.flow import build_tools
from ...operators.agents.runner import functions_of
from ...operators.agents.tool import Tool, described
from ...operators.agents.trajectory import POLICY, TOOL, Turn, turns_of
from ...operators.columns import MESSAGES, is_list
from ...operators.groups import Array
from ...operators.json_text import json_objects
from ...operators.mapper.agent_rollout_mapper import AgentRolloutMapper
from ...pipelines.dataset.files import run_folder
from ...pipelines.recipe.recipe import load_without_code

_CALL_BEGINS, _CALL_ENDS = (
    re.compile(r"\s*(<tool_call>\s*)?$"),
    re.compile(r"\s*(</tool_call>)?\s*"),
)


TOOL_MESSAGES = pa.list_(pa.json_())
"""Chats in the format of OpenAI's API, but for arguments of calls, which are objects, as TRL wants
them. A message is JSON, so that it has no keys but its own: some chat templates look for them."""


def has_trajectories(rows: pa.Table) -> bool:
    """Whether rows are trajectories: a dataset may have a column `turns` of its own."""
    if "turns" not in rows.column_names or not is_list(kind := rows["turns"].type):
        return False
    fields = kind.value_type
    return pa.types.is_struct(fields) and {each.name for each in fields} == set(Turn._fields)


class TrajectoryChats(NamedTuple):
    texts: pa.Array  # string[N]: the messages after the prompt, as JSON; null if there are none
    left_out: dict[str, Array]  # which rows are no chat, each bool[N], by reason


def chats_of(turns: pa.ChunkedArray, *, tool_calls: bool) -> TrajectoryChats:
    """Trajectories as chats.

    A turn of the policy is a message of the assistant with the text as it was sampled. If the text
    ends with the call of the tool that was called, as JSON, the call is in `tool_calls` instead,
    and its observation is a message of the tool. Any other observation is a message of the user.
    What follows the last turn of the policy is left out. Rows without a turn of it are left out as
    `no_turn`, those in which another model took part, which has no role in a chat, as
    `frozen_model`.
    """
    texts = list[str | None]()
    reasons = {"no_turn": np.zeros(len(turns), bool), "frozen_model": np.zeros(len(turns), bool)}
    for row, cell in enumerate(turns):  # Turns have token ids: one row at a time is in memory.
        found = turns_of(cell.as_py() or ())
        messages = _messages(found, tool_calls)
        reasons["frozen_model"][row] = not {turn.role for turn in found} <= {POLICY, TOOL}
        reasons["no_turn"][row] = not messages
        texts.append(json.dumps(messages) if messages else None)
    return TrajectoryChats(pa.array(texts, pa.string()), reasons)


def chats_from(texts: pa.ChunkedArray | pa.Array, *, tool_calls: bool) -> pa.Array:
    chats = [json.loads(text) for text in texts.to_pylist()]
    if not tool_calls:
        return pa.array(chats, MESSAGES)
    written = [[json.dumps(message) for message in chat] for chat in chats]
    return pa.array(written, pa.list_(pa.string())).cast(TOOL_MESSAGES)


def has_calls(table: pa.Table) -> bool:
    columns = [table[name] for name in table.column_names if table[name].type == TOOL_MESSAGES]
    chats = (chat for column in columns for chat in column.to_pylist())
    return any("tool_calls" in json.loads(message) for chat in chats for message in chat)


def _messages(turns: Sequence[Turn], tool_calls: bool) -> list[dict[str, Any]]:
    messages = list[dict[str, Any]]()
    for turn in turns:
        if turn.role == POLICY:
            messages.append({"role": "assistant", "content": turn.text or ""})
            continue
        last = messages[-1] if messages else {}
        found = None
        if tool_calls and last.get("role") == "assistant" and "tool_calls" not in last:
            found = _call(last["content"], turn)
        if found is None:
            messages.append({"role": "user", "content": turn.observation or ""})
        else:
            messages[-1] = {"role": "assistant", **found}
            messages.append({"role": "tool", "name": turn.tool, "content": turn.observation or ""})
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return messages


def _call(text: str, turn: Turn) -> dict[str, Any] | None:
    """Content and tool calls of a text that ends with the call of a turn; else None."""
    found = json_objects(text)
    if not found or not _CALL_ENDS.fullmatch(text, found[-1].end):
        return None
    fields, _, begin = found[-1]
    name = fields.get("tool", fields.get("name"))
    given = fields.get("arguments", fields.get("parameters", {}))
    arguments = _object(turn.arguments)
    if arguments is None or name != turn.tool or arguments not in (given, _object(given)):
        return None
    function = {"name": name, "arguments": arguments}
    return {
        "content": _CALL_BEGINS.sub("", text[:begin]),
        "tool_calls": [{"type": "function", "function": function}],
    }


def _object(text: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tools_of(dataset: Path) -> str | None:
    """The tools of the run that wrote an export, as JSON in the format of OpenAI's API.

    None: there is no recipe, they are in files of the recipe's own, or a server has to be asked.
    """
    path = run_folder(dataset) / "recipe.yaml"
    if not isinstance(path, Path) or not path.exists():
        return None
    try:
        steps = load_without_code(path).steps
        agents = [s.operator for s in steps if isinstance(s.operator, AgentRolloutMapper)]
        tools = build_tools(agents[0].tools) if len(agents) == 1 else ()
    except RejuiceError:
        return None
    if not tools or any(type(tool).functions is not Tool.functions for tool in tools):
        return None
    return json.dumps([described(each) for each in functions_of(tools)])
