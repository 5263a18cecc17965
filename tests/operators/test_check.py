"""One bad operator for each promise; `check_operator` must say which one is broken."""

import itertools
import re
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import field_serializer

from rejuice.operators import (
    Change,
    DataError,
    Filter,
    Groups,
    Mapper,
    Operator,
    OperatorError,
    ResumableOperator,
    Scope,
    drop,
)
from rejuice.operators.check import check_operator, run

TABLE = pa.table(
    {
        "prompt_id": ["a", "a", "b", "b", "b", "c"],
        "score": pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        "text": ["u", "v", "w", "x", "y", "z"],
    }
)
CALLS = itertools.count()


def breaks(operator, promise):
    message = f"{operator.name()} {promise}"
    with pytest.raises(OperatorError, match="^" + re.escape(message)) as caught:
        check_operator(operator, TABLE)
    assert caught.value.right == "see CONTRIBUTING.md, the operator contract"


class Scored(Filter):
    """A filter of the scores that keeps every promise."""

    most: float = 4.0
    """Highest score to keep."""

    reasons: ClassVar = {"too_high": "the score is above `most`"}

    def reads(self):
        return ("score",)

    def decide(self, table):
        return drop({"too_high": pc.greater(table["score"], self.most)})


class WholeGroups(Scored):
    """A filter that says it drops whole groups."""

    def drops_within_groups(self):
        return False

    def reads(self):
        return ("prompt_id", "score")


class Doubled(Mapper):
    """A mapper that keeps every promise."""

    def reads(self):
        return ("score",)

    def writes(self):
        return ("double",)

    def map(self, table):
        return {"double": pc.multiply(table["score"], 2)}


class Twice(Operator):
    """Two rows for each."""

    def apply(self, table):
        return Change(parents=np.repeat(np.arange(table.num_rows), 2))


class Highest(Filter):
    """A filter of dataset scope that keeps every promise: drop all but the highest score."""

    scope: ClassVar = Scope.DATASET

    def reads(self):
        return ("score",)

    def decide(self, table):
        best = pc.max(table["score"])
        return drop({"not_best": pc.not_equal(table["score"], best)})


class PerGroup(Filter):
    """A filter of group scope that keeps every promise: drop the first of each group."""

    scope: ClassVar = Scope.GROUP

    def reads(self):
        return ("prompt_id",)

    def decide(self, table):
        return drop({"first": Groups.of(table).position() == 0})


class AddsRow(Operator):
    """One new row without a parent after each group."""

    scope: ClassVar = Scope.GROUP

    def reads(self):
        return ("prompt_id",)

    def apply(self, table):
        groups = Groups.of(table)
        ends = groups.starts_G + groups.sizes_G
        return Change(parents=np.insert(np.arange(table.num_rows), ends, -1))


class RowByRow(ResumableOperator):
    """Two rows for each score of at most 4, last row first, and one without a parent after 2."""

    reasons: ClassVar = {"too_high": "the score is above 4"}

    def reads(self):
        return ("score",)

    def writes(self):
        return ("double",)

    def apply(self, table):
        high = pc.fill_null(pc.greater(table["score"], 4.0), True).to_pylist()
        parents = np.repeat(np.flatnonzero(np.logical_not(np.array(high, bool))), 2)
        double = pc.multiply(table["score"].take(pa.array(parents)), 2).to_pylist()
        if 4.0 in double:
            at = double.index(4.0) + 2
            parents, double = np.insert(parents, at, -1), [*double[:at], None, *double[at:]]
        double = pa.array(double, pa.float64())
        return Change({"double": double}, drop({"too_high": high}), parents)

    def process_rows(self, table, rows):
        for row in reversed(rows):
            yield row, self.apply(table.slice(row, 1))


class RowByRowMapper(ResumableOperator):
    """As `Doubled`, row by row."""

    def reads(self):
        return ("score",)

    def writes(self):
        return ("double",)

    def apply(self, table):
        return Change({"double": pc.multiply(table["score"], 2)})

    def process_rows(self, table, rows):
        for row in rows:
            yield row, self.apply(table.slice(row, 1))


GOOD = [
    Scored(), Doubled(), Twice(), Highest(), PerGroup(), AddsRow(), RowByRow(), RowByRowMapper()
]  # fmt: skip


@pytest.mark.parametrize("good", GOOD)
def test_good_operators_pass_and_their_change_comes_back(good):
    change = check_operator(good, TABLE)
    again = run(good, TABLE)
    assert change.reasons is None or change.reasons.equals(again.reasons)
    assert set(change.columns) == set(good.writes())


class UndeclaredRead(Scored):
    def reads(self):
        return ()


def test_an_undeclared_read():
    breaks(UndeclaredRead(), "fails on the columns it declares to read: KeyError: ")


def test_whole_groups_as_declared():
    check_operator(WholeGroups(most=5.0), TABLE)
    breaks(WholeGroups(most=3.0), "drops some rows of a group and keeps others: see drops_within")


class UndeclaredGroups(PerGroup):
    def reads(self):
        return ()


def test_groups_are_read_from_a_column_too():
    breaks(UndeclaredGroups(), "fails on the columns it declares to read: KeyError: ")


class ListOfValues(Doubled):
    def map(self, table):
        return {"double": [0.0] * table.num_rows}


def test_a_column_that_is_no_array():
    breaks(ListOfValues(), "gave column 'double' as a list: see pa.array()")


class UndeclaredColumn(Doubled):
    def writes(self):
        return ()


def test_an_undeclared_column():
    breaks(UndeclaredColumn(), "wrote ['double'], declared []")


class MissingColumn(Doubled):
    def writes(self):
        return ("double", "triple")


def test_a_declared_column_that_is_not_written():
    breaks(MissingColumn(), "wrote ['double'], declared ['double', 'triple']")


class ReplacesMore(Doubled):
    def replaces(self):
        return ("double", "score")


def test_a_column_that_it_replaces_but_does_not_write():
    breaks(ReplacesMore(), "replaces ['score'], which it does not write")


class UndeclaredRemoval(Operator):
    """Takes a column away without a word."""

    def apply(self, table):
        return Change(without=("text",))


def test_an_undeclared_removal():
    breaks(UndeclaredRemoval(), "took ['text'], declared []")


class ShortColumn(Doubled):
    def map(self, table):
        return {"double": pa.array([1.0])}


def test_a_column_of_the_wrong_length():
    breaks(ShortColumn(), "column 'double' has 1 values for 6 rows")


class FewReasons(Scored):
    def decide(self, table):
        return pa.array(["too_high"])


def test_too_few_reasons():
    breaks(FewReasons(), "gave 1 reasons for 6 rows")


class NumberedReasons(Scored):
    def decide(self, table):
        return pa.array([7] * table.num_rows, pa.int64())


def test_reasons_that_are_no_strings():
    breaks(NumberedReasons(), "gave reasons of type int64, not string")


class Sentence(Scored):
    def decide(self, table):
        return drop({"Too high!": np.ones(table.num_rows, bool)})


def test_a_reason_that_is_no_slug():
    breaks(Sentence(), "reason 'Too high!' is not a slug such as too_short")


class Undeclared(Scored):
    def decide(self, table):
        return drop({"too_low": np.ones(table.num_rows, bool)})


def test_an_undeclared_reason():
    breaks(Undeclared(), "reason 'too_low' is not declared in `reasons`")


class Parents(Operator):
    """Whatever parents and reasons a test wants."""

    rows: tuple[int, ...]
    """The parents."""
    dropped: tuple[int, ...] = ()
    """The rows with a reason."""

    def apply(self, table):
        reasons = drop({"gone": np.isin(np.arange(table.num_rows), self.dropped)})
        return Change(parents=np.array(self.rows, np.int64), reasons=reasons)


@pytest.mark.parametrize("rows", [(1, 0, 2, 3, 4, 5), (0, 1, 2, 3, 4, 6), (-2, 1, 2, 3, 4, 5)])
def test_parents_that_are_no_ascending_rows(rows):
    # On these rows alone: on fewer, as `check_operator` also has them, no such parents fit.
    with pytest.raises(OperatorError, match="parents must ascend and name rows of the input"):
        run(Parents(rows=rows), TABLE)


def test_a_row_that_vanishes_without_a_reason():
    breaks(Parents(rows=(0, 1, 2, 4, 5)), "row 3 must have either children or a reason")


def test_a_row_with_both_children_and_a_reason():
    operator = Parents(rows=(0, 1, 2, 3, 4, 5), dropped=(2,))
    breaks(operator, "row 2 must have either children or a reason")


class Unsteady(Doubled):
    def map(self, table):
        return {"double": pa.array([float(next(CALLS))] * table.num_rows)}


class UnsteadyFilter(Scored):
    def decide(self, table):
        return drop({"too_high": np.full(table.num_rows, next(CALLS) % 2 == 0)})


class UnsteadyParents(Operator):
    """Once more children at each call."""

    def apply(self, table):
        return Change(parents=np.repeat(np.arange(table.num_rows), 1 + next(CALLS)))


def test_another_result_the_second_time():
    breaks(Unsteady(), "column 'double' differs after a second run")
    breaks(UnsteadyFilter(), "reasons differ after a second run")
    breaks(UnsteadyParents(), "parents differ after a second run")


class Forgetful(Scored):
    """What is not a field is lost."""

    _hidden: float = 0.0

    def decide(self, table):
        return drop({"too_high": pc.greater(table["score"], self._hidden)})


def test_state_that_is_not_config():
    operator = Forgetful()
    operator._hidden = 3.0
    # Pickling keeps private attributes; a rebuild from the config does not.
    breaks(operator, "reasons differ after a rebuild from its config")


class LosesState(Forgetful):
    def __getstate__(self):
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {"_hidden": 0.0}}


def test_state_that_pickling_loses():
    operator = LosesState()
    operator._hidden = 3.0
    breaks(operator, "reasons differ after pickling")


def test_an_operator_that_cannot_be_pickled():
    class Local(Scored):
        """Defined where pickle cannot find it."""

    breaks(Local(), "cannot be pickled: ")


class Rounded(Scored):
    """A field that JSON does not hold."""

    @field_serializer("most")
    def _rounded(self, most):
        return round(most)


def test_config_that_json_does_not_hold():
    # The score 2.0 is above 1.5, and not above 2.
    breaks(Rounded(most=1.5), "reasons differ after a rebuild from its config")


class Centred(Doubled):
    """Looks at all rows although its scope says one."""

    def map(self, table):
        mean = pc.mean(table["score"])
        return {"double": pc.subtract(table["score"], pc.fill_null(mean, 0.0))}


class CentredGroups(Centred):
    scope: ClassVar = Scope.GROUP


class FirstOnly(Scored):
    """Drops the first row of every chunk."""

    def decide(self, table):
        return drop({"too_high": np.arange(table.num_rows) == 0})


class FirstGiven(Scored):
    """Speaks only of the first chunk: no reasons at all on the whole."""

    def decide(self, table):
        whole = table.num_rows == TABLE.num_rows
        return None if whole else drop({"too_high": np.ones(table.num_rows, bool)})


class ChunkParents(Operator):
    """Doubles the last row of every chunk."""

    def apply(self, table):
        n = table.num_rows
        return Change(parents=np.append(np.arange(n), np.full(int(n > 0), n - 1)))


def test_a_result_that_depends_on_the_chunk():
    breaks(Centred(), "column 'double' differs after a split at row 1")
    breaks(CentredGroups(), "column 'double' differs after a split at row 2")
    breaks(FirstOnly(), "reasons differ after a split at row 1")
    breaks(FirstGiven(), "reasons differ after a split at row 1")
    breaks(ChunkParents(), "parents differ after a split at row 1")


class ChunkDigest(Highest):
    """Its digest depends on the chunk."""

    def digest(self, table):
        scores = pc.subtract(table["score"], pc.fill_null(pc.min(table["score"]), 0.0))
        return pa.table({"score": scores})


def test_a_digest_that_depends_on_the_chunk():
    breaks(ChunkDigest(), "reasons differ after a split at row 5")


class NeedsRows(Doubled):
    def map(self, table):
        first = table["score"][0].as_py()
        return {"double": pc.multiply(pc.subtract(table["score"], first), 0)}


def test_an_empty_table_that_breaks_it():
    breaks(NeedsRows(), "fails on an empty table: IndexError: ")


class NeedsTwo(Doubled):
    scope: ClassVar = Scope.GROUP

    def reads(self):
        return ("prompt_id", "score")

    def map(self, table):
        if (Groups.of(table).sizes_G == 1).all() and table.num_rows > 1:
            raise ZeroDivisionError("no others to compare with")
        return super().map(table)


def test_one_row_groups_that_break_it():
    breaks(NeedsTwo(), "fails on one-row groups: ZeroDivisionError: no others to compare with")


class NeedsValues(Doubled):
    def map(self, table):
        doubled = [2 * value for value in table["score"].to_pylist()]
        return {"double": pa.array(doubled, pa.float64())}


def test_nulls_that_break_it():
    breaks(NeedsValues(), "fails on nulls: TypeError: unsupported operand type(s) for *")


class RefusesNulls(Doubled):
    def map(self, table):
        if table["score"].null_count:
            raise DataError("column 'score' has nulls", "fill them")
        return super().map(table)


def test_nulls_may_be_refused_in_plain_words():
    check_operator(RefusesNulls(), TABLE)


def test_other_data_may_not_be_refused():
    nulls = TABLE.set_column(1, "score", pa.nulls(6, pa.float64()))
    with pytest.raises(DataError, match=r"^column 'score' has nulls; fill them$"):
        check_operator(RefusesNulls(), nulls)


class Untyped(Doubled):
    """On rows without a value its column has no type."""

    def map(self, table):
        return {"double": pa.array(table["text"].to_pylist())}

    def reads(self):
        return ("text",)


def test_a_column_whose_type_depends_on_the_rows():
    breaks(Untyped(), "column 'double' is string, but null after an empty table")


class LeavesOut(RowByRow):
    def process_rows(self, table, rows):
        yield from ((row, change) for row, change in super().process_rows(table, rows) if row != 2)


class Repeats(RowByRow):
    def process_rows(self, table, rows):
        yield from super().process_rows(table, rows)
        yield from super().process_rows(table, rows[:1])


class DoesAll(RowByRow):
    """Does not check which rows are requested."""

    def process_rows(self, table, rows):
        yield from super().process_rows(table, range(table.num_rows))


class OtherValues(RowByRowMapper):
    def process_rows(self, table, rows):
        for row in rows:
            yield row, Change({"double": pc.multiply(table["score"].slice(row, 1), 3)})


class OtherRows(RowByRowMapper):
    """Does right by all rows, but by their place among those requested."""

    def process_rows(self, table, rows):
        for place, row in enumerate(rows):
            yield row, self.apply(table.slice(place, 1))


class OtherReasons(RowByRow):
    """Declares two reasons, and gives another one row by row."""

    reasons: ClassVar = {**RowByRow.reasons, "other": "no reason at all"}

    def process_rows(self, table, rows):
        for row, change in super().process_rows(table, rows):
            other = pc.if_else(change.reasons.is_valid(), "other", change.reasons)
            yield row, change._replace(reasons=other)


class OtherParents(RowByRow):
    def process_rows(self, table, rows):
        for row, change in super().process_rows(table, rows):
            yield row, change._replace(parents=change.parents[::-1])


class WholeChange(RowByRowMapper):
    """The change to all rows, for each."""

    def process_rows(self, table, rows):
        yield from ((row, self.apply(table)) for row in rows)


class Raises(RowByRowMapper):
    def process_rows(self, table, rows):
        raise ZeroDivisionError("no")


class OfOtherTable(RowByRowMapper):
    """Takes every table for the first one."""

    def process_chunks(self, chunks):
        yield from ((0, row, change) for _, row, change in super().process_chunks(chunks))


class OneTable(RowByRowMapper):
    def process_chunks(self, chunks):
        yield from ((0, *found) for found in self.process_rows(*next(chunks)))


def test_tables_side_by_side_are_checked():
    breaks(OfOtherTable(), "finishes row 0 of table 0, a second time: see process_chunks()")
    breaks(
        OneTable(),
        "leaves out row 0 of table 1 of the 12 that it was asked for: see process_chunks()",
    )


class ReadsMore(RowByRowMapper):
    def process_rows(self, table, rows):
        yield from ((row, Change({"double": table["text"].slice(row, 1)})) for row in rows)


def test_rows_that_were_not_requested():
    breaks(LeavesOut(), "leaves out row 2 of the 6 that it was asked for: see process_rows()")
    breaks(Repeats(), "finishes row 0, a second time: see process_rows()")
    breaks(DoesAll(), "finishes row 4, which it was not asked for: see process_rows()")


def test_rows_that_are_not_what_apply_gives():
    breaks(OtherValues(), "column 'double' differs after processing row 0 alone")
    breaks(OtherRows(), "column 'double' differs after processing row 1 alone")
    breaks(OtherReasons(), "reasons differ after processing row 5 alone")
    breaks(OtherParents(), "parents differ after processing row 1 alone")
    breaks(WholeChange(), "column 'double' has 6 values for 1 rows")


def test_rows_that_fail():
    breaks(Raises(), "fails to process 6 rows one by one: ZeroDivisionError: no")
    breaks(ReadsMore(), "fails to process 6 rows one by one: KeyError: ")


def test_a_table_without_prompts_will_do_for_rows():
    check_operator(Scored(), TABLE.drop_columns(["prompt_id"]))
    check_operator(Highest(), TABLE.drop_columns(["prompt_id"]))


def test_a_table_of_no_rows_will_do():
    for operator in GOOD:
        check_operator(operator, TABLE.slice(0, 0))
