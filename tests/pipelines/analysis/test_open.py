"""Whatever a run has left on file is opened as one thing."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from juicer_run import execute
from tiny_run import AFTER, PROCESS, ROWS, run_tiny, write_tiny

from rejuice.operators import DataError, verifier
from rejuice.operators.cache_key import cache_key_json
from rejuice.operators.verifier import verify_batch
from rejuice.operators.verifier.pool import Verdict
from rejuice.pipelines.analysis.page.rows import page_of
from rejuice.pipelines.analysis.rows import stored_rows
from rejuice.pipelines.analysis.stored import open_stored, steps_after_sampling
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import kept_folder, operator_key
from rejuice.pipelines.recipe.recipe import load


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of TINY, run in chunks of one prompt."""
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder)
    return folder


@pytest.mark.parametrize("name", ["curated.parquet", "curated.run", "tiny.yaml"])
def test_an_export_its_run_folder_and_its_recipe_are_the_same_run(tiny, name):
    stored = open_stored(tiny / name)
    assert (stored.kind, stored.title, stored.points) == ("export", "tiny", ())
    assert stored.report.rows_out == 8
    (one,) = stored.sets
    assert (one.name, one.training_step, one.kind, one.incomplete) == ("", None, "answers", "")
    assert one.recipe.path == tiny / "curated.run" / "recipe.yaml"
    assert one.parts == 3
    assert [step.number for step in one.steps] == [3, 4, 5, 6, 7, 8]
    assert [step.name for step in one.steps] == [next(iter(each)) for each in AFTER]
    assert one.final().num_rows == 8
    assert set(one.decisions()["reason"].to_pylist()) == {"too_easy"}


def test_the_base_has_the_rows_as_sampled(tiny):
    (one,) = open_stored(tiny / "curated.parquet").sets
    texts = [one.base(part).select(["response"])["response"].to_pylist() for part in range(3)]
    assert texts == [row["responses"] for row in ROWS]
    assert "verdict" not in one.base(0).column_names


def test_what_each_step_did_is_as_it_was_committed(tiny):
    (one,) = open_stored(tiny / "curated.parquet").sets
    left = []
    for part in range(one.parts):
        *_, last = one.applied(part)
        left.append(last.after.table())
    final = one.final()
    table = pa.concat_tables([each for each in left if each.num_rows])
    assert table.select(final.column_names).equals(final)
    first = next(one.applied(0))
    assert first.result.change.columns["verdict"].to_pylist()[:2] == ["correct", "correct"]


def test_the_recipe_of_the_run_counts_where_the_command_line_has_changed_it(tmp_path):
    path = write_tiny(tmp_path)
    engine.run(load(path, {"pass_rate_filter.max": "0.4"}))
    (one,) = open_stored(path).sets
    assert one.incomplete == ""
    assert one.steps[3].operator.max == 0.4
    assert one.final().num_rows == 4


def test_the_steps_of_another_recipe_fit_on_the_same_rows(tiny, tmp_path):
    (one,) = open_stored(tiny / "curated.parquet").sets
    other = load(write_tiny(tmp_path), {"pass_rate_filter.max": "0.4"})
    assert [step.name for step in one.fit(other)] == [step.name for step in one.steps]
    assert one.fit(other)[3].operator.max == 0.4


def test_without_its_cache_an_export_has_the_rows_that_are_left_and_why(tmp_path):
    run_tiny(tmp_path)
    shutil.rmtree(tmp_path / ".rejuice")
    (one,) = open_stored(tmp_path / "curated.parquet").sets
    assert one.incomplete == f"the cache of this run, {tmp_path / '.rejuice'}, is gone"
    assert one.parts == 1
    assert one.base(0).num_rows == one.final().num_rows == 8
    assert one.decisions().num_rows == 4
    with pytest.raises(DataError, match="is gone"):
        next(one.applied(0))


def test_a_retry_of_one_export_leaves_another_on_the_same_cache_as_it_is(tmp_path, monkeypatch):
    """The steps are rejuice's own, so that a plan could be made anew: of the run that was retried."""
    late = {"It is 7."}

    def verify(responses, references, **options):
        found = verify_batch(responses, references, **options)
        pairs = zip(responses, found, strict=True)
        return [Verdict("timeout", None) if text in late else verdict for text, verdict in pairs]

    monkeypatch.setattr(verifier, "verify_batch", verify)
    sums = {"weights": {"accuracy": 1.0, "format": 1.0}, "on_missing": "drop_row"}
    recipe = load(write_tiny(tmp_path, [*PROCESS[:6], {"reward_sum_mapper": sums}, PROCESS[7]]))
    one, two = (tmp_path / f"{name}.parquet" for name in ("one", "two"))
    for path in (one, two):
        engine.run(load(recipe.path, {"export_path": str(path)}))
    before = stored_rows(open_stored(two).sets[0]).table
    assert before["verdict"].to_pylist().count("timeout") == 1
    late.clear()
    engine.run(load(recipe.path, {"export_path": str(one)}), retry_missing="math_verify_mapper")
    assert open_stored(two).sets[0].incomplete == ""
    assert stored_rows(open_stored(two).sets[0]).table.equals(before)
    assert "timeout" not in stored_rows(open_stored(one).sets[0]).table["verdict"].to_pylist()


def test_with_other_data_a_run_is_what_it_was_as_far_as_it_is_on_file(tmp_path):
    """What was read of JSON lines is in the cache; columns of Parquet are read in place."""
    run_tiny(tmp_path)
    before = stored_rows(set_of(tmp_path)).table
    data = tmp_path / "data.jsonl"
    data.write_text(data.read_text().replace("What is 5", "How much is 5"))
    assert stored_rows(set_of(tmp_path)).table.equals(before)
    data.unlink()
    assert set_of(tmp_path).incomplete
    assert set_of(tmp_path).final().num_rows == 8
    data = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(list(ROWS)), data)
    run_tiny(tmp_path, chunk_rows=None, dataset_path=str(data))
    assert set_of(tmp_path).incomplete == ""
    pq.write_table(pa.Table.from_pylist(list(ROWS[::-1])), data)
    assert set_of(tmp_path).incomplete.startswith("the dataset of the run")


def set_of(folder):
    (one,) = open_stored(folder / "curated.parquet").sets
    return one


@pytest.mark.parametrize("suffix", ["arrow", "jsonl"])
def test_exports_of_other_formats(tmp_path, suffix):
    run_tiny(tmp_path, export_path=str(tmp_path / f"curated.{suffix}"))
    for name in (f"curated.{suffix}", "curated.run"):
        (one,) = open_stored(tmp_path / name).sets
        assert one.final()["response"].to_pylist()[:2] == [r"\boxed{7}", "It is 7."]


def test_a_run_that_left_nothing(tmp_path):
    process = [*PROCESS[:5], {"pass_rate_filter": {"min": 0.95, "max": 0.98}}]
    for name in ("parquet", "jsonl"):
        run_tiny(tmp_path, process, export_path=str(tmp_path / f"{name}.{name}"))
        (one,) = open_stored(tmp_path / f"{name}.{name}").sets
        assert one.final().num_rows == 0
        assert one.decisions().num_rows == 12


@pytest.mark.slow
def test_an_export_of_dj_process_has_the_rows_that_are_left(tmp_path):
    path = write_tiny(
        tmp_path, np=1, open_monitor=False, use_cache=False, ds_cache_dir=str(tmp_path / "cache"),
        export_path=str(tmp_path / "out" / "curated.parquet"),
    )  # fmt: skip
    path = path.rename(tmp_path / "recipe.yaml")
    execute(path)
    stored = open_stored(tmp_path / "out" / "curated.parquet")
    (one,) = stored.sets
    assert one.incomplete == "dj-process saves no commits"
    assert [step.name for step in one.steps] == [next(iter(each)) for each in AFTER]
    assert one.base(0).num_rows == one.final().num_rows == 8
    assert one.decisions().num_rows == 4


def test_what_is_no_stored_run_is_reported_in_one_line(tmp_path):
    with pytest.raises(DataError, match=r"gone\.parquet does not exist; give an export"):
        open_stored(tmp_path / "gone.parquet")
    with pytest.raises(DataError, match=r"is not a stored run; give an export, its \.run folder"):
        open_stored(tmp_path)
    path = write_tiny(tmp_path)
    with pytest.raises(DataError, match=r"tiny\.yaml has not been run; `rejuice run .*tiny\.yaml"):
        open_stored(path)


def test_without_a_step_that_samples_every_step_counts(tmp_path):
    steps = load(write_tiny(tmp_path)).steps
    assert steps_after_sampling(steps[2:]) == steps[2:]
    assert steps_after_sampling(steps[:2]) == ()


def test_the_key_of_an_operator_is_the_one_under_which_its_results_are_kept(tmp_path):
    steps = load(write_tiny(tmp_path)).steps
    for step in steps:
        name = kept_folder(tmp_path, step.operator).name
        assert name == f"kept-{step.operator.name()}-{operator_key(step.operator)}"
        same = type(step.operator).model_validate(step.operator.model_dump(mode="json"))
        assert operator_key(same) == operator_key(step.operator)
        assert cache_key_json(same) == cache_key_json(step.operator)
    keys = {operator_key(step.operator) for step in steps}
    assert len(keys) == len(steps)
    changed = load(tmp_path / "tiny.yaml", {"pass_rate_filter.max": "0.4"}).steps[5].operator
    assert operator_key(changed) not in keys


def test_a_dataset_that_has_another_file_since_shows_the_rows_that_are_left(tmp_path):
    rows = pa.table({"prompt_id": ["a", "a"], "response": ["4", "5"], "reference": ["4", "4"]})
    (tmp_path / "data").mkdir()
    pq.write_table(rows, tmp_path / "data" / "a.parquet")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"dataset_path: {tmp_path}/data\nexport_path: {tmp_path}/out.parquet\n"
        "process: [math_verify_mapper]\n"
    )
    engine.run(load(recipe))
    pq.write_table(rows, tmp_path / "data" / "b.parquet")
    (one,) = open_stored(tmp_path / "out.parquet").sets
    assert "has changed since" in one.incomplete
    assert one.final().num_rows == 2


def test_a_page_leaves_out_columns_that_are_no_texts(tmp_path):
    rows = {"prompt_id": ["a", "a"], "response": ["4", "5"], "reference": ["4", "4"]}
    pq.write_table(
        pa.table({**rows, "image": [b"\x89PNG\xff", b"\xff\xd8"]}), tmp_path / "a.parquet"
    )
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"dataset_path: {tmp_path}/a.parquet\nexport_path: {tmp_path}/out.parquet\n"
        "process: [math_verify_mapper]\n"
    )
    engine.run(load(recipe))
    shown = page_of([(None, open_stored(tmp_path / "out.parquet"))])
    assert "image" not in {column.name for column in shown.sets[0].columns}
