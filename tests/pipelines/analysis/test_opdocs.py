"""The operator reference is whole, and the pages in docs/ are the ones that would be written."""

import json
from pathlib import Path

import pytest
from each import check_each

from rejuice.operators import Operator, RecipeError, get, installed
from rejuice.operators.agents.flow import FLOWS, TOOLS
from rejuice.operators.operator import COMMON_FIELDS
from rejuice.pipelines.analysis import reference
from rejuice.pipelines.analysis.reference import recipe_schema
from rejuice.pipelines.data_juicer import catalogue

DOCS = Path(__file__).parents[3] / "docs"


def test_everything_is_listed_once_with_what_it_does():
    listed = [line.split()[0] for line in reference.listing().splitlines() if line.startswith("  ")]
    flows, tools = list(FLOWS.installed()), list(TOOLS.installed())
    assert sorted(listed) == sorted([*installed(), *flows, *tools])
    assert listed[-len(flows) - len(tools) :] == [*flows, *tools]
    for line in reference.listing().splitlines():
        if line.startswith("  "):
            assert len(line.split(maxsplit=1)) == 2, f"{line} is empty"
            assert line.endswith((".", "?")), f"the first line of a docstring is a sentence: {line}"


def own_fields(kind):
    """Those that every operator has are at the head of the page."""
    return kind.own_fields() if issubclass(kind, Operator) else kind.model_fields


def test_fields_of_every_operator_are_there_once():
    page = reference.page()
    for field in COMMON_FIELDS:
        assert page.count(f"| `{field}` |") == 1
        assert f"| `{field}` |" not in reference.entry("length_filter")


def check_fields(kind, text):
    """Its entry has a row for each field, with its docstring and whether it is required."""
    for field in own_fields(kind):
        info = kind.model_fields[field]
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{field}` |")]
        cells = row.replace("\\|", "").split("|")
        assert len(cells) == 6, f"a pipe breaks the table: {row}"
        assert cells[4].strip(), f"{field} has no docstring"
        assert (cells[3].strip() == "required") == info.is_required()


def test_an_entry_names_every_field_and_reason():
    def check(name):
        kind, text = get(name), reference.entry(name)
        assert text.startswith(f"### {name}\n")
        check_fields(kind, text)
        for slug, meaning in kind.reasons.items():
            assert f"| `{slug}` | {meaning} |" in text

    check_each(list(installed()), check)


def test_a_flow_or_tool_is_a_table_of_its_fields():
    cases = [*FLOWS.installed(), *TOOLS.installed()]

    def check(name):
        kind, text = (FLOWS.find(name) or TOOLS.get(name)), reference.entry(name)
        assert text.startswith(f"### {name}\n")
        assert "Scope" not in text
        check_fields(kind, text)

    check_each(cases, check)


def test_what_the_fields_of_a_field_require():
    text = reference.entry("agentflow")
    assert "| `frozen` | fields | required | The model of all frozen modules" in text
    assert "| `frozen.model` | string | required | Name of the model on the server. |" in text
    assert "| `frozen.temperature` | number | `0.0` |" in text


def test_an_entry_by_hand():
    text = reference.entry("length_filter")
    assert "| `unit` | `characters`, `words`, `tokens` | `characters` | What to count. |" in text
    assert (
        "| `min` | integer or null | `null` | Shortest length to keep; none by default. |" in text
    )
    assert "\nScope: row.\n" in text


@pytest.mark.slow
def test_an_entry_of_data_juicers_by_hand():
    text = reference.entry("llm_quality_score_filter")
    assert "\nFilter to keep samples with a high quality score estimated by a language" in text
    assert "| `api_or_hf_model` | str | `'gpt-4o'` | API or huggingface model name. |" in text
    assert (
        "| `try_num` | Annotated[int, Gt(gt=0)] | `3` | The number of retry attempts when there is"
        in text
    )
    assert "| `text_key` | str | `'text'` | the key name of field that stores" in text
    assert "| `batch_size` | int | `1000` |" in text
    text = reference.entry("llm_extract_mapper")
    assert "| `output_schema` |" in text
    assert " required | " in text


@pytest.mark.slow
def test_every_operator_of_data_juicers_is_a_table_of_its_fields():
    for name in catalogue.names():
        rows = [line for line in reference.entry(name).splitlines() if line.startswith("| `")]
        assert [line.split("`")[1] for line in rows] == list(catalogue.find(name).fields)
        assert all(len(line.replace("\\|", "").split("|")) == 6 for line in rows), name


def test_an_operator_that_is_not_there():
    with pytest.raises(RecipeError, match="did you mean 'length_filter'"):
        reference.entry("lenght_filter")
    with pytest.raises(RecipeError, match="did you mean 'agentflow'"):
        reference.entry("agent_flow")
    with pytest.raises(RecipeError, match="did you mean 'http_search'"):
        reference.entry("htp_search")
    with pytest.raises(RecipeError) as caught:
        reference.entry("zzz")
    assert str(caught.value) == (
        "unknown operator, flow or tool 'zzz'; see `rejuice ops`; give the file of one of your own "
        "with --custom FILE"
    )


def test_the_page_holds_every_entry():
    page = reference.page()
    assert page.startswith("# Operators\n")
    operators, _, parts = page.partition("## Flows of agents\n")
    assert all(reference.entry(name) in operators for name in installed())
    flows, _, tools = parts.partition("## Tools of agents\n")
    assert all(reference.entry(name) in flows for name in FLOWS.installed())
    assert all(reference.entry(name) in tools for name in TOOLS.installed())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("operators.md", reference.page),
        ("recipe.schema.json", lambda: json.dumps(recipe_schema(), indent=2) + "\n"),
    ],
)
def test_the_docs_are_fresh(name, text):
    path = DOCS / name
    assert path.exists(), "run `make docs`"
    assert path.read_text("utf-8") == text(), "run `make docs`"
