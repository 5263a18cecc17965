"""The columns of a recipe with Data-Juicer's operators, followed before anything runs."""

import pyarrow as pa
import pytest
from each import check_each

from rejuice.operators import OperatorError, RecipeError
from rejuice.pipelines.data_juicer import catalogue, steps
from rejuice.pipelines.dataset.write import exported
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import compute_change
from rejuice.pipelines.recipe.columns import checked_schema
from rejuice.pipelines.recipe.recipe import load

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

ROWS = [{"question": "1 + 1?", "answer": "2", "output": "It is 2."}]
RECORDED = ["prompt_template_mapper", {"recorded_rollout_mapper": {"columns": ["output"]}}]
SPACES = "whitespace_normalization_mapper"
THERE = "answer, prompt, prompt_id, question, reference, response, response_id"
OTHERS = {
    "remove_specific_chars_mapper": "leaves rows alone without a pattern",
    "text_pair_similarity_filter": "gives 0 to a row without a text",
    "llm_condition_filter": "keeps a row without a text",
    "specified_field_filter": "has a column of its own",
    "topk_specified_field_selector": "has a column of its own",
    "llm_quality_score_filter": "has columns of its own",
    "image_shape_filter": "reads images",
    "random_selector": "reads nothing",
}
OF_TEXTS = [
    "alphanumeric_filter", "average_line_length_filter", "character_repetition_filter",
    "maximum_line_length_filter", "special_characters_filter", "text_length_filter",
    "word_repetition_filter", "words_num_filter",
    "document_deduplicator", "document_line_deduplicator", "document_minhash_deduplicator",
    "clean_copyright_mapper", "clean_email_mapper", "clean_ip_mapper", "clean_links_mapper",
    "expand_macro_mapper", "punctuation_normalization_mapper", "remove_bibliography_mapper",
    "remove_comments_mapper", "remove_header_mapper", "remove_long_words_mapper",
    "remove_non_chinese_character_mapper", "remove_repeat_sentences_mapper",
    "remove_table_text_mapper", "remove_words_with_incorrect_substrings_mapper",
    "text_chunk_mapper", "whitespace_normalization_mapper",
]  # fmt: skip
"""Operators that need no model, no list of words and no package that Data-Juicer does not install."""


@pytest.fixture
def refused(tmp_path, recipe_file):
    """What `rejuice check` says of a recipe."""

    def check(process, rows=ROWS, **head):
        path = recipe_file(process, rows, **head)
        with pytest.raises(RecipeError) as caught:
            checked_schema(load(path))
        return str(caught.value).removeprefix(f"{path.parent}/")

    return check


def test_a_text_that_a_step_writes_is_there(recipe_file):
    process = [*RECORDED, SPACES, "text_length_filter", "document_deduplicator"]
    checked_schema(load(recipe_file(process, ROWS, text_keys="response")))


def test_a_text_that_nothing_writes(refused):
    assert refused([*RECORDED, "text_length_filter"]) == (
        "recipe.yaml, line 8, step 3 text_length_filter: its text column 'text' is missing; set "
        f"text_keys, or text_key of the step; there are: {THERE}"
    )
    assert refused([*RECORDED, {SPACES: {"text_key": "respons"}}], text_keys="response") == (
        f"recipe.yaml, line 8, step 3 {SPACES}: its text column 'respons' is missing; set "
        f"text_keys, or text_key of the step; there are: {THERE}"
    )


def test_a_text_that_a_later_step_writes(refused):
    """The dataset's column is gone by then, so the filter could not mean that one."""
    assert refused(["text_length_filter", *RECORDED], text_keys="response") == (
        "recipe.yaml, line 4, step 1 text_length_filter: its text column 'response' is missing; "
        "agent_rollout_mapper, policy_rollout_mapper or recorded_rollout_mapper writes it: put that step before this one"
    )


def test_a_step_of_ours_after_theirs_is_checked_too(refused):
    process = [*RECORDED, SPACES, "text_length_filter", "pass_rate_filter"]
    assert refused(process, text_keys="response") == (
        "recipe.yaml, line 10, step 5 pass_rate_filter: column 'verdict' is missing; "
        "llm_verify_mapper, math_verify_mapper, unit_test_mapper or reward_function_mapper with "
        "correct_above writes it: put that step before this one"
    )


def test_a_mapper_that_may_write_any_column_hides_what_comes_after_it(recipe_file):
    process = [{"python_lambda_mapper": {}}, "text_length_filter", "pass_rate_filter"]
    checked_schema(load(recipe_file(process, ROWS)))


def test_a_text_within_a_column(recipe_file, refused):
    inner = {"text_length_filter": {"text_key": "meta.text"}}
    checked_schema(load(recipe_file([inner], [{"meta": {"text": "x"}}])))
    assert "its text column 'meta.text' is missing" in refused([inner])


def test_an_operator_that_needs_a_list_of_words_reads_its_text():
    assert steps.reads_text("stopwords_filter")
    assert steps.reads_text("flagged_words_filter")


@pytest.mark.parametrize("name", OTHERS)
def test_an_operator_that_does_without_a_text(name):
    assert catalogue.exists(name)
    assert not steps.reads_text(name)


def test_what_counts_as_reading_its_text_fails_without_it():
    """So a recipe is refused only where it would fail."""

    def check(name):
        assert steps.reads_text(name)
        rows = pa.table({"other": ["some text", "more of it"]})
        with pytest.raises(OperatorError, match="it may need column 'text': set text_keys"):
            compute_change(steps.step(name, {}), Frame.of(rows))

    check_each(OF_TEXTS, check)


def test_which_operators_keep_the_columns():
    cases = [
        ("clean_links_mapper", True),
        ("words_num_filter", True),
        ("document_line_deduplicator", True),
        ("random_selector", True),
        ("text_chunk_mapper", False),
        ("extract_event_mapper", False),
        ("python_file_mapper", False),
        ("naive_grouper", False),
        ("nobody_has_this_mapper", False),
    ]

    def check(name, keeps):
        assert steps.keeps_columns(name) is keeps

    check_each(cases, check)


def test_what_counts_as_keeping_the_columns_does():
    def check(name):
        rows = pa.table({"text": ["1. Some  text, HTTP://x.org", "more"], "other": [1, 2]})
        after = Frame.of(rows).after(compute_change(steps.step(name, {}), Frame.of(rows))).table()
        names = exported(after.column_names, keep_stats=False, keep_hashes=False)
        assert set(names) == {"text", "other"}

    check_each([name for name in OF_TEXTS if steps.keeps_columns(name)], check)
