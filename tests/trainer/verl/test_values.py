"""values.parquet: what steps wrote to every row as sampled, in whatever pieces they ran."""

import numpy as np
import pyarrow as pa
import pytest
from tiny_run import AFTER, run_tiny

from rejuice.operators import Change, Operator, Scope
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.recipe.steps import number_steps
from rejuice.trainer.verl.curation import curate, recorded_steps, values_table


class TwiceMapper(Operator):
    """Each row two times."""

    scope = Scope.ROW

    def reads(self):
        return ()

    def writes(self):
        return ("copy",)

    def apply(self, table):
        parents = np.repeat(np.arange(table.num_rows), 2)
        return Change({"copy": pa.array(np.arange(len(parents)) % 2)}, parents=parents)


class TokensMapper(Operator):
    """Token ids, which no step of ours writes."""

    def reads(self):
        return ()

    def writes(self):
        return ("response_token_ids", "counted")

    def apply(self, table):
        ids = pa.array([[1, 2]] * table.num_rows, pa.list_(pa.int32()))
        return Change({"response_token_ids": ids, "counted": pa.array([2] * table.num_rows)})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """TINY's steps after sampling, and its rows as sampled."""
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder, chunk_rows=None)
    (one,) = open_stored(folder / "curated.parquet").sets
    return number_steps([step.operator for step in one.steps]), one.base(0).table()


def test_pieces_in_any_order_give_the_table_of_the_whole(tiny):
    steps, rollouts = tiny
    whole = values_table(rollouts, steps, curate(steps, rollouts).written)
    pieces = [curate(steps, rollouts.slice(start, 4)) for start in (8, 0, 4)]
    found = values_table(rollouts, steps, [each for piece in pieces for each in piece.written])
    assert found.equals(whole, check_metadata=True)
    assert found.column_names[:2] == ["response_id", "prompt_id"]
    assert not {"response", "prompt"} & set(found.column_names)
    assert found["response_id"].equals(rollouts["response_id"])
    assert found["reward_format"].null_count == 0
    assert found["reward"].is_null().to_pylist() == [False] * 4 + [True] * 4 + [False] * 4
    names = [next(iter(each)) for each in AFTER]
    assert [step.name for step in recorded_steps(found.schema)] == names
    assert set(recorded_steps(found.schema)[1].columns) == {
        "reward_format", "reward_format_missing",
    }  # fmt: skip


def test_token_ids_are_left_out(tiny):
    steps, rollouts = tiny
    steps = number_steps([TokensMapper(), *(step.operator for step in steps)])
    found = values_table(rollouts, steps, curate(steps, rollouts).written)
    assert "response_token_ids" not in found.column_names
    assert found["counted"].to_pylist() == [2] * 12


def test_from_a_step_that_makes_rows_on_nothing_is_recorded(tiny):
    steps, rollouts = tiny
    verify, *rest = (step.operator for step in steps)
    steps = number_steps([verify, TwiceMapper(), *rest])
    found = values_table(rollouts, steps, curate(steps, rollouts).written)
    first, *others = recorded_steps(found.schema)
    assert first.name == "math_verify_mapper"
    assert others == [None] * 6
    assert "copy" not in found.column_names


def test_without_rollouts_there_are_no_rows(tiny):
    steps, _ = tiny
    empty = pa.schema([]).empty_table()
    found = values_table(empty, steps, curate((), empty).written)
    assert (found.num_rows, found.column_names) == (0, ["response_id", "prompt_id"])
    assert len(recorded_steps(found.schema)) == len(steps)


def test_rows_without_ids_are_no_responses(tiny):
    steps, rollouts = tiny
    prompts = rollouts.drop_columns(["response_id"])
    assert curate(steps[:1], prompts).written == ()
