"""Values of fields that do not fit their annotations are errors of `rejuice check`."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Optional, Union

import pytest
from each import check_each
from jsonargparse.typing import ClosedUnitInterval
from pydantic import Field, PositiveInt

from rejuice.operators import RecipeError
from rejuice.pipelines import recipe
from rejuice.pipelines.data_juicer import catalogue, steps
from rejuice.pipelines.data_juicer.settings import check_type
from rejuice.pipelines.recipe.recipe import parse

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow


def test_a_value_of_another_type():
    cases = [
        ("text_length_filter", {"max_len": "abc"}, "field 'max_len' is 'abc'; input should be a valid integer"),
        ("text_length_filter", {"max_len": "2e5"}, "field 'max_len' is '2e5'; input should be a valid integer"),
        ("text_length_filter", {"max_len": True}, "field 'max_len' is True; input should be a valid integer"),
        ("text_length_filter", {"max_len": 2.5}, "field 'max_len' is 2.5; input should be a valid integer, got a number with a fractional part"),
        ("text_length_filter", {"text_key": 3}, "field 'text_key' is 3; input should be a valid string"),
        ("text_length_filter", {"reversed_range": 1}, "field 'reversed_range' is 1; input should be a valid boolean"),
        ("average_line_length_filter", {"min_len": "1"}, "field 'min_len' is '1'; input should be a valid integer"),
        ("alphanumeric_filter", {"min_ratio": "0.5"}, "field 'min_ratio' is '0.5'; input should be a valid number"),
        ("document_minhash_deduplicator", {"window_size": 0}, "field 'window_size' is 0; input should be greater than 0"),
        ("document_minhash_deduplicator", {"jaccard_threshold": 1.5}, "field 'jaccard_threshold' is 1.5; input should be less than or equal to 1"),
        ("random_selector", {"select_ratio": -0.1}, "field 'select_ratio' is -0.1; input should be greater than or equal to 0"),
        ("remove_table_text_mapper", {"max_col": 30}, "field 'max_col' is 30; input should be less than or equal to 20"),
        ("flagged_words_filter", {"words_aug_group_sizes": [2, 0]}, "field 'words_aug_group_sizes.1' is 0; input should be greater than 0"),
        ("language_id_score_filter", {"lang": 5}, "field 'lang' is 5; input should be a valid string or a valid list"),
        ("specified_field_filter", {"target_value": "x"}, "field 'target_value' is 'x'; input should be a valid list"),
        ("text_pair_similarity_filter", {"min_score": 2}, "field 'min_score' is 2; input should be less than or equal to 1"),
        ("llm_extract_mapper", {"output_schema": {"a": 1}}, "field 'output_schema.a' is 1; input should be a valid string"),
    ]  # fmt: skip

    def check(name, fields, message):
        with pytest.raises(RecipeError) as raised:
            steps.step(name, fields)
        assert str(raised.value) == message

    check_each(cases, check)


def test_types_are_strict_within_others():
    cases = [
        (Literal["a", "b"], "c", "input should be 'a' or 'b'"),
        (list[int], 3, "input should be a valid list"),
        (Optional[int], "x", "input should be a valid integer"),  # noqa: UP045
        (int | None, "x", "input should be a valid integer"),
        (ClosedUnitInterval, 2, "input should be less than or equal to 1"),
        (tuple[int, int], [1, "x"], "input should be a valid integer"),
    ]

    def check(annotation, value, message):
        with pytest.raises(RecipeError) as raised:
            check_type("f", annotation, value)
        assert raised.value.right == message

    check_each(cases, check)


def test_what_data_juicer_accepts_and_what_nobody_knows():
    cases = [
        (int, 5.0),
        (int, None),
        (float, 1),
        (PositiveInt, 2e5),
        (list[int], (1, 2)),
        (tuple[int, int], [1, 2]),
        (Union[int, str], "auto"),  # noqa: UP007
        (Optional[Path], "direct"),  # noqa: UP045
        (Callable[[str], list[str]] | str | None, 5),
        (list[Path], [object()]),
        (Field(ge=0), "x"),
        (dict[int], {}),
        (None, "x"),
    ]

    def check(annotation, value):
        check_type("f", annotation, value)

    check_each(cases, check)


def test_every_default_fits_its_own_annotation():
    checked = 0
    for name in catalogue.names():
        for field in catalogue.find(name).fields:
            check_type(field.name, field.hint, field.value)
            checked += 1
    assert checked > 7_000


def test_a_value_is_checked_and_never_converted():
    given = parse("{max_len: 2e5, min_len: 1.0, text_key: '2e5'}")
    step = steps.step("text_length_filter", given)
    assert repr(step.model_extra) == "{'max_len': 200000.0, 'min_len': 1.0, 'text_key': '2e5'}"


def test_check_names_the_line(tmp_path):
    path = tmp_path / "r.yaml"
    head = "dataset_path: a.jsonl\nexport_path: b.jsonl\nprocess:\n"
    path.write_text(
        head + "- text_length_filter: {max_len: 2e5}\n- text_length_filter: {max_len: '2e5'}"
    )
    with pytest.raises(RecipeError) as raised:
        recipe.load(path)
    assert str(raised.value) == (
        f"{path}, line 5, step 2 text_length_filter: "
        "field 'max_len' is '2e5'; input should be a valid integer"
    )
