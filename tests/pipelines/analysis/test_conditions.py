"""What is shown of steps with a condition, and figures by `data_source`."""

import pyarrow as pa
import pytest
from command import runner

from rejuice.operators import (
    FormatRewardMapper,
    GrpoAdvantageMapper,
    PolicyAgeFilter,
    RewardSumMapper,
)
from rejuice.pipelines.analysis.figures import (
    SourceFigures,
    set_figures,
    source_figures,
    source_lines,
)
from rejuice.pipelines.analysis.rows import joined_rows, row_table
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import iterate_steps
from rejuice.pipelines.recipe.steps import number_steps

RIGHT = "<think>a</think><answer>1</answer>"
ROWS = [
    {"prompt_id": prompt, "response_id": f"{prompt}{n}", "data_source": source,
     "response": text, "verdict": verdict, "reward_accuracy": float(verdict == "correct")}
    for prompt, source in (("p", "a"), ("q", "b"), ("r", "b"))
    for n, (text, verdict) in enumerate([(RIGHT, "correct"), ("no", "wrong_answer")])
]  # fmt: skip
A = {"data_source": "a"}
STEPS = [
    FormatRewardMapper(where=A),
    RewardSumMapper(weights={"accuracy": 1.0, "format": 1.0}),
    GrpoAdvantageMapper(where=A),
]
PROCESS = [{each.name(): each.model_dump(mode="json")} for each in STEPS]


def rows_of(steps, rows=ROWS):
    base = Frame.of(pa.Table.from_pylist(rows))
    return row_table(base, iterate_steps(number_steps(steps), base))


def test_contributions_are_those_of_rows_that_are_summed():
    table = rows_of(STEPS).table
    assert table["contribution_format"].to_pylist() == pytest.approx([0.1, -0.1, 0, 0, 0, 0])
    some = [STEPS[0], RewardSumMapper(weights={"accuracy": 1.0, "format": 1.0}, where=A)]
    found = rows_of(some).table["contribution_accuracy"].to_pylist()
    assert found == [1.0, 0.0, None, None, None, None]


def test_figures_by_source():
    found = set_figures(rows_of(STEPS), ())
    assert found.sources == {
        "a": SourceFigures(1, 2, 0.5, pytest.approx(0.5)),
        "b": SourceFigures(2, 4, 0.5, 0.5),
    }
    assert found.components["format"].missing == {}
    assert found.sources["b"].prompts == 2
    one = [{**row, "data_source": "a"} for row in ROWS]
    assert set_figures(rows_of(STEPS, one), ()).sources == {}
    many = [{**ROWS[0], "prompt_id": str(n), "data_source": str(n)} for n in range(21)]
    assert set_figures(rows_of(STEPS[:1], many), ()).sources == {}
    none = [{k: v for k, v in row.items() if k != "data_source"} for row in ROWS]
    assert set_figures(rows_of([], none), ()).sources == {}


def test_sources_have_ages_where_training_samples_ahead():
    aged = [{**row, "policy_age": age} for row, age in zip(ROWS, [0, 0, 3, 3, 1, 1], strict=True)]
    found = set_figures(rows_of([*STEPS, PolicyAgeFilter(max_age=2)], aged), ()).sources
    assert {name: (x.policy_age, x.too_old) for name, x in found.items()} == {
        "a": (0.0, 0),
        "b": (2.0, 2),
    }
    assert source_lines(found)[1].endswith("reward 0.500; policy age 2.000, 2 too_old")


def test_sources_of_several_sets_are_those_of_all_their_rows():
    """The same prompts in each, such as those of another training step."""
    once = rows_of(STEPS)
    found = source_figures(joined_rows([once, once]))
    assert found == {
        "a": SourceFigures(2, 4, 0.5, pytest.approx(0.5)),
        "b": SourceFigures(4, 8, 0.5, 0.5),
    }


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def test_report_view_and_explain_of_a_run(rejuice, recipe_file):
    path = recipe_file(PROCESS, ROWS)
    code, out, _ = rejuice("run", path)
    assert (code, "not_applicable" in out, "missing rewards" in out) == (0, False, False)
    sources = [
        "source a: 1 prompts, 2 responses; pass rate 0.500, reward 0.500",
        "source b: 2 prompts, 4 responses; pass rate 0.500, reward 0.500",
    ]
    assert [line for line in out.splitlines() if line.startswith("source ")] == sources
    assert "source" not in rejuice("run", path, "-q")[1]
    export = "out/curated.parquet"
    _, out, _ = rejuice("report", export)
    assert out.splitlines()[-2:] == sources
    assert rejuice("view", export, "--no-open")[0] == 0
    _, out, _ = rejuice("explain", export, "q0")
    assert "01_format_reward_mapper: is not about it, but where data_source is a" in out
    assert "   reward: accuracy 1 x 1\n" in out
    _, out, _ = rejuice("explain", export, "p0")
    assert "   reward: accuracy 1 x 1 + format 1 x 0.1\n" in out


def test_another_condition_is_compared_without_sampling(rejuice, recipe_file):
    path = recipe_file(PROCESS, ROWS)
    rejuice("run", path, "-q")
    _, out, _ = rejuice("whatif", path, "--format_reward_mapper.where={data_source: [a, b]}")
    assert "changed      format_reward_mapper.where.data_source a -> ['a', 'b']" in out
    _, out, _ = rejuice("diff", "out/curated.parquet", "out/curated.parquet")
    assert "0.0% -> 0.0%" in out
