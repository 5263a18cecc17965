"""Operators that other distributions register in Data-Juicer are steps like its own."""

import subprocess
import sys

import pytest

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

FILTER = '''
from pydantic import PositiveInt
from data_juicer.ops import OPERATORS, Filter

OP_NAME = "vowel_count_filter"

@OPERATORS.register_module(OP_NAME)
class VowelCountFilter(Filter):
    """Keep texts with vowels."""

    def __init__(self, least: PositiveInt = 1, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.least = least

    def compute_stats_single(self, sample, context=False):
        sample["__dj__stats__"]["vowels"] = sum(map(sample[self.text_key].count, "aeiou"))
        return sample

    def process_single(self, sample):
        return sample["__dj__stats__"]["vowels"] >= self.least
'''
CODE = """
import pyarrow as pa
from rejuice.operators import RecipeError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.data_juicer import catalogue, steps
assert "vowel_count_filter" in catalogue.names()
assert catalogue.find("vowel_count_filter").kind == "filter"
for fields in ({"least": 0}, {"leats": 1}):
    try: steps.step("vowel_count_filter", fields)
    except RecipeError as error: print(error)
out = run(Recipe(["vowel_count_filter"], pa.table({"text": ["aa", "xyz", "ab"]})))
print(out.table["text"].to_pylist(), out.decisions["reason"].to_pylist())
print(len(steps.step("vowel_count_filter", {}).cache_key_fields()["named files"]))
"""


def test_they_run_as_steps_and_their_fields_are_checked(tmp_path):
    info = tmp_path / "vowels_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vowels-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[data_juicer.ops]\nvowels = vowels\n")
    (tmp_path / "vowels.py").write_text(FILTER)
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.stdout.splitlines() == [
        "field 'least' is 0; input should be greater than 0",
        "unknown field 'leats'; did you mean 'least'?",
        "['aa', 'ab'] ['vowel_count_filter']",
        "1",
    ], done.stderr
