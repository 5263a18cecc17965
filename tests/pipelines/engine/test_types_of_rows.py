"""A resumable operator whose rows do not go together ends in one line; what was paid for stays."""

import pytest

from rejuice.operators import OperatorError
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

GRADER = '''
import pathlib
import numpy as np
import pyarrow as pa
from rejuice.operators import ALL, Change, ResumableOperator

class GraderMapper(ResumableOperator):
    """What it does to the 21st row is in a file."""
    folder: str
    def reads(self): return ALL
    def writes(self): return ("grade",)
    def apply(self, table): return Change({"grade": pa.array([1.0] * table.num_rows)})
    def process_rows(self, table, rows):
        folder = pathlib.Path(self.folder)
        for row in rows:
            name = table["response_id"][row].as_py()
            with (folder / "log").open("a") as log:
                log.write(f"{name}\\n")
            change = Change({"grade": pa.array([1.0])}, notes={"graded": np.int64(1)})
            if name == "response-0007-2":
                change = eval((folder / "how").read_text())
            yield row, change
'''
WHERE = ", at row 21, response_id 'response-0007-2'; see CONTRIBUTING.md, the operator contract"


@pytest.fixture
def recipe_path(recipe_file, rollouts, tmp_path):
    (tmp_path / "grader.py").write_text(GRADER)
    return recipe_file(
        [{"group_size_filter": {"min": 2}}, {"grader_mapper": {"folder": str(tmp_path)}}],
        rollouts(12).to_pylist(),
        custom_operator_paths=[str(tmp_path / "grader.py")],
    )


@pytest.mark.slow
@pytest.mark.parametrize("chunk_rows", [7, 1000])
@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("Change({'grade': pa.array(['good'])})", "gave column 'grade' as string, and before as double"),
        ("Change({'grade': pa.array([None])})", "gave column 'grade' as null, and before as double"),
        ("Change({'grade': pa.array([1])})", "gave column 'grade' as int64, and before as double"),
        ("Change({'grade': pa.array([[1.0]])})", "gave column 'grade' as list<item: double>, and before as double"),
        ("Change({'grade': pa.array([1.0, 2.0])})", "column 'grade' has 2 values for 1 rows"),
        ("Change({'grade': [1.0]})", "gave column 'grade' as a list: see pa.array()"),
        ("Change({'mark': pa.array([1.0])})", "wrote ['mark'], and before ['grade']"),
        ("Change({'grade': pa.array([1.0])}, notes={'graded': 'one'})", "gave note 'graded' as a str, not as a number"),
        ("Change({'grade': pa.array([1.0])}, failed=[0])", "gave failed rows that are no array of whole numbers"),
        ("Change({'grade': pa.array([1.0])}, failed=np.array([1]))", "gave failed rows that are none of the 1"),
    ],
)  # fmt: skip
def test_a_row_unlike_those_before_it(recipe_path, tmp_path, how, found, chunk_rows):
    (tmp_path / "how").write_text(how)
    with pytest.raises(OperatorError) as caught:
        engine.run(load(recipe_path), chunk_rows=chunk_rows)
    right = f"{recipe_path}, line 6, step 2 grader_mapper: grader_mapper {found}{WHERE}"
    assert str(caught.value) == right
    (tmp_path / "how").write_text("change")
    (step,) = engine.run(load(recipe_path), chunk_rows=chunk_rows).steps[1:]
    graded = (tmp_path / "log").read_text().split()
    assert [name for name in graded if graded.count(name) > 1] == ["response-0007-2"] * 2
    assert step.notes == {"graded": len(set(graded))}


def test_a_row_unlike_those_of_the_run_before(recipe_path, tmp_path):
    (tmp_path / "how").write_text("1 / 0")
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        engine.run(load(recipe_path))
    (tmp_path / "how").write_text("Change({'grade': pa.array(['good'])})")
    with pytest.raises(OperatorError, match=r"gave column 'grade' as \w+, and before as "):
        engine.run(load(recipe_path))
