"""What a notebook shows of a run: short, without scripts, and with texts of the user's escaped."""

import logging
import sys
import warnings
from xml.etree import ElementTree

import pytest

from rejuice.pipelines import notebook
from rejuice.pipelines.engine.report import Report, StepReport

EVIL = "<script>alert('x')</script>\x1b[31m&\u202e"


def step(name, rows_in, rows_out, added=0, dropped=None, **fields):
    numbers = {"rows_in": rows_in, "rows_out": rows_out, "added": added, "seconds": 0.25}
    fields = {"cached": False, "notes": {}, "columns": {}, **fields}
    return StepReport(step=name, dropped=dropped or {}, **numbers, **fields)


def report(*steps, project_name="rejuice"):
    head = dict.fromkeys(("recipe", "dataset_path", "export_path", "key"), "")
    return Report.of(steps, project_name=project_name, **head)


STEPS = (
    step("policy_rollout_mapper", 100, 800, added=700),
    step("math_verify_mapper", 800, 800, cached=True),
    step("pass_rate_filter", 800, 500, dropped={"too_easy": 100, "too_hard": 200}),
)


def parsed(html):
    """The elements of a piece of HTML, which is well formed."""
    return list(ElementTree.fromstring(f"<div>{html}</div>").iter())


def test_a_report_is_a_few_lines():
    assert repr(report(*STEPS)) == str(report(*STEPS)) == (
        "rejuice: 100 rows in, 700 added, 300 dropped, 500 rows out; 3 steps\n"
        "  policy_rollout_mapper  100 -> 800\n"
        "  pass_rate_filter       800 -> 500, too_hard 200, too_easy 100"
    )  # fmt: skip


def test_many_steps_and_reasons_are_still_a_few_lines():
    reasons = {f"reason_{n}": n for n in range(1, 100)}
    steps = [step(f"step_{n}", 9000, 4050, dropped=reasons) for n in range(50)]
    lines = str(report(*steps)).splitlines()
    assert len(lines) < 16
    assert lines[-1] == "  ... 38 more steps"
    assert "reason_99 99, reason_98 98" in lines[1]
    assert lines[1].endswith(", 94 other reasons")
    assert max(map(len, lines)) < 160


def test_html_has_each_step_with_its_reasons_and_a_plot_of_rows():
    elements = parsed(report(*STEPS)._repr_html_())
    cells = [[cell.text or "" for cell in row] for row in elements if row.tag == "tr"]
    assert cells[1:] == [
        ["policy_rollout_mapper", "100", "700", "", "800", "0.25", ""],
        ["math_verify_mapper", "800", "", "", "800", "cached", ""],
        ["pass_rate_filter", "800", "", "300", "500", "0.25", "too_hard 200, too_easy 100"],
    ]
    widths = [float(each.get("width")) for each in elements if each.tag == "rect"]
    assert widths == [15, 120, 120, 75]


def test_texts_are_escaped_and_nothing_is_loaded():
    shown = report(step(EVIL, 2, 1, dropped={EVIL: 1}), project_name=EVIL)
    plots = notebook.bars(EVIL, [(EVIL, 1)]) + notebook.histogram(EVIL, [0, 1], [3])
    html = shown._repr_html_() + plots + notebook.paragraph(notebook.listed_names([EVIL] * 50))
    tags = {each.tag for each in parsed(html)}
    assert tags <= {
        "div",
        "table",
        "caption",
        "tr",
        "th",
        "td",
        "figure",
        "figcaption",
        "svg",
        "text",
        "rect",
        "p",
    }
    for text in (html, str(shown)):
        assert not {"\x1b", "\u202e"} & {*text}
    assert "http" not in html
    assert "style=" in html
    assert "<style" not in html  # It would hold for the whole notebook.
    assert len(html) < 12_000


@pytest.mark.parametrize("counts", [[], [0, 0], [1], [0, 5, 2]])
def test_a_histogram_has_a_bar_for_each_count(counts):
    edges = list(range(len(counts) + 1))
    heights = [
        float(each.get("height"))
        for each in parsed(notebook.histogram("reward", edges, counts))
        if each.tag == "rect"
    ]
    highest = max(counts, default=0) or 1
    assert heights == [pytest.approx(n / highest * 94, abs=0.1) for n in counts]


def test_more_bars_than_fit_are_counted():
    elements = parsed(notebook.bars("rows", [(f"step_{n}", n) for n in range(40)]))
    assert sum(each.tag == "rect" for each in elements) == 24
    assert [each.text for each in elements if each.tag == "text"][-1] == "16 more"


def test_in_a_notebook_libraries_do_not_ask_for_ipywidgets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    logger = logging.getLogger("ray.widgets.util")
    monkeypatch.setattr(logger, "level", logging.INFO)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notebook.quiet_libraries()
        warnings.warn("IProgress not found. Please update jupyter", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert [str(each.message) for each in caught] == ["something else"]
    assert not logger.isEnabledFor(logging.INFO)
