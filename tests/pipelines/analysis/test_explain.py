"""The history of a row: from the dataset to its end, whole and readable."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import runner

from rejuice.operators import DataError
from rejuice.pipelines.analysis.explain import explain_facts, explain_recipe
from rejuice.pipelines.analysis.explain import explain_row as explain_stored_row
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.dataset.files import read_checked
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.trust import code_of, trust

ROWS = [
    {
        "question": "What is 3 + 4?",
        "answer": "3 + 4 = 7\n#### 7",
        "responses": ["It is 7.", "It is 8.", "7 " * 200, "Dunno"],
    },
    {"question": "What is 1 + 1?", "answer": "#### 2", "responses": ["2", "Two, that is 2."]},
    {"question": "What is 5?", "answer": "#### 5", "responses": []},
]
PROCESS = [
    {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    {"math_verify_mapper": {}},
    {"pass_rate_filter": {"max": 0.9}},
    {"length_filter": {"max": 100}},
    {"diversity_reward_mapper": {"gate": "only_correct"}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
    {"grpo_advantage_mapper": {}},
]


def explain_row(recipe, row, **options):
    return explain_stored_row(open_stored(recipe.path), row, **options)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A recipe that was run in chunks of one question."""
    import json

    import yaml

    folder = tmp_path_factory.mktemp("explain")
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    head = {
        "dataset_path": str(folder / "data.jsonl"),
        "export_path": str(folder / "curated.parquet"),
    }
    process = [step for step in PROCESS if "diversity_reward_mapper" not in step]
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**head, "process": process}))
    recipe = load(folder / "recipe.yaml")
    engine.run(recipe, chunk_rows=1)
    return recipe


def history(recipe, row, **options):
    folder = f"{recipe.path.parent}/"
    return explain_row(recipe, row, **options).replace(folder, "")


def ids(recipe):
    """Every response of the run, by how it begins."""
    folders = sorted((recipe.path.parent / ".rejuice").glob("recorded_rollout_mapper-*/*.arrow"))
    tables = [read_checked(path) for path in folders]
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["response"][:9]: row["response_id"] for row in rows}


def test_the_history_of_a_row_that_was_kept(ran):
    exported = {row["response"]: row for row in pq.read_table(ran.head.export_path).to_pylist()}
    row = exported["It is 7."]
    # Left are right, wrong and no answer: mean 1/3, standard deviation (of a sample) sqrt(1/3).
    assert row["advantage"] == pytest.approx((2 / 3) / (3**-0.5), abs=1e-4)
    assert history(ran, row["response_id"]) == (
        f"response_id {row['response_id']}\n"
        f"prompt_id {row['prompt_id']}\n"
        "data.jsonl, row 1\n"
        "   question = What is 3 + 4?\n"
        "   answer = 3 + 4 = 7 #### 7\n"
        '   responses = ["It is 7.", "It is 8.", "' + "7 " * 67 + "… (437 characters)\n"
        "01_prompt_template_mapper: kept\n"
        "   prompt = user: What is 3 + 4?\n"
        "   reference = 7\n"
        "02_recorded_rollout_mapper: kept\n"
        "   response = It is 7.\n"
        "03_math_verify_mapper: kept\n"
        "   verdict = correct, extracted_answer = 7, reward_accuracy = 1.0\n"
        "   found_by: last_number, found_at: 6:7\n"
        "04_pass_rate_filter: kept\n"
        "05_length_filter: kept\n"
        "06_reward_sum_mapper: kept\n"
        "   reward = 1.0\n"
        "   reward: accuracy 1 x 1\n"
        "07_grpo_advantage_mapper: kept\n"
        f"   advantage = {row['advantage']}\n"
        "   advantage: of 3 rewards, mean 0.3333, standard deviation 0.5774\n"
        "kept: it is in curated.parquet\n"
    )


def test_the_history_of_a_row_that_was_dropped_ends_there(ran):
    text = history(ran, ids(ran)["7 7 7 7 7"])
    assert text.endswith(
        "04_pass_rate_filter: kept\n05_length_filter: dropped, too_long (the text is longer than `max`)\n"
    )
    assert "   response = " + "7 " * 79 + "7 … (399 characters)\n" in text


def test_what_a_drop_rests_on_is_below_the_step_that_dropped_the_row(recipe_file):
    rows = [
        {"question": "1 + 1?", "answer": "2", "response": "It is 2.", "response_id": name}
        for name in ("first", "second")
    ]
    process = [{"prompt_template_mapper": {}}, {"length_filter": {"min": 1}}, "exact_deduplicator"]
    recipe = load(recipe_file(process, rows))
    engine.run(recipe)
    assert explain_row(recipe, "second").splitlines()[-3:] == [
        "02_length_filter: kept",
        "03_exact_deduplicator: dropped, duplicate (an earlier response has the same text)",
        "   repeats: first",
    ]


def test_the_histories_of_a_prompt_are_one_after_the_other(ran):
    whole = history(ran, ids(ran)["It is 7."])
    prompt_id = whole.splitlines()[1].split()[1]
    histories = history(ran, prompt_id, everything=True).split("\n\n")
    assert len(histories) == 4
    assert {text.splitlines()[0] for text in histories} == {
        f"response_id {response_id}"
        for start, response_id in ids(ran).items()
        if start in ("It is 7.", "It is 8.", "7 7 7 7 7", "Dunno")
    }
    assert all(text.splitlines()[1] == f"prompt_id {prompt_id}" for text in histories)
    # Each is whole; what the dataset has of the prompt, with all responses to it, is there once.
    row = [line for line in histories[0].splitlines() if line.startswith("   question = ")]
    assert len(row) == 1
    assert "\n".join(histories).count("   responses = ") == 1
    for text in histories:
        whole = history(ran, text.splitlines()[0].split()[1], everything=True).splitlines()
        end = whole.index("01_prompt_template_mapper: kept")
        assert whole[2:4] == ["data.jsonl, row 1", *row]
        if text is not histories[0]:
            whole[2:end] = ["data.jsonl, row 1"]
        assert text.splitlines() == whole


def test_the_responses_to_a_prompt_are_a_table(ran):
    start = {begin: response_id[:8] for begin, response_id in ids(ran).items()}
    lines = history(ran, "row 1").splitlines()
    assert lines == [
        "prompt: What is 3 + 4?",
        "id        verdict       reward  advantage  fate                     response",
        f"{start['It is 7.']}  correct        1.000      1.155  kept                     It is 7.",
        f"{start['It is 8.']}  wrong_answer   0.000     -0.577  kept                     It is 8.",
        f"{start['7 7 7 7 7']}  wrong_answer       -          -  length_filter: too_long  {'7 ' * 35}7…",
        f"{start['Dunno']}  wrong_answer   0.000     -0.577  kept                     Dunno",
        "too_long: the text is longer than `max`",
        f"4 rows; one of them in full: rejuice explain recipe.yaml {start['It is 7.']}, all: --all",
    ]
    prompt_id = history(ran, start["Dunno"]).splitlines()[1].split()[1]
    assert history(ran, prompt_id).splitlines() == lines


def test_a_row_of_the_dataset_by_its_number(ran):
    second = history(ran, "row 2", everything=True).split("\n\n")
    assert len(second) == 2
    assert all("04_pass_rate_filter: dropped, too_easy" in text for text in second)
    assert history(ran, "row 3").splitlines() == [
        history(ran, "row 3").splitlines()[0],
        "data.jsonl, row 3",
        "   question = What is 5?",
        "   answer = #### 5",
        "   responses = []",
        "01_prompt_template_mapper: kept",
        "   prompt = user: What is 5?",
        "   reference = 5",
        "02_recorded_rollout_mapper: dropped, no_responses (the list of responses is null or empty)",
    ]


def test_how_an_id_begins_is_enough(ran):
    whole = ids(ran)["It is 8."]
    others = [other for other in ids(ran).values() if other != whole]
    length = next(n for n in range(1, 33) if not any(x.startswith(whole[:n]) for x in others))
    assert history(ran, whole[:length]) == history(ran, whole)


@pytest.mark.parametrize("row", ["no-such-id", "row", "row x"])
def test_a_row_that_is_not_there(ran, row):
    with pytest.raises(DataError) as caught:
        history(ran, row)
    assert str(caught.value) == f"no row has an id that begins with '{row}'; see the export's ids"


@pytest.mark.parametrize("row", ["row 4", "row 0"])
def test_a_number_beyond_the_dataset(ran, row):
    with pytest.raises(DataError) as caught:
        history(ran, row)
    name = ran.head.dataset_spec
    assert str(caught.value) == f"{name} has 3 rows, and no {row}; give a number from 1 to 3"


def test_a_recipe_that_was_not_run(recipe_file):
    path = recipe_file([{"length_filter": {"min": 1}}], [{"response": "a"}])
    with pytest.raises(DataError, match=r" has not been run; `rejuice run .*` first$"):
        history(load(path), "row 1")


def test_a_cache_that_is_gone_is_not_blamed_on_the_recipe(recipe_file, tmp_path):
    path = recipe_file([{"length_filter": {"min": 1}}], [{"response": "a"}])
    engine.run(load(path))
    cache = tmp_path / "out" / ".rejuice"
    shutil.rmtree(cache)
    with pytest.raises(DataError) as caught:
        explain_row(load(path), "row 1")
    assert str(caught.value) == (
        f"the cache of this run, {cache}, is gone; run it again to see what each step did"
    )
    assert not cache.exists(), "explaining leaves nothing behind"


def test_data_that_have_changed_since_the_run(recipe_file, tmp_path):
    path = recipe_file([{"length_filter": {"min": 1}}], [{"response": "a"}])
    engine.run(load(path))
    (tmp_path / "data.jsonl").unlink()
    for each in (path, tmp_path / "out" / "curated.run", tmp_path / "out" / "curated.parquet"):
        with pytest.raises(DataError, match="run it again to see what each step did"):
            explain_stored_row(open_stored(each), "row 1")


def test_missing_components_have_reasons_and_rows_without_a_parent_have_an_origin(
    recipe_file, tmp_path
):
    (tmp_path / "mine.py").write_text(
        "import numpy as np, pyarrow as pa\n"
        "from rejuice.operators import Change, Mapper, Operator\n"
        "class GradeMapper(Mapper):\n"
        "    def writes(self): return ('reward_a', 'reward_a_missing')\n"
        "    def reads(self): return ('response_id',)\n"
        "    def map(self, table):\n"
        "        n = table.num_rows\n"
        "        absent = pa.array(['judge_failed'] + [None] * (n - 1), pa.string())\n"
        "        return {'reward_a': pa.array([None] + [0.5] * (n - 1), pa.float64()), 'reward_a_missing': absent}\n"
        "class AddMapper(Operator):\n"
        "    def reads(self): return ('response_id',)\n"
        "    def writes(self): return ('response_id',)\n"
        "    def apply(self, table):\n"
        "        ids = [*table['response_id'].to_pylist(), 'new']\n"
        "        return Change({'response_id': pa.array(ids)}, parents=np.array([*range(table.num_rows), -1]))\n"
    )
    rows = [{"response_id": "a", "x": 1}, {"response_id": "b", "x": 2}]
    process = ["grade_mapper", "add_mapper", "grade_mapper"]
    path = recipe_file(process, rows, custom_operator_paths=[str(tmp_path / "mine.py")])
    engine.run(load(path), chunk_rows=10)
    shown = {name: explain_row(load(path), name) for name in ("a", "new")}
    assert shown["a"].splitlines()[1:] == [
        f"{tmp_path}/data.jsonl, row 1",
        "   x = 1",
        "01_grade_mapper: kept",
        "   reward_a_missing = judge_failed",
        "02_add_mapper: kept",
        "03_grade_mapper_2: kept",
        f"kept: it is in {tmp_path}/out/curated.parquet",
    ]
    assert shown["new"].splitlines() == [
        "response_id new",
        "02_add_mapper: added",
        "03_grade_mapper_2: kept",
        "   reward_a = 0.5",
        f"kept: it is in {tmp_path}/out/curated.parquet",
    ]


def test_the_histories_of_many_rows_stop_somewhere(recipe_file):
    path = recipe_file([{"length_filter": {"min": 1}}], [{"response": "x", "response_id": f"a{n:02d}"} for n in range(65)])  # fmt: skip
    engine.run(load(path), chunk_rows=5)
    lines = explain_row(load(path), "a").splitlines()
    assert lines[:-1] == ["id   fate  response", *(f"a{n:02d}  kept  x" for n in range(64))]
    assert lines[-1].startswith("more than 64 rows; one of them in full: rejuice explain ")
    assert explain_row(load(path), "a", everything=True).count("kept: it is in") == 65


def test_a_prompt_that_was_not_chosen_has_facts(ran):
    """As text and as JSON; the steps that choose are those of no operator here."""
    stored = open_stored(ran.path)
    prompts = pa.table({"prompt_id": ["first", "other"]})
    (one,) = stored.sets
    chosen = one._replace(
        recipe=one.recipe.replace(steps=()), name="the prompts before step 3", training_step=3,
        parts=1, source=lambda _: Frame.of(prompts), ids=lambda _: prompts,
        final=lambda: prompts.slice(0, 1),
    )  # fmt: skip
    stored = stored._replace(sets=(one._replace(choice=lambda: chosen),))
    end = "not sampled: step 3 took the first 1 prompts"
    (facts,) = explain_facts(stored, "other")
    assert (facts["prompt_id"], facts["fate"], facts["set"]) == ("other", end, chosen.name)
    assert facts["history"] == explain_stored_row(stored, "other").splitlines()
    with pytest.raises(DataError, match="no row has an id that begins with 'none'"):
        explain_facts(stored, "none")


def test_what_a_recipe_does(recipe_file, tmp_path, monkeypatch):
    path = recipe_file([{"length_filter": {"min": 1}}, "grpo_advantage_mapper"])
    monkeypatch.chdir(tmp_path)
    text = explain_recipe(load(path))
    assert text.startswith(
        "data.jsonl -> out/curated.parquet\n"
        "\n"
        "1. length_filter (row)\n"
        '   fields  {"column": "response", "unit": "characters", "min": 1, "max": null}\n'
        "   reads   response\n"
        "   writes  -\n"
        "   drops   no_text, too_short, too_long\n"
        "2. grpo_advantage_mapper (group)\n"
    )


DESCRIBING = """
import pyarrow as pa
from rejuice.operators import Mapper

class DescribingMapper(Mapper):
    def writes(self): return ("description",)
    def map(self, table): return {"description": pa.array([f"row {i}" for i in range(table.num_rows)])}
    def explain(self, row=None): return {"in words": f"line\\n{row and row['description']}"}
"""


def test_an_operator_adds_lines_of_its_own(recipe_file, tmp_path):
    (tmp_path / "describing.py").write_text(DESCRIBING)
    files = [str(tmp_path / "describing.py")]
    recipe = load(recipe_file(["describing_mapper"], [{"a": 1}] * 3, custom_operator_paths=files))
    assert '   in words: "line\\nNone"' in explain_recipe(recipe).splitlines()
    engine.run(recipe)
    line = '   in words: "line\\nrow 1"'
    assert line not in explain_row(recipe, "row 2").splitlines(), "its code is not run"
    stored = open_stored(recipe.path)
    trust(stored.folder, code_of(stored.recipes), remember=False)
    assert line in explain_row(recipe, "row 2").splitlines()


OWN_FILTER = """
import pyarrow as pa
from rejuice.operators import Filter

class OddFilter(Filter):
    reasons = {"odd": "the number is odd"}
    def reads(self): return ("a",)
    def decide(self, table):
        return pa.array(["odd" if a % 2 else None for a in table["a"].to_pylist()], pa.string())
"""


def test_a_drop_of_ones_own_operator_has_its_reason(recipe_file, tmp_path):
    """Without running its code."""
    (tmp_path / "odd.py").write_text(OWN_FILTER)
    rows = [{"a": a} for a in (1, 2, 3)]
    files = [str(tmp_path / "odd.py")]
    recipe = load(recipe_file(["odd_filter"], rows, custom_operator_paths=files))
    engine.run(recipe)
    end = explain_row(recipe, "row 1").splitlines()[-1]
    assert end == "01_odd_filter: dropped, odd (the number is odd)"


def test_a_file_of_operators_that_is_gone_is_named(recipe_file, tmp_path, monkeypatch, capsys):
    """What runs no code does without it; what would is not helped by --trust."""
    (tmp_path / "odd.py").write_text(OWN_FILTER)
    rows = [{"a": a} for a in (1, 2, 3)]
    engine.run(load(recipe_file(["odd_filter"], rows, custom_operator_paths=["odd.py"])))
    (tmp_path / "odd.py").unlink()
    rejuice = runner(monkeypatch, capsys, tmp_path)
    assert rejuice("explain", "out/curated.parquet", "row 1")[0] == 0
    status, out, err = rejuice("whatif", "out/curated.parquet")
    assert (status, out) == (2, "")
    assert err == "rejuice: odd.py is gone; put it back: the run needs it\n"


def test_the_recipe_in_the_folder_of_a_run_is_explained_from_anywhere(
    recipe_file, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(
        "from rejuice.operators import Filter\n"
        "class MineFilter(Filter):\n"
        "    'Keep all.'\n"
        "    def decide(self, table): return None\n"
    )
    path = recipe_file(["mine_filter"], [{"a": 1}] * 3, custom_operator_paths=["mine.py"])
    engine.run(load(path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = load(tmp_path / "out" / "curated.run" / "recipe.yaml")
    assert explain_recipe(again).replace(str(again.path), "") == explain_recipe(load(path)).replace(
        str(path), ""
    )


def test_values_that_fill_the_screen_are_left_out(recipe_file):
    rows = [{"response": "x " * 200, "response_token_ids": [1, 2], "scores": ["a"]}]
    path = recipe_file([{"length_filter": {"min": 1}}], rows)
    engine.run(load(path))
    lines = explain_row(load(path), "row 1").splitlines()
    assert lines[1:3] == [f"   response = {'x ' * 80}… (399 characters)", '   scores = ["a"]']
    lines = explain_row(load(path), "row 1", everything=True).splitlines()
    assert lines[1:3] == [f"   response = {'x ' * 200}", "   response_token_ids = [1, 2]"]


def test_text_does_not_steer_the_terminal(recipe_file):
    evil = "\x1b[2J\u202e\u200bred"
    rows = [{"response": evil, "question": [evil], "response_id": f"a{evil}"}]
    path = recipe_file([{"length_filter": {"min": 1}}, {"math_verify_mapper": {}}], [{**rows[0], "reference": evil}])  # fmt: skip
    engine.run(load(path))
    for everything in (False, True):
        text = explain_row(load(path), "a", everything=everything)
        assert not {"\x1b", "\u202e", "\u200b"} & set(text)
        assert "\\u001b[2J\\u202e\\u200bred" in text
    with pytest.raises(DataError, match=r"begins with 'z\\u001b'"):
        explain_row(load(path), "z\x1b")
