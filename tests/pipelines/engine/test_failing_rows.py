"""The message about an operator that fails names the row."""

import errno
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from change_of import change_of

from rejuice.operators import Change, Mapper, OperatorError, Scope
from rejuice.pipelines.cli import main
from rejuice.pipelines.engine.frame import Frame


class RootMapper(Mapper):
    """Write the root of `n`."""

    def reads(self):
        return ("n",)

    def writes(self):
        return ("root",)

    def map(self, table):
        return {"root": pa.array([math.sqrt(n) for n in table["n"].to_pylist()], pa.float64())}


class GroupRootMapper(RootMapper):
    """The same, of complete groups."""

    scope = Scope.GROUP


class SumMapper(RootMapper):
    """Fail on rows that are wrong together only."""

    def map(self, table):
        if sum(table["n"].to_pylist()) > 100:
            raise ValueError("too much")
        return super().map(table)


class EmptyMapper(RootMapper):
    """Fail whatever the rows are."""

    def map(self, table):
        raise ValueError("not yet")


N = [1, 4, 9, -1, 16, -4]


def message(operator, first_row=0, frame=None, **columns):
    table = pa.table({"n": N, **columns})
    with pytest.raises(OperatorError) as raised:
        change_of(operator, frame or Frame.of(table), first_row)
    assert isinstance(raised.value.__cause__, ValueError)
    return raised.value.found.split("), ", 1)[-1]


def test_a_row_without_an_id_is_named_by_its_number_in_the_dataset():
    assert message(RootMapper()) == "at row 4"
    assert message(RootMapper(), first_row=1000) == "at row 1004"


def test_the_numbers_of_rows_are_those_before_any_was_dropped():
    frame = Frame.of(pa.table({"n": N})).after(Change(parents=np.array([0, 2, 4, 5])))
    assert message(RootMapper(), frame=frame) == "at row 6"


def test_a_row_is_named_by_its_response_or_its_prompt():
    prompts, responses = [*"aabbcc"], ["r0", "r1", "r2", "r3", "r4", "r5"]
    assert message(RootMapper(), prompt_id=prompts) == "at row 4, prompt_id 'b'"
    assert (
        message(RootMapper(), prompt_id=prompts, response_id=responses)
        == "at row 4, response_id 'r3'"
    )


def test_of_groups_all_rows_are_named():
    ids = {"prompt_id": [*"aaabbb"], "response_id": [*"uvwxyz"]}
    assert message(GroupRootMapper(), **ids) == "in rows 1 to 6"


def test_rows_that_fail_only_together_are_a_range():
    assert message(SumMapper(), first_row=10, n=[50, 40, 5, 4, 3, 2]) == "in rows 11 to 16"


def test_a_failure_that_is_not_about_a_row_names_none():
    assert re.fullmatch(r"failed with ValueError: not yet \(\S+:\d+\)", message(EmptyMapper()))


MINE = """import pyarrow as pa
from rejuice.operators import Mapper
class RootMapper(Mapper):
    gil_bound = True
    def reads(self): return ("n",)
    def writes(self): return ("root",)
    def map(self, table): return {"root": pa.array([root(n) for n in table["n"].to_pylist()])}
def root(n):
    return n ** 0.5 if n >= 0 else n / 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_names_the_row_and_prints_a_traceback_on_demand(
    workers, recipe_file, tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"n": n} for n in [1] * 30 + [-1]]
    path = recipe_file(["root_mapper"], rows, custom_operator_paths=["mine.py"], np=workers)

    def stderr(*more):
        words = ["rejuice", "run", str(path), "--quiet", "--chunk_rows", "10", *more]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit):
            main.main()
        return capsys.readouterr().err

    line = (
        f"rejuice: {path}, line 4, step 1 root_mapper: failed with ZeroDivisionError: "
        "division by zero (mine.py:9), at row 31\n"
    )
    assert stderr() == line
    *trace, last = stderr("--debug").splitlines(keepends=True)
    assert last == line
    text = "".join(trace)
    assert "in root" in text
    assert "return n ** 0.5 if n >= 0 else n / 0" in text


class FetchMapper(RootMapper):
    """Fail with an error of a library that fetches something, or with one of the disk."""

    number: int | None = None

    def map(self, table):
        if self.number is None:
            raise OSError("\nWe couldn't connect to 'https://h' to load the files.\nCheck it.")
        raise OSError(self.number, "no")


def test_what_could_not_be_fetched_is_not_an_error_of_the_disk():
    table = Frame.of(pa.table({"n": [1, 4]}))
    with pytest.raises(OperatorError) as raised:
        change_of(FetchMapper(), table)
    found = re.sub(r":\d+\)", ":1)", raised.value.found)
    assert found == (
        "failed with OSError: We couldn't connect to 'https://h' to load the files. "
        "(test_failing_rows.py:1)"
    )
    with pytest.raises(OperatorError, match="failed with ConnectionRefusedError"):
        change_of(FetchMapper(number=errno.ECONNREFUSED), table)
    with pytest.raises(OSError, match="28"):
        change_of(FetchMapper(number=errno.ENOSPC), table)
