"""`rejuice view`: what is in the file equals what is on file, and what it refuses."""

import json
import re
import shlex
import shutil
from pathlib import Path

import command
import numpy as np
import page_fixture
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_fixture import RESPONSES, STEPS, Page, recorded

from rejuice.operators import Change
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.pipelines.analysis.page.build import build_page
from rejuice.pipelines.analysis.page.rows import page_of
from rejuice.pipelines.analysis.reward_hacking import audit_signs
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.analysis.written import WrittenValues
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import AppliedStep, StepResult
from rejuice.pipelines.recipe.steps import Step

ASSETS = Path(__file__).resolve().parents[4] / "pipelines" / "analysis" / "page" / "assets"


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return command.runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def export(recipe_file, rejuice, tmp_path):
    recipe = recipe_file(STEPS, recorded(), project_name="tiny")
    assert rejuice("run", recipe, "-q", "--chunk_rows", 1)[0] == 0
    return tmp_path / "out" / "curated.parquet"


@pytest.mark.slow
def test_a_page_of_an_export(export, rejuice, tmp_path):
    status, out, _ = rejuice("view", export, "--no-open")
    size = (tmp_path / "out" / "curated.html").stat().st_size / 1e6
    counted = f"12 rows, 3 groups, 1 set; {size:.1f} MB"
    assert (status, out) == (0, f"out/curated.html: {counted}. Open it in a browser.\n")
    # It stands beside what was run, also where the recipe is named.
    assert rejuice("view", "recipe.yaml", "--no-open") == (status, out, "")
    assert rejuice("view", "out/curated.run", "--no-open") == (status, out, "")
    before = (tmp_path / "out" / "curated.html").read_bytes()
    _, out, _ = rejuice("view", export, "recipe.yaml", "--no-open")
    assert out.startswith("out/curated-and-curated.html: 24 rows")
    assert (tmp_path / "out" / "curated.html").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("given", ["out/curated.parquet", "out/curated.run", "recipe.yaml"])
def test_every_number_is_that_of_the_export_to_the_bit(export, rejuice, tmp_path, given):
    assert rejuice("view", tmp_path / given, "--no-open", "-o", "p.html")[0] == 0
    page, kept = Page(tmp_path / "p.html"), pq.read_table(export)
    at = np.flatnonzero(page.column("fate") < 0)
    ids = [row["response_id"] for row in page.rows()]
    assert [ids[row] for row in at] == kept["response_id"].to_pylist()
    for name, column in (
        ("reward", "reward"),
        ("advantage", "advantage"),
        ("reward_accuracy", "reward_accuracy"),
        ("reward_format", "reward_format"),
    ):
        assert page.column(name)[at].tobytes() == kept[column].to_numpy().tobytes()
    assert [page.slugs("verdict")[row] for row in at] == kept["verdict"].to_pylist()
    added = page.column("contribution_accuracy") + page.column("contribution_format")
    assert added[at].tobytes() == kept["reward"].to_numpy().tobytes()
    dropped = [reason for reason in page.slugs("reason") if reason]
    assert dropped == ["too_easy"] * 4
    assert set(page.column("fate")[4:8]) == {4}
    # What a later step dropped keeps what was written before.
    assert page.column("reward_accuracy")[4:8].tolist() == [1.0] * 4
    texts = [text for _, texts in RESPONSES.values() for text in texts]
    assert [row["response"] for row in page.rows()] == texts
    assert page.rows()[1]["extracted_answer"] == "7"


def test_rows_can_be_filtered_by_any_column(recipe_file, rejuice, tmp_path):
    """Those of the dataset and of one's own operators: numbers, and texts of which few differ."""
    (tmp_path / "own.py").write_text(
        "import pyarrow as pa\n"
        "from rejuice.operators import Mapper\n"
        "class HalfMapper(Mapper):\n"
        "    def writes(self): return ('half', 'side')\n"
        "    def map(self, table):\n"
        "        n = table.num_rows\n"
        "        return {'half': pa.array([i / 2 for i in range(n)]), 'side': pa.array(['a', 'b'] * (n // 2))}\n"
    )
    rows = [{**row, "level": at % 3, "hard": at > 5} for at, row in enumerate(recorded())]
    own = {"custom_operator_paths": [str(tmp_path / "own.py")]}
    recipe = recipe_file([*STEPS[:1], "half_mapper"], rows, **own)
    assert rejuice("run", recipe, "-q")[0] == 0
    assert (
        rejuice("view", tmp_path / "out" / "curated.parquet", "--no-open", "-o", "p.html")[0] == 0
    )
    page = Page(tmp_path / "p.html")
    assert page.column("level").tolist() == [0.0, 1.0, 2.0] * 4
    assert page.column("half").tolist() == [at / 2 for at in range(12)]
    assert page.slugs("side") == ["a", "b"] * 6
    assert page.slugs("hard") == ["false"] * 6 + ["true"] * 6


@pytest.mark.slow
def test_every_figure_is_that_of_plain_polars(export, rejuice, tmp_path):
    rejuice("view", export, "--no-open", "-o", "p.html")
    page, kept = Page(tmp_path / "p.html"), pl.read_parquet(export)
    figures = page.head["sets"][0]["figures"]
    groups = figures["groups"]
    assert [groups[name] for name in ("groups", "all_right", "mixed", "all_wrong")] == [3, 1, 2, 0]
    assert groups["without_signal"] == 1
    assert groups["pass_rates"]["counts"] == [0, 1, 1, 0, 1]
    frame = kept.with_columns(
        (pl.col("reward_accuracy") - pl.col("reward_accuracy").mean().over("prompt_id")).alias("a"),
        (pl.col("reward") - pl.col("reward").mean().over("prompt_id")).alias("r"),
        pl.col("reward").std().over("prompt_id").alias("s"),
    )
    part = frame.select(pl.col("a") / (pl.col("s") + 1e-6)).to_series()
    share = float((part * kept["advantage"]).sum() / (kept["advantage"] ** 2).sum())
    components = figures["components"]
    assert components["accuracy"]["variance_share"] == pytest.approx(share, rel=1e-9)
    assert components["accuracy"]["variance_share"] == pytest.approx(0.897, abs=5e-4)
    assert components["format"]["variance_share"] == pytest.approx(0.103, abs=5e-4)
    assert components["accuracy"]["n"] == 12
    assert components["accuracy"]["mean"] == pytest.approx(7 / 12)
    assert sum(figures["lengths"]["counts"]) == 12
    assert sum(figures["advantages"]["counts"]) == 8
    columns = {name: page.column(f"reward_{name}") for name in ("accuracy", "format")}
    plain = pl.DataFrame(columns).select(pl.corr("accuracy", "format")).item()
    assert figures["correlation"][0][1] == pytest.approx(plain)
    assert figures["correlation"][0][0] == pytest.approx(1)
    report = json.loads(export.with_suffix(".run").joinpath("report.json").read_text())
    assert figures["funnel"] == report["steps"]


@pytest.mark.slow
def test_signs_are_those_of_the_audit(export, rejuice, tmp_path):
    signs = audit_signs(open_stored(export), seed=0)
    assert rejuice("view", export, "--no-open", "-o", "p.html")[0] == 0
    page = Page(tmp_path / "p.html")
    assert [each["name"] for each in page.head["signs"]] == [each.name for each in signs]
    assert [each["p"] for each in page.head["signs"]] == [each.p for each in signs]
    assert rejuice("view", export, export, "--no-open", "-o", "p.html")[0] == 0
    sets = [each["set"] for each in Page(tmp_path / "p.html").head["signs"]]
    assert set(sets) == {str(export)}


@pytest.mark.slow
def test_an_empty_result_is_shown(recipe_file, rejuice, tmp_path):
    steps = [*STEPS[:3], {"pass_rate_filter": {"min": 0.95, "max": 0.99}}, *STEPS[4:]]
    recipe = recipe_file(steps, recorded())
    assert rejuice("run", recipe, "-q", "--allow_empty")[0] == 0
    status, out, _ = rejuice("view", recipe, "--no-open", "-o", "p.html")
    assert status == 0
    assert "12 rows" in out


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/page/rows.py", "rejuice audit {…}")
@pytest.mark.recommended("pipelines/analysis/page/rows.py", " --rows {…}")
def test_what_is_run_is_at_the_top_and_signs_have_their_commands(export, rejuice, tmp_path):
    rejuice("view", export, "--no-open", "-o", "p.html")
    head = Page(tmp_path / "p.html").head
    (run,) = head["runs"]
    assert (run["recipe"], run["path"]) == ("recipe.yaml", str(export))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", run["date"])
    found = head["sets"][0]["figures"]["headline"]
    assert (found["prompts"], found["responses"], found["graded"]) == (3, [4, 4], 3)
    assert found["accuracy"]["mean"] == pytest.approx(7 / 12)
    assert found["pass_at"] == pytest.approx({"1": 7 / 12, "2": (5 / 6 + 1 + 1 / 2) / 3, "4": 1.0})
    assert head["signs"]
    for sign in head["signs"]:
        program, *given = shlex.split(sign["command"])
        status, out, _ = rejuice(*given)
        assert (program, status) == ("rejuice", 0)
        assert len(out.splitlines()) == sign["rows"] or not sign["rows"]


@pytest.mark.slow
def test_rows_have_the_numbers_that_explain_knows(export, rejuice, tmp_path):
    rejuice("view", export, "--no-open", "-o", "p.html")
    page = Page(tmp_path / "p.html")
    assert page.column("row").tolist() == list(range(1, 13))  # The dataset has a row for each.
    assert page.rows()[4]["response_id"] in rejuice("explain", export, "row 5", "--all")[1]


@pytest.mark.slow
def test_rows_that_steps_add_are_not_counted_as_sampled(recipe_file, rejuice, tmp_path):
    verify = {"self_verification_mapper": {"mode": "answer", "candidates": "all", "template": "{question} {answer}?"}}  # fmt: skip
    rows = [{"question": each["prompt"][0]["content"], **each} for each in recorded()]
    assert rejuice("run", recipe_file([*STEPS, verify], rows), "-q")[0] == 0
    assert rejuice("view", "recipe.yaml", "--no-open", "-o", "p.html")[0] == 0
    head = Page(tmp_path / "p.html").head["sets"][0]
    assert head["figures"]["sampled"] == 12 < head["rows"]


def test_rows_of_a_prompt_have_its_number_and_those_that_steps_add_are_below_zero():
    frame = Frame.of(pa.table({"a": [1, 2]}))
    parents = pa.array([0, 1, 1, -1])
    change = Change({"a": pa.array([7, 8, 9, 0])}, parents=parents)
    step, values = Step(1, "s", FormatRewardMapper()), WrittenValues(frame)
    values.add(AppliedStep(step, frame, StepResult(change, 4), frame.after(change)))
    assert values.numbers(10).tolist() == [11, 12, -12, 0]


@pytest.mark.slow
@pytest.mark.recommended("pipelines/analysis/page/rows.py", "rejuice diff {…} {…}")
def test_two_runs_stand_side_by_side(export, recipe_file, rejuice, tmp_path):
    other = tmp_path / "other" / "curated.parquet"
    recipe = recipe_file([*STEPS[:2], *STEPS[4:]], name="b.yaml", export_path=str(other))
    assert rejuice("run", recipe, "-q")[0] == 0
    assert rejuice("view", export, other, "--no-open", "-o", "p.html")[0] == 0
    pair = Page(tmp_path / "p.html").head["pair"]
    assert (pair["sets"], pair["prompts"]) == ([0, 1], [3, 0, 0])
    assert pair["change"]["kept"] == [8, 12]
    assert rejuice(*shlex.split(pair["command"])[1:])[0] == 0


@pytest.mark.slow
def test_two_exports_are_two_sets(export, rejuice, tmp_path):
    status, out, _ = rejuice("view", export, export, "--no-open", "-o", "p.html")
    assert status == 0
    assert "24 rows, 6 groups, 2 sets" in out
    names = [each["name"] for each in Page(tmp_path / "p.html").head["sets"]]
    assert names == [str(export)] * 2


@pytest.mark.slow
@pytest.mark.recommended(
    "pipelines/analysis/page/build.py",
    "(--most_mb); figures are those of all. Of the others: rejuice explain PATH ID",
)
@pytest.mark.recommended("pipelines/analysis/page/rows.py", "of a row: rejuice explain PATH ID")
def test_texts_are_left_out_above_a_size(export, rejuice, tmp_path):
    data = page_of([(export, open_stored(export))])
    summary = build_page(data, tmp_path / "p.html", most_bytes=1)
    assert summary.with_texts == 0
    page = Page(tmp_path / "p.html")
    banner = page.head["sets"][0]["banner"]
    assert banner.startswith("The texts of 0 of 12 rows are in this page (--most_mb)")
    assert page.block(page.head["sets"][0]["texts"][0]["block"]) == b"[null,null,null]"
    row = data.sets[0].row_texts["response_id"][1].as_py()
    assert "It is 7." in rejuice("explain", export.with_suffix(".run") / "recipe.yaml", row)[1]
    assert rejuice("view", export, "--most_mb", 60, "--no-open", "-o", "p.html")[0] == 0
    assert len(Page(tmp_path / "p.html").rows()) == 12
    build_page(page_of([(None, open_stored(export))]), tmp_path / "p.html", most_bytes=1)
    banner = Page(tmp_path / "p.html").head["sets"][0]["banner"]
    assert banner.endswith(
        "are in this page; figures are those of all. Of the others: result.explain(ID). "
    )


@pytest.mark.slow
def test_texts_that_hardly_shrink_stay_below_the_size(tmp_path):
    """As many as fit are there, whatever gzip makes of them."""
    rng, most = np.random.default_rng(0), 6_000_000
    only = page_fixture.page_data(hostile=False).sets[0]
    at = rng.integers(0, 12, 4000)
    noise = ["".join(map(chr, rng.integers(33, 127, 1500))) for _ in at]
    responses = only.row_texts.take(at).set_column(1, "response", pa.array(noise))
    large = only._replace(
        columns=tuple(each._replace(values=each.values[at]) for each in only.columns),
        row_texts=responses,
        groups_at=np.arange(0, 4000, 4, dtype=np.int32),
        group_texts=only.group_texts.take(np.arange(1000) % 3).set_column(
            0, "prompt_id", pa.array([f"p{group}" for group in range(1000)])
        ),
    )
    summary = build_page(
        page_fixture.page_data()._replace(sets=(large,)), tmp_path / "p.html", most_bytes=most
    )
    assert 0.85 * most < summary.bytes < most
    assert 0 < summary.with_texts < 4000


@pytest.mark.slow
def test_each_set_has_the_same_share_of_its_texts(tmp_path):
    rng = np.random.default_rng(1)
    only = page_fixture.page_data(hostile=False).sets[0]
    at = rng.integers(0, 12, 2000)
    sets = []
    for number in range(3):
        noise = ["".join(map(chr, rng.integers(33, 127, 1000))) for _ in at]
        ids = pa.array([f"p{number} {group}" for group in range(500)])
        prompts = only.group_texts.take(np.arange(500) % 3)
        sets.append(
            only._replace(
                columns=tuple(each._replace(values=each.values[at]) for each in only.columns),
                row_texts=only.row_texts.take(at).set_column(1, "response", pa.array(noise)),
                groups_at=np.arange(0, 2000, 4, dtype=np.int32),
                group_texts=prompts.set_column(0, "prompt_id", ids),
            )
        )
    data = page_fixture.page_data()._replace(sets=tuple(sets))
    summary = build_page(data, tmp_path / "p.html", most_bytes=6_000_000)
    assert 0.85 * 6_000_000 < summary.bytes < 6_000_000
    shown = [each["with_texts"] for each in Page(tmp_path / "p.html").head["sets"]]
    assert max(shown) < 1.2 * min(shown)


@pytest.mark.slow
def test_the_same_page_again_has_the_same_bytes(export, tmp_path):
    for name in ("a.html", "b.html"):
        build_page(page_of([(export, open_stored(export))]), tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.slow
def test_another_file_is_not_replaced(export, rejuice, tmp_path):
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    found = "mine.html exists; give another path, or --overwrite"
    given = ("view", export, "--no-open", "--output")
    assert rejuice(*given, "mine.html") == (2, "", f"rejuice: {found}\n")
    (tmp_path / "folder").mkdir()
    found = "folder is a folder; give the path of a file"
    assert rejuice(*given, "folder") == (2, "", f"rejuice: {found}\n")
    assert rejuice(*given, "a.html")[0] == 0
    assert rejuice(*given, "a.html")[0] == 0


def test_what_is_refused(rejuice, tmp_path):
    (tmp_path / "x.parquet").write_text("")
    right = "give an export, its .run folder, a recipe or a training run"
    assert rejuice("view", "x.parquet") == (
        2,
        "",
        f"rejuice: x.parquet is not a stored run; {right}\n",
    )


@pytest.mark.slow
def test_a_recipe_that_was_not_run_is_refused(rejuice, recipe_file, tmp_path):
    recipe = recipe_file(STEPS, recorded())
    found = "recipe.yaml has not been run; `rejuice run recipe.yaml` first"
    assert rejuice("view", recipe)[2] == f"rejuice: {found}\n"
    assert rejuice("run", recipe, "-q")[0] == 0
    assert rejuice("view", recipe, "--no-open", "-o", "p.html")[0] == 0
    shutil.rmtree(tmp_path / "out" / ".rejuice")
    assert rejuice("view", recipe, "--no-open", "-o", "p.html")[0] == 0
    head = Page(tmp_path / "p.html").head["sets"][0]
    assert "is gone" in head["banner"]
    assert (head["rows"], head["figures"]["sampled"]) == (8, None)
    assert head["figures"]["groups"]["without_signal"] is None
    # What is known of the rows that are left is there: what components add to their rewards.
    added = [Page(tmp_path / "p.html").column(f"contribution_{x}") for x in ("accuracy", "format")]
    assert (
        sum(added).tolist()
        == pq.read_table(tmp_path / "out" / "curated.parquet")["reward"].to_pylist()
    )


def test_the_head_of_a_hostile_page_has_no_markup(tmp_path):
    build_page(page_fixture.page_data(), tmp_path / "p.html")
    page = Page(tmp_path / "p.html")
    raw = re.search(r'id="head">(.*?)</script>', page.text)[1]
    assert not set(raw) & set("<>&\u2028\u2029")
    assert page.text.count("<script") == page.text.count("</script>")
    assert page.head["title"].startswith("project </script>")


def test_our_scripts_make_no_markup_of_text():
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                 "setAttribute(\"on", "setAttribute(\"href", "setAttribute(\"src", "setAttribute(\"style",
                 "scattergl", "DOMParser", "createContextualFragment")  # fmt: skip
    for file in ASSETS.glob("*.js"):
        text = file.read_text("utf-8")
        assert [word for word in forbidden if word in text] == [], file.name
        assert text.count("\n") < 400
        assert "</script" not in text
        assert "<!--" not in text


def test_the_policy_names_the_hash_of_every_script(tmp_path):
    build_page(page_fixture.page_data(), tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    scripts = re.search(r"script-src ([^;]*);", policy)[1].split()
    assert len(scripts) == 3
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", each) for each in scripts)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    # Nothing of a page stands before its policy but the kind of the file and who made it.
    assert text.index("Content-Security-Policy") < 400


@pytest.mark.slow
def test_the_command_loads_nothing_heavy(export, tmp_path):
    loaded = command.heavy_after(["view", export, "--no-open"], cwd=tmp_path)
    assert not {"torch", "verl", "ray", "matplotlib", "data_juicer", "math_verify"} & {*loaded}
    assert command.heavy_after(["--help"], cwd=tmp_path, names=("plotly", "itables")) == []
