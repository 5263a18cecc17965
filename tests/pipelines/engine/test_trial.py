"""`check` tries on the first rows what a run does to them."""

import io
import json
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
import yaml

from rejuice.operators import Change, DataError, Operator, RecipeError, RejuiceError
from rejuice.pipelines import run
from rejuice.pipelines.analysis.funnel import show_end_of_run
from rejuice.pipelines.console import Console
from rejuice.pipelines.engine.trial import tried, unmatched_warnings
from rejuice.pipelines.recipe.columns import checked_schema, step_warnings
from rejuice.pipelines.recipe.recipe import Recipe

RECORDED = {"recorded_rollout_mapper": {"columns": ["samples"]}}
SAMPLED = {"policy_rollout_mapper": {"engine": "transformers", "model": "embedded", "n": 2}}
GRADED = ["math_verify_mapper", "group_stats_mapper"]


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """The lines about a recipe whose dataset has these rows, each list in a file of its own."""
    monkeypatch.chdir(tmp_path)

    def of(process, *files, **settings):
        names = []
        for at, rows in enumerate(files):
            name = f"{chr(97 + at)}.jsonl"
            (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            names.append(name)
        settings = {"export_path": "out.parquet", **settings}
        recipe = Recipe(process, names if len(names) > 1 else names[0], **settings)
        return tried(recipe, recipe.opened())

    return of


def row(question, answer="1", samples=("1", "2"), **others):
    return {"question": question, "answer": answer, "samples": list(samples), **others}


def test_nothing_to_say(lines):
    assert lines(["prompt_template_mapper", RECORDED, *GRADED], [row("a"), row("b")]) == []


def test_references(lines):
    rows = [row("a", "proof"), row("b", r"So \boxed{3}."), row("c", "7"), row("d", "2")]
    assert lines(["prompt_template_mapper", RECORDED, *GRADED], rows) == [
        "prompt_template_mapper: in 1 of the first 4 rows the reference is the content of the last "
        r"\boxed{} of column 'answer' (reference_form: boxed).",
        "prompt_template_mapper: 25.0% of the first 4 references cannot be graded against, such as "
        "'proof' ('proof' is a missing value, not an answer).",
    ]


def test_types_of_references(lines):
    rows = [row(answer, answer) for answer in ("7", "B", "1.5", "D", "Paris")]
    (line,) = lines(["prompt_template_mapper", RECORDED, *GRADED], rows)
    assert line.startswith("prompt_template_mapper: types")
    assert "2 number, 2 choice (such as 'B'), 1 text (such as 'Paris')" in line
    given = {"math_verify_mapper": {"answer_type_column": "kind"}}
    rows = [row("a", "none", kind="text"), row("b", "5 days", kind="date"), row("c", kind=None)]
    types, bad = lines(["prompt_template_mapper", RECORDED, given], rows)
    assert "1 text (such as 'none'), 1 number" in types
    assert "33.3%" in bad
    assert "'5 days' is not of the type date" in bad


XYZ = ["xx", "yy", "zz"]


@pytest.mark.parametrize(
    ("rows", "kind", "right"),
    [
        ([row("a", 0, choices=XYZ), row("b", 2, choices=XYZ)], "numbers below the length of column 'choices'", {"choices": ["choices"], "question": "{question}\n{choices}"}),
        ([row("a", "1", endings=XYZ), row("b", "3", endings=XYZ)], "numbers below the length of column 'endings'", {"choices": ["endings"], "first_choice": 1, "question": "{question}\n{choices}"}),
        ([row("a", "2", option1="xx", option2="zz")], "numbers below the length of columns 'option1', 'option2'", {"choices": ["option1", "option2"], "first_choice": 1, "question": "{question}\n{choices}"}),
        ([row("a", 1, answerA="xx", answerB="zz", note="u")], "numbers below the length of columns 'answerA', 'answerB'", {"choices": ["answerA", "answerB"], "question": "{question}\n{choices}"}),
        ([row("a", "C", choices={"text": XYZ, "label": ["A", "B", "C"]})], "options in column 'choices'", {"choices": ["choices"], "question": "{question}\n{choices}"}),
        ([row("a\nA. xx\nB. yy\nC. zz", "zz", choices=XYZ)], "options in column 'choices'", {"choices": ["choices"]}),
        ([row("a\nA. xx\nB. yy\nC. zz", 2, options=XYZ)], "numbers below the length of column 'options'", {"choices": ["options"]}),
    ],
)  # fmt: skip
def test_references_that_name_options(lines, rows, kind, right):
    process = ["prompt_template_mapper", RECORDED, *GRADED]
    line = lines(process, rows)[-1]
    assert kind in line
    assert f"such as {str(rows[0]['answer'])!r}, " in line
    # What it says makes them right, and the line is gone.
    assert yaml.safe_load("{" + line.partition(", set ")[2].rstrip(".") + "}") == right
    ways = [{"prompt_template_mapper": right}, *process[1:]]
    (types,) = lines(ways, rows)
    assert f"{len(rows)} choice (such as " in types
    answers = [["The answer is A.", "xx", "zz", "(C)", "B"]] * len(rows)
    rows = [{**each, "samples": texts} for each, texts in zip(rows, answers, strict=True)]
    lines(ways, rows)
    graded = run(Recipe(ways, "a.jsonl", export_path="ways.parquet")).table.to_pylist()
    for each in {row["prompt_id"]: row for row in graded}.values():
        of_prompt = [row for row in graded if row["prompt_id"] == each["prompt_id"]]
        correct = {row["response"] for row in of_prompt if row["verdict"] == "correct"}
        letter, text = json.loads(each["reference"])
        named = {"A": "The answer is A.", "B": "B", "C": "(C)"}[letter]
        assert correct == {named, text}


@pytest.mark.parametrize(
    "rows",
    [
        [row("a", "0", choices=XYZ), row("b", "3", choices=XYZ)],  # Neither from 0 nor from 1.
        [row("a", "4", choices=XYZ)],
        [row("a", "42", option_total=3, answer1="x")],
        [row("a xx yy zz", "B", choices=XYZ)],  # Letters are graded, and the options are there.
        [row("a", "zz", choices=XYZ)],  # A text is asked for.
        [row("a", "1", choices=[{"message": {"content": "1"}}])],  # Responses of a server.
        [row("a", "1", choices=None)],
    ],
)
def test_references_that_name_no_options(lines, rows):
    shown = lines(["prompt_template_mapper", RECORDED, *GRADED], rows)
    assert not [line for line in shown if "choices" in line or "option" in line]


def test_options_of_some_rows(lines):
    where = {"prompt_template_mapper": {"where": {"kind": "mc"}}}
    rows = [row("a", 1, choices=XYZ, kind="mc"), row("b", 7, choices=None, kind="math")]
    (line,) = lines([where, RECORDED], rows)
    assert "numbers below the length of column 'choices', such as '1'" in line


@pytest.mark.parametrize("name", ["tests", "truth.tests"])
def test_tests_that_cannot_be_read(lines, name):
    def code(*cells):
        cells = [each if name == "tests" else {"tests": each} for each in cells]
        rows = [row(str(at), **{name.split(".")[0]: each}) for at, each in enumerate(cells)]
        return lines(
            ["prompt_template_mapper", RECORDED, {"unit_test_mapper": {"tests": name}}], rows
        )

    assert code("[]", "['assert f(1)']") == []
    assert code("['assert f(1)']", "", '{"inputs": ["1"], "outputs": []}', "see above") == [
        "unit_test_mapper: bad_tests in 2 of the first 3 rows that have tests, such as row 3: "
        "1 inputs but 0 outputs."
    ]


def test_rows_whose_tests_none_can_read_are_refused(lines, tmp_path):
    rows = [row("a", kind="math"), row("b", tests='["f ="]', kind="code")]
    step = {"unit_test_mapper": {"where": {"kind": "code"}}}
    lines(["prompt_template_mapper", RECORDED], rows)
    recipe = Recipe(
        ["prompt_template_mapper", RECORDED, step], "a.jsonl", export_path="out.parquet"
    )
    with pytest.raises(RejuiceError) as error:
        run(recipe)
    found = str(error.value)
    assert "step 3 unit_test_mapper" in found
    assert "1 of the first 1 rows that have tests, such as row 2: test 1: 'f =' is neither" in found
    assert "`tests`" in found
    assert not (tmp_path / "out.parquet").exists()


def test_a_field_of_tests_that_is_not_there_is_refused_in_its_step(lines):
    recipe = Recipe(
        ["prompt_template_mapper", RECORDED, {"unit_test_mapper": {"tests": "truth.code"}}],
        "a.jsonl",
        export_path="out.parquet",
    )
    lines(["prompt_template_mapper", RECORDED], [row("a", truth={"tests": "[]"})])
    with pytest.raises(DataError, match=r"a\.jsonl, step 3 unit_test_mapper: .*truth\.code"):
        run(recipe)


def test_columns_that_tell_prompts_apart(lines):
    rows = [row("a", image="x.png", id=1), row("a", image="y.png", id=2), row("b", image="x.png")]
    found = (
        "prompt_template_mapper: rows with the same prompt differ in column 'image'; if that makes "
        "them other prompts, set identity: [image]."
    )
    assert lines(["prompt_template_mapper", RECORDED, *GRADED], rows) == [found]
    assert lines(["prompt_template_mapper", SAMPLED], rows) == [found]
    identity = {"prompt_template_mapper": {"identity": ["image"]}}
    assert lines([identity, RECORDED, *GRADED], rows) == []
    more = {"prompt_template_mapper": {"question": "{question}\n{hint}"}}
    rows = [{**each, "hint": "h"} for each in rows]
    assert lines([more, RECORDED, *GRADED], rows) == [found]


def single(*others):
    """Rows of one prompt, with one response each."""
    return [
        {"question": "a", "answer": "1", "samples": str(n), **row} for n, row in enumerate(others)
    ]


@pytest.mark.parametrize(
    ("process", "rows", "columns", "right"),
    [
        ([RECORDED], single({"input": "2 and 3"}, {"input": "4 and 4"}, {"input": None}), "column 'input'", {"question": "{question}\n{input}", "identity": ["input"]}),
        ([RECORDED], single({"context": "x", "id": 1}, {"context": "y", "id": 2}), "column 'context'", {"question": "{question}\n{context}", "identity": ["context"]}),
        ([RECORDED], single({"Premise": "x", "hypothesis": "u"}, {"Premise": "y", "hypothesis": "v"}), "columns 'Premise', 'hypothesis'", {"question": "{question}\n{Premise}\n{hypothesis}", "identity": ["Premise", "hypothesis"]}),
        ([RECORDED], single({"image": "x.png"}, {"image": "y.png"}), "column 'image'", {"identity": ["image"]}),
        ([SAMPLED], single({"passage": "x", "origin": "u"}, {"passage": "y", "origin": "v"}), "column 'passage'", {"question": "{question}\n{passage}", "identity": ["passage"]}),
        ([SAMPLED], single({"level": 1, "origin": "u"}, {"level": 2, "origin": "v"}), "columns 'samples', 'level', 'origin'", {"identity": ["samples", "level", "origin"]}),
    ],
)  # fmt: skip
def test_what_belongs_to_a_prompt_is_named(lines, process, rows, columns, right):
    (line,) = lines(["prompt_template_mapper", *process], rows)
    assert f"rows with the same prompt differ in {columns};" in line
    ways = (
        line.partition("them other prompts, set ")[2]
        .rstrip(".")
        .replace(", or identity", ", identity")
    )
    assert yaml.safe_load("{" + ways + "}") == right
    for field, value in right.items():
        assert lines([{"prompt_template_mapper": {field: value}}, *process], rows) == []


@pytest.mark.parametrize(
    "others",
    [
        [{"model": "a", "score": 0.5}, {"model": "b", "score": 0.75}],
        [{"uuid": "u1", "reasoning": "x", "finish_reason": "stop"}, {"uuid": "u2", "reasoning": "y", "finish_reason": "length"}],
        [{"extracted_answer2": "1", "judge": "good", "response_id2": "r"}, {"extracted_answer2": "2", "judge": "bad", "response_id2": "s"}],
        [{"output_tokens": [1, 2], "step": 1, "gts": "1"}, {"output_tokens": [3], "step": 1, "gts": "1"}],
        [{"input": "the same", "prediction": "x"}, {"input": "the same", "prediction": "y"}],
    ],
)  # fmt: skip
def test_responses_differ_as_they_should(lines, others):
    """Layouts of rollouts: a row has a response, and what is known of it."""
    assert lines(["prompt_template_mapper", RECORDED, *GRADED], single(*others)) == []


def test_a_column_of_a_question_that_is_not_there(lines):
    lines(["prompt_template_mapper", RECORDED], [row("a", input="x")])
    for name, right in (("inptu", "did you mean 'input'"), ("x", "there are: answer, input, ")):
        field = "system" if name == "x" else "question"
        maker = {"prompt_template_mapper": {field: f"{{question}}\n{{{name}}}"}}
        recipe = Recipe([maker, RECORDED], "a.jsonl", export_path="out.parquet")
        with pytest.raises(RecipeError, match=f"column '{name}' is missing; {right}") as raised:
            checked_schema(recipe)
        assert f"double its braces: {{{{{name}}}}}" in str(raised.value)


def test_an_unread_column_of_prompts_that_are_apart(lines):
    rows = single({"input": "2 and 3"}, {"input": "4 and 4"})
    rows.insert(1, {**rows[0], "question": "b"})
    with pytest.raises(DataError) as raised:
        lines(["prompt_template_mapper", RECORDED, *GRADED], rows)
    assert "rows 1 and 3 have the same prompt" in str(raised.value)
    assert r'set question: "{question}\n{input}", or identity: [input].' in str(raised.value)
    both = {"prompt_template_mapper": {"question": "{question}\n{input}"}}
    assert lines([both, RECORDED, *GRADED], rows) == []
    rows.append(rows[0])
    with pytest.raises(DataError) as raised:
        lines([both, RECORDED, *GRADED], rows)
    assert "exact_deduplicator" not in str(raised.value)  # There is no such column.


def test_a_run_says_what_the_check_says(lines, tmp_path):
    process = ["prompt_template_mapper", {"recorded_rollout_mapper": {"columns": ["samples"]}}]
    rows = single({"input": "x", "choices": XYZ}, {"input": "y", "choices": XYZ})
    found = lines(process, rows)
    assert ["options" in line or "numbers" in line for line in found] == [False, True]
    with pytest.warns(UserWarning, match="prompt_template_mapper") as warned:
        run(Recipe(process, "a.jsonl", export_path="out.parquet"))
    assert [str(each.message) for each in warned] == found


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ({"reward_sum_mapper": {"weights": {"label": 1.0}}}, "not numeric .*'bad'"),
        ({"column_range_filter": {"column": "rate", "min": 0.1}}, "not numeric .*'50%'"),
        ({"reward_sum_mapper": {"weights": {"right": 1.0}}}, ""),
        ({"column_range_filter": {"column": "level", "min": 1}}, ""),
    ],
)
def test_words_are_refused_where_a_step_needs_numbers(lines, step, found):
    own = {"reward_label": "bad", "reward_right": "true", "rate": "50%", "level": "N/A"}
    with pytest.raises(DataError, match=found) if found else nullcontext():
        assert not lines(["prompt_template_mapper", RECORDED, step], [row("a", **own)])


def test_samples_of_several_filters_have_a_line_about_the_filter(lines):
    made = [row(q, filtered_resps=["1"], filter=f) for f in ("strict", "flexible") for q in "ab"]
    with pytest.raises(DataError, match=r"column_value_filter: \{column: filter, keep: \[strict\]"):
        lines(["prompt_template_mapper", RECORDED], made)


PAIR = [["-3.2", "False"], ["-0.4", "True"]]


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        (("['1', '2']", '["3"]'), "has lists as text in 2 rows"),
        ((PAIR, [["1", "2"]]), "has log-likelihoods of choices in 1 rows of the first"),
    ],
)
def test_what_may_be_no_responses(lines, samples, line):
    rows = [{"question": f"q{at}", "answer": "1", "samples": s} for at, s in enumerate(samples)]
    (found,) = lines(["prompt_template_mapper", RECORDED], rows)
    assert line in found
    with pytest.warns(UserWarning, match="recorded_rollout_mapper") as warned:
        run(Recipe(["prompt_template_mapper", RECORDED], "a.jsonl", export_path="out.parquet"))
    assert [str(each.message) for each in warned] == [found]


def test_nothing_but_log_likelihoods_is_refused_by_check_and_run(lines):
    lines(["prompt_template_mapper"], [{"question": "a", "answer": "1", "samples": PAIR}])
    recipe = Recipe(["prompt_template_mapper", RECORDED], "a.jsonl", export_path="out.parquet")
    for do in (checked_schema, run):
        with pytest.raises(DataError, match=r"a\.jsonl, step 2 .*: column 'samples' has log-likel"):
            do(recipe)


class AnswerMapper(Operator):
    """Writes what `gold` says as `answer`, of the rows that have some."""

    reasons: ClassVar = {"no_gold": "it has none"}

    def reads(self):
        return ("gold",)

    def writes(self):
        return ("answer",)

    def apply(self, table):
        gold = table["gold"].combine_chunks()
        reasons = pa.array([None if each else "no_gold" for each in gold.to_pylist()], pa.string())
        return Change({"answer": gold}, reasons)


def test_a_reference_that_an_earlier_step_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "question": question,
            "gold": gold,
            "choices": XYZ,
            "input": question[-1],
            "samples": ["A"],
        }
        for question, gold in (("no", None), ("a", "2"), ("b", "1"))
    ]
    Path("a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    process = [AnswerMapper(), "prompt_template_mapper", RECORDED]
    with pytest.warns(UserWarning, match="prompt_template_mapper") as warned:
        made = run(Recipe(process, "a.jsonl", export_path="out.parquet")).table
    assert made["reference"].to_pylist() == ["2", "1"]
    (line,) = [str(each.message) for each in warned]
    assert "numbers below the length of column 'choices', such as '2'" in line


@pytest.mark.parametrize(
    ("maker", "right"),
    [
        ({"template": "Q: {question}\n{input}"}, "Q: {question}\n{input}"),
        ({"template": "{question} {input}", "question": "q2"}, "{q2} {input}"),
        ({"template": "{question} {hint}"}, None),
        ({"template": "In {1}: {question}"}, None),
    ],
)
def test_a_template_fills_in_no_columns(lines, maker, right):
    rows = [row("a", input="x", q2="y"), row("b", input="z", q2="w")]
    process = [{"prompt_template_mapper": maker}, RECORDED]
    lines(process, rows)
    recipe = Recipe(process, "a.jsonl", export_path="out.parquet")
    found = step_warnings(recipe, rows[0].keys())
    assert len(found) == (right is not None)
    if right is not None:
        way = found[0].partition("set ")[2].rpartition(" in its place")[0]
        assert yaml.safe_load("{" + way + "}") == {"question": right}


def test_a_prompt_in_two_places_names_both(lines):
    files = [row("a"), row("b")], [row("c"), row("a")]
    with pytest.raises(
        DataError, match=r"row 1 of a.jsonl and row 2 of b.jsonl have the same prompt"
    ):
        lines(["prompt_template_mapper", RECORDED, *GRADED], *files)


@pytest.mark.parametrize(
    ("process", "rows", "found"),
    [
        (
            ["prompt_template_mapper", {"recorded_rollout_mapper": {"columns": ["samples"], "parallel": {"ends": "finish_reason"}}}],
            [row("a", ends=["stop"])],
            "a.jsonl, step 2 recorded_rollout_mapper: column 'ends' has 1 items for 2 responses in column 'samples': ['stop']; give one for each response, or null",
        ),
        (
            ["prompt_template_mapper", SAMPLED],
            [row([{"role": "user", "content": "a"}, {"role": "assistant", "content": "Well,"}])],
            "a.jsonl, step 1 prompt_template_mapper: a chat in column 'question' ends with the assistant's message, which the policy would not continue: [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'Well,'}]; set final_message: response to leave it out of the prompt",
        ),
    ],
)  # fmt: skip
def test_the_line_of_the_run(lines, process, rows, found):
    with pytest.raises(RejuiceError) as raised:
        lines(process, rows)
    assert str(raised.value) == found


def test_up_to_eight_files_are_looked_at(lines):
    files = [[{"question": "q", "answer": n if n == 7 else str(n)}] for n in range(9)]
    with pytest.raises(
        DataError, match=r"h.jsonl: column 'answer' is int64, but string in earlier"
    ):
        lines(["prompt_template_mapper", SAMPLED], *files)
    files[7][0]["answer"], files[8][0]["answer"] = "7", 8
    assert lines(["prompt_template_mapper", SAMPLED], *files[:8]) == []
    assert lines(["prompt_template_mapper", SAMPLED], *files) == [], "of the ninth nothing is read"


def test_a_column_of_sources_by_another_name(lines, monkeypatch):
    rows = [row("a", source="x"), row("b", source="y: z"), row("c", source="x")]
    process = ["prompt_template_mapper", RECORDED, *GRADED]
    (line,) = lines(process, rows)
    shown, _, columns = line.partition("add columns: ")
    assert shown == (
        "Pass rate and reward are shown by column data_source: to have them for each of the 2 "
        "values of 'source', "
    )
    # What it says gives the figures: all columns are named, so none is lost.
    recipe = Recipe(process, "a.jsonl", columns=yaml.safe_load(columns), export_path="out.parquet")
    result = run(recipe)
    assert result.table.num_rows == 6

    def sources(report):
        console = Console(file=io.StringIO(), width=200)
        show_end_of_run(report, console)
        shown = console.file.getvalue().splitlines()
        return [each.partition(";")[0] for each in shown if each.startswith("source ")]

    assert sources(result.report) == [
        "source x: 2 prompts, 4 responses",
        "source y: z: 1 prompts, 2 responses",
    ]
    # Without such a column, no row of the run is read again.
    monkeypatch.setattr("rejuice.pipelines.analysis.funnel.show_sources", None)
    other = Recipe(process, "a.jsonl", export_path="other.parquet")
    assert sources(run(other).report) == []


def test_no_column_of_sources_to_name(lines):
    process = ["prompt_template_mapper", RECORDED, *GRADED]
    where = {"pass_rate_filter": {"where": {"source": "x"}}}
    two = [row("a", source="x"), row("b", source="y")]
    assert lines([*process, where], two) == []  # It is read by its own name.
    assert lines(process, [row("a", source="x"), row("b", source="x")]) == []
    assert lines(process, [row(str(n), source=str(n)) for n in range(21)]) == []
    assert lines(process, [row("a", source=1), row("b", source=2)]) == []
    both = [{**each, "data_source": "z"} for each in two]
    assert lines(process, both) == []


def test_a_column_of_checkers_that_is_not_read(lines):
    check = "def check(stdin, printed, expected): return True"
    rows = [row("a", tests=[], generated_checker=None), row("b", tests=[], generated_checker=check)]
    process = [{"prompt_template_mapper": {"reference": None}}, RECORDED]
    (line,) = lines([*process, "unit_test_mapper"], rows)
    shown, _, field = line.partition("add checker: ")
    assert "unit_test_mapper: column 'generated_checker'" in shown
    assert lines([*process, {"unit_test_mapper": {"checker": field}}], rows) == []
    assert lines([*process, "unit_test_mapper"], rows[:1]) == []
    assert lines(process, rows) == []


def test_what_tests_call_and_do_not_define(lines):
    """As those of LeetCodeDataset, whose helpers are in a column of their own."""
    check = "def check(candidate):\n    assert is_same(candidate(node([1])), node([2]))\n"
    helpers = "def node(items): return items\ndef is_same(a, b): return a == b\n"
    rows = [row("a", test=check, name="Solution().rev", prelude=helpers)]
    process = [{"prompt_template_mapper": {"reference": None}}, RECORDED]

    def of(**fields):
        operator = {"tests": "test", "entry_point": "name", **fields}
        return lines([*process, {"unit_test_mapper": operator}], rows)

    (line,) = of()
    assert "is_same, node" in line
    assert "prefix" in line
    assert of(prefix="prelude") == of(setup="prelude") == []
    rows[0]["test"] = (
        "def check(candidate):\n    try:\n        candidate(1)\n"
        "    except ValueError as error:\n        assert str(error)\n"
    )
    assert of() == []


def test_a_where_of_another_type_is_refused_in_its_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row("a", level=1)))
    graded = {"math_verify_mapper": {"where": {"level": "1"}}}
    process = ["prompt_template_mapper", RECORDED, graded]
    recipe = Recipe(process, str(path), export_path=str(tmp_path / "out.parquet"))
    with pytest.raises(DataError, match=r"a.jsonl, step 3 math_verify_mapper: where compares"):
        list(unmatched_warnings(recipe))
