"""The page in a real browser: what it shows, what its keys do, and that no text of it can run."""

import os

import browser as browsers
import numpy as np
import page_fixture
import pyarrow as pa
import pytest

from rejuice.pipelines.analysis.figures import SourceFigures
from rejuice.pipelines.analysis.page.build import (
    PageColumn,
    PageCurves,
    PageRun,
    PageStep,
    build_page,
)
from rejuice.pipelines.analysis.page.rows import slug_column
from rejuice.pipelines.analysis.page.tokens import COLUMN as TOKENS
from rejuice.pipelines.analysis.rows import BY_TRAINING

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser():
    found = browsers.start()
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    hostile, plain = folder / "<script>alert(1)<|>.html", folder / "plain.html"
    build_page(page_fixture.page_data(), hostile)
    build_page(page_fixture.page_data(hostile=False), plain)
    return {"hostile": hostile, "plain": plain}


@pytest.fixture
def page(browser, pages):
    browser.desktop()
    browser.requested()
    browser.console()
    browser.open(pages["plain"])
    return browser


def show_all(browser):
    """Open everything that can be opened, and draw every plot."""
    browser.run("nextGroup(1)")
    browser.wait("return document.getElementById('group').dataset.group !== undefined")
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.run(
        "document.querySelectorAll('.plot').forEach((each) => drawInto(each, each.traces, each.layout))"
    )
    browser.wait(
        "return [...document.querySelectorAll('.plot')].every((each) => each.dataset.drawn)"
    )


def tags(browser):
    """How many elements there are of each kind, outside of plots, marks and boxes of text."""
    return browser.run(
        """
        const counts = {};
        for (const node of document.querySelectorAll("*")) {
          if (node.closest(".plot, tr.open") || node.matches(".ctl, mark, span, tbody tr, tbody td")) continue;
          counts[node.tagName] = (counts[node.tagName] || 0) + 1;
        }
        return counts;
        """
    )


def test_what_is_masked_and_what_a_condition_is_about_is_shown(page, tmp_path):
    overview = "document.getElementById('overview').textContent"
    assert "masked" not in page.run(f"return {overview}")
    data = page_fixture.page_data(hostile=False)
    only = data.sets[0]
    first, *others = only.figures["funnel"]
    funnel = [first.model_copy(update={"matched": 5}), *others]
    figures = {**only.figures, "masked": 0.25, "funnel": funnel}
    build_page(data._replace(sets=(only._replace(figures=figures),)), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert "25.0%of a response's tokens masked" in page.run(f"return {overview}")
    names = "document.querySelector('#overview .plot[aria-label=Funnel]').traces[0].y[0]"
    assert page.run(f"return {names}") == "1 math_verify_mapper (5 of 12 rows)"


def test_nothing_is_loaded_and_nothing_is_logged(page, pages):
    show_all(page)
    assert page.console() == []
    assert {url.split("#")[0] for url in page.requested()} == {pages["plain"].resolve().as_uri()}


def test_hostile_texts_stay_texts(page, pages):
    show_all(page)
    expected = tags(page)
    page.console()
    page.requested()
    page.open(pages["hostile"])
    show_all(page)
    assert page.run("return window.hit") is None
    assert page.console() == []
    assert len({url.split("#")[0] for url in page.requested()}) == 1
    found = tags(page)
    for dangerous in ("SCRIPT", "IFRAME", "IMG", "SVG", "A", "BASE", "LINK", "META", "STYLE", "B"):
        assert found.get(dangerous) == expected.get(dangerous), dangerous
    assert found == expected
    assert page.run("return document.title").startswith("project ")


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_group_shows_every_text_as_it_is(page, pages, group):
    page.open(pages["hostile"], f"#set=0&group={group}&theme=dark")
    page.wait("return document.getElementById('group').dataset.group === arguments[0]", str(group))
    only = page_fixture.page_data().sets[0]
    boxes = page.run(
        "return [...document.querySelectorAll('#group pre.text')].map((e) => e.textContent)"
    )
    for text in only.row_texts.slice(group * 4, 4)["response"].to_pylist():
        assert page_fixture.shown_as(text) in boxes
    prompt = only.group_texts["prompt"][group].as_py()[0]
    assert page_fixture.shown_as(f"{prompt['role']}: {prompt['content']}") in boxes
    whole = page.run("return document.getElementById('group').textContent")
    for name in ("extracted_answer", "raw_answer"):
        for text in only.row_texts.slice(group * 4, 4)[name].to_pylist():
            assert page_fixture.shown_as(text) in whole
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    assert page.run("return window.hit") is None


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_card_shows_its_evidence(page, pages, group):
    page.open(pages["hostile"], f"#set=0&group={group}")
    page.wait("return document.getElementById('group').dataset.group === arguments[0]", str(group))
    only = page_fixture.page_data().sets[0]
    for at, row in enumerate(only.row_texts.slice(group * 4, 4).to_pylist(), group * 4):
        boxes, marked, lines = page.run(
            """
            const card = document.querySelector(`#group article[data-row="${arguments[0]}"]`);
            const texts = (query) => [...card.querySelectorAll(query)].map((e) => e.textContent);
            return [texts(".evidence pre.text"), texts("pre.text mark"), texts(".evidence dd")];
            """,
            at,
        )
        of = {each["name"]: each["text"] for each in row[page_fixture.EVIDENCE]}
        shown = page_fixture.shown_as
        assert boxes == [shown(of["raw_failure"]), shown(of["raw_answer"])]
        assert marked == [shown(row["extracted_answer"])]
        start, end = of["found_at"].split(":")
        assert lines[0] == f"answer found by last box, characters {start} to {end}"
        assert f"its cosine {of['nearest_cosine']}" in lines
        assert any(shown(of["nearest_response_id"]) in line for line in lines)
    assert page.run("return window.hit") is None
    assert page.console() == []


def test_the_nearest_response_is_gone_to(page):
    show_all(page)
    page.run("document.querySelector('#group .nearest_response_id button').click()")
    wanted = page.run(
        "return document.querySelector('#group .nearest_response_id bdi').textContent"
    )
    assert page.run("return document.activeElement.dataset.response") == wanted


def test_a_judges_words_are_searched(page):
    page.run("document.getElementById('search').value = 'NO SCORE FOR 11'; applyFilters()")
    assert page.filtered(1) == 1


@pytest.mark.parametrize(
    ("evidence", "marked"),
    [
        # Characters are counted as Python counts them, and U+1F600 is two for a browser.
        ({"found_by": "boxed", "found_at": "12:14"}, ["before \U0001f600 is "]),
        ({"found_by": "boxed"}, []),
        ({"found_at": "not a place"}, ["before \U0001f600 is 42, later "]),
        ({}, ["before \U0001f600 is 42, later "]),
    ],
)
def test_the_answer_is_marked_where_it_was_found(page, tmp_path, evidence, marked):
    import pyarrow as pa

    data = page_fixture.page_data(hostile=False)
    only = data.sets[0]
    texts = only.row_texts.select(["response_id"])
    n = texts.num_rows
    for name, value in {
        "response": "before \U0001f600 is 42, later 42",
        "extracted_answer": "42",
        page_fixture.EVIDENCE: [{"step": 1, "name": k, "text": v} for k, v in evidence.items()],
    }.items():
        texts = texts.append_column(name, pa.array([value] * n))
    build_page(data._replace(sets=(only._replace(row_texts=texts),)), tmp_path / "p.html")
    page.open(tmp_path / "p.html", "#set=0&group=0")
    page.wait("return document.getElementById('group').dataset.group")
    found = page.run(
        """
        const box = document.querySelector("#group article pre.text");
        return [...box.querySelectorAll("mark")].map((mark) => mark.previousSibling.textContent);
        """
    )
    assert found == marked
    assert page.console() == []


def test_labels_of_plots_are_texts(page, pages):
    page.open(pages["hostile"])
    show_all(page)
    names = page.run(
        "return [...document.querySelectorAll('.plot text')].map((e) => e.textContent)"
    )
    assert any("<script>window.hit=1" in name for name in names)
    found = page.run(
        "return document.querySelectorAll('.plot a, .plot script, .plot img, .plot iframe').length"
    )
    assert found == 0
    assert page.run("return window.hit") is None


def test_a_planted_handler_or_script_could_not_run(page):
    """The policy: even what became markup by a mistake of ours stays without effect."""
    page.run(
        """
        const place = document.createElement("div");
        place.innerHTML = "<img src=x onerror='window.hit=1'><b onclick='window.hit=2' id=planted>b</b>";
        document.body.append(place);
        document.getElementById("planted").click();
        const script = document.createElement("script");
        script.textContent = "window.hit=3";
        document.head.append(script);
        """
    )
    page.wait("return document.querySelector('img').complete")
    assert page.run("return window.hit") is None
    assert len(page.console()) >= 2


def test_filters_and_search(page):
    assert page.filtered(12) == 3

    page.choose("fate", "-1")
    assert page.filtered(8) == 2
    page.choose("fate", "dropped")
    assert page.filtered(4) == 1
    page.choose("fate", "")
    page.choose(
        "verdict", page.run("return String(samples.set.slugs.verdict.indexOf('correct') + 1)")
    )
    assert page.filtered(7) == 3
    page.choose("verdict", "")
    page.choose("least", "1")
    assert page.filtered(7) == 3
    page.choose("least", "")
    page.choose("words", "ANSWER 11:")
    assert page.filtered(1) == 1
    page.choose("words", "what is 2?")
    assert page.filtered(4) == 1
    page.choose("words", "nowhere")
    assert page.filtered(0) == 0
    page.run("document.querySelector('#filters button[type=reset]').click()")
    assert page.filtered(12) == 3


def test_keys(page):
    from selenium.webdriver.common.keys import Keys

    def opened():
        return page.run("return document.getElementById('group').dataset.group")

    # The first of the list is open from the start.
    first = page.wait("return document.getElementById('group').dataset.group")
    assert first == page.run("return document.querySelector('#list tbody tr').dataset.group")
    page.key("j")
    page.wait("return document.getElementById('group').dataset.group !== arguments[0]", first)
    page.key("k")
    page.wait("return document.getElementById('group').dataset.group === arguments[0]", first)
    assert f"group={first}" in page.run("return location.hash")
    page.key(Keys.ESCAPE)
    assert opened() is None
    page.run("document.querySelector('#list tbody tr:last-child').focus()")
    page.key(Keys.ENTER)
    page.wait("return document.getElementById('group').dataset.group")
    page.key("/")
    assert page.run("return document.activeElement.id") == "search"
    page.key("answer 11:" + Keys.ENTER)
    page.filtered(1)
    page.key(Keys.ESCAPE)
    page.key("f")
    assert page.run("return document.getElementById('failures').checked")
    page.key("]")
    page.wait("return document.getElementById('set').value === '1'")
    page.key("[")
    page.wait("return document.getElementById('set').value === '0'")
    page.key("2")
    page.wait(
        "return Math.abs(document.getElementById('samples').getBoundingClientRect().top) < 200"
    )
    page.key("?")
    assert page.run("return document.getElementById('keys').open")
    sections = page.run("return document.querySelectorAll('main > section').length")
    assert f"1 to {sections}" in page.run("return document.getElementById('keys').innerText")
    page.key(Keys.ESCAPE)
    page.wait("return !document.getElementById('keys').open")


def test_training_steps_are_compared(page, tmp_path):
    build_page(page_fixture.page_data(training=True), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    show_all(page)
    page.wait("return document.querySelector('#change table')")
    rows = page.run(
        "return [...document.querySelectorAll('#change tbody tr')].map((e) => [...e.cells].map((c) => c.dataset.value))"
    )
    assert [float(each) for each in rows[0][1:]] == pytest.approx(
        [0.475, 0.475, 0]
    )  # Of the rows kept.
    shares = [[float(each) for each in row] for row in page.table("Groups over steps")]
    assert shares == [pytest.approx([step, 1 / 3, 2 / 3, 0, 1 / 3]) for step in (1, 2)]
    assert page.run("return document.querySelectorAll('[data-figure$=\"over steps\"]').length") == 3
    assert page.run("return window.hit") is None
    assert page.console() == []


def test_rows_that_training_itself_drops(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    only = data.sets[0]
    fate = next(each for each in only.columns if each.name == "fate")
    fate_N = fate.values.copy()
    fate_N[7] = BY_TRAINING
    last = PageStep(BY_TRAINING, "training", (), {"plain 1": "more groups than were asked for"})
    changed = only._replace(
        columns=tuple(x._replace(values=fate_N) if x is fate else x for x in only.columns),
        steps=(*only.steps, last),
    )
    build_page(data._replace(sets=(changed,)), tmp_path / "p.html")
    page.open(tmp_path / "p.html", "#set=0&group=1")
    page.wait("return document.getElementById('group').dataset.group")

    def path(row):
        return page.run(
            "return [...[...document.querySelectorAll(`article[data-row='${arguments[0]}'] .path`)]"
            ".pop().children].map((e) => e.textContent)",
            row,
        )

    assert len(path(6)) == 2
    assert path(6)[-1].endswith("dropped: plain 1 (meaning plain 8)")
    assert len(path(7)) == 4
    assert path(7)[-1] == "trainingdropped: plain 1 (more groups than were asked for)"
    choices = page.run(
        "return [...document.getElementById('filters').fate.options].map((e) => [e.value, e.text])"
    )
    assert ["0", "dropped by training"] in choices
    for value, rows in (("0", 1), ("2", 3), ("dropped", 4)):
        page.run(
            "const f = document.getElementById('filters').fate; f.value = arguments[0];"
            "f.dispatchEvent(new Event('change', { bubbles: true }))",
            value,
        )
        page.filtered(rows)


def headings(page):
    page.wait("return document.querySelector('#change table')")
    return page.run(
        "return [...document.querySelectorAll('#change h3, #change .quiet')].map((e) => e.textContent)"
    )


def test_prompts_are_the_same_by_their_id_not_by_how_they_begin(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    a, b = data.sets
    ids = b.group_texts["prompt_id"].to_pylist()
    renamed = b.group_texts.set_column(0, "prompt_id", pa.array([f"{x} too" for x in ids]))
    for name, other, shared in (
        ("same", b, True),
        ("others", b._replace(group_texts=renamed), False),
    ):
        build_page(data._replace(sets=(a, other)), tmp_path / f"{name}.html")
        page.open(tmp_path / f"{name}.html")
        assert ("Prompts in both that moved most" in headings(page)) is shared


def test_nothing_is_shown_of_responses_whose_texts_are_left_out(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    build_page(data, tmp_path / "p.html", most_bytes=1)
    page.open(tmp_path / "p.html")
    assert headings(page)[-1].startswith("Texts are left out of this page")


def test_each_run_has_its_own_curves(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    points = data.curves[0].points
    curves = PageCurves("a", points), PageCurves("b", points[:2])
    sets = tuple(each._replace(run=run) for run, each in zip("ab", data.sets, strict=True))
    build_page(data._replace(curves=curves, sets=sets), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert page.table("Reward")[-1] == ["2", "0.2", "null", "0.5", "null"]
    assert [row[0] for row in page.table("Groups over steps")] == ["1", "2"]
    assert page.table("Groups over steps")[0][2] == "null"  # Run b has no step 1.
    assert page.console() == []


def test_words_are_found_in_turns(page):
    for words, rows in (("plain 19", 1), ("nowhere", 0)):
        page.run(
            "const f = document.getElementById('filters').words; f.value = arguments[0];"
            "f.dispatchEvent(new Event('change', { bubbles: true }))",
            words,
        )
        page.filtered(rows)


def test_signs_are_those_of_the_audit_with_their_commands(page, tmp_path):
    data = page_fixture.page_data()
    signs = (
        {"name": "<b>length</b> pays", "set": "", "p": 0.0001, "effect": 0.21, "alarm": True, "reason": "", "command": "rejuice audit '<b>' --rows a"},
        {"name": "many boxes", "set": "step 1", "p": None, "effect": None, "alarm": False, "reason": "too few groups (2)", "command": "rejuice audit b"},
    )  # fmt: skip
    build_page(data._replace(signs=signs), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert [row[:6] for row in page.table("Signs")] == [
        ["<b>length</b> pays", "all rows", "0.0001", "0.21", "alarm", ""],
        ["many boxes", "step 1", "null", "null", "", "too few groups (2)"],
    ]
    commands = page.run(
        "return [...document.querySelectorAll('#signs code')].map((e) => e.textContent)"
    )
    assert commands == [each["command"] for each in signs]
    page.run("document.querySelector('#signs button').click()")
    page.wait(
        "const s = String(getSelection()); return s || document.querySelector('#signs button').textContent === 'Copied'"
    )
    assert page.console() == []


SIZE = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}


def first_set(data, **changes):
    """The page of its first set only, with other fields."""
    return data._replace(sets=(data.sets[0]._replace(**changes),), curves=())


def test_eight_responses_fit_one_screen(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    groups = np.array([0, 8], np.int32)
    data = first_set(data, groups_at=groups, group_texts=data.sets[0].group_texts.slice(0, 2))
    runs = (PageRun("out/a.parquet", "a.yaml", "small/policy", "2026-01-02 03:04 UTC"),)
    build_page(data._replace(runs=runs), tmp_path / "p.html")
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
    page.open(tmp_path / "p.html", "#set=0&group=0")
    titles = page.run("return [...document.querySelectorAll('h2')].map((e) => e.textContent)")
    assert titles[:2] == ["Overview", "Samples"]
    facts = page.run(
        "return [...document.querySelectorAll('.fact')].map((e) => e.innerText.split('\\n'))"
    )
    assert dict(fact[:2] for fact in facts) == {
        "recipe": "a.yaml", "model": "small/policy", "date": "2026-01-02 03:04 UTC",
        "prompts × responses": "3 × 4", "accuracy": "61.1%95%: 30.8% to 84.8%, over 3 prompts",
        "pass@1, 2, 4": "61.1%, 83.3%, 100.0%",
    }  # fmt: skip
    page.wait("return document.getElementById('group').dataset.group === '0'")
    assert page.run("return document.querySelector('#group h3').textContent") == "rows 4 to 5"
    page.run("document.getElementById('group').scrollIntoView()")
    ends = page.run(
        "return [...document.querySelectorAll('#group article')].map((e) => e.getBoundingClientRect().bottom)"
    )
    assert len(ends) == 8
    assert max(ends) <= 900
    whole = page.run("return document.body.innerText")
    assert not {"±", "std"} & set(whole.split())
    page.desktop()


def test_the_list_is_ordered_by_one_column(page):
    """Groups with the same spread of rewards: that with the lower pass rate is first."""
    headings = page.run("return [...document.querySelectorAll('#list th[aria-sort]')].map((e) => e.textContent)")  # fmt: skip
    assert headings == ["sd"]
    lines = page.run("return samples.table.rows({ order: 'applied' }).data().toArray().map((e) => [e[7], e[3]])")  # fmt: skip
    assert lines == sorted(lines, key=lambda each: (-each[0], each[1]))


def tiles(page):
    return page.run(
        """
        return Object.fromEntries([...document.querySelectorAll(".tile")].map((tile) =>
          [tile.querySelector("div").textContent, [tile.querySelector("b").textContent, tile.title]]));
        """
    )


def test_rows_that_steps_added_have_their_own_tile(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    only = data.sets[0]
    assert tiles(page)["rows after sampling"] == ["12", ""]
    added = only._replace(figures={**only.figures, "sampled": 8})
    build_page(data._replace(sets=(added,)), tmp_path / "added.html")
    page.open(tmp_path / "added.html")
    found = tiles(page)
    names = ("rows after sampling", "rows added by later steps", "kept of all rows")
    assert [found[name][0] for name in names] == ["8", "4", "8"]


def test_what_cannot_be_known_without_dropped_rows_is_a_dash_with_a_reason(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    only = data.sets[0]
    groups = only.figures["groups"]._replace(without_signal=None)
    left = only._replace(figures={**only.figures, "sampled": None, "groups": groups})
    build_page(data._replace(sets=(left,)), tmp_path / "left.html")
    page.open(tmp_path / "left.html")
    found = tiles(page)
    why = "Not known: the rows that were dropped are not on file."
    assert found["groups without signal"] == ["–", why]
    assert found["rows that are left"][0] == "12"
    assert not {"rows after sampling", "kept"} & found.keys()
    assert "without signal" not in page.run("return document.getElementById('lengths').textContent")


def test_plots_that_say_nothing_are_lines_with_a_table(page):
    flat = page.run(
        "return [...document.querySelectorAll('.flat > details')].map((e) => e.firstChild.textContent)"
    )
    assert "Values of format: 0.100 in all 12 responses" in flat
    assert page.table("Values of format")[0][2] == "12"
    # One component is constant: nothing is correlated with it.
    assert page.run("return document.querySelectorAll('[data-figure^=Correlation]').length") == 0


def test_a_training_run_opens_at_its_curves(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    points = tuple(
        {"step": s, "rejuice/validation/held_out/mean@8": 0.2 + s / 10,
         "rejuice/validation/held_out/mean_low": 0.1, "rejuice/validation/held_out/mean_high": 0.625,
         "rejuice/reward": s / 10, "critic/score/mean": s / 10, "rejuice/reward_format": 0.5}
        for s in (0, 1, 1234)
    )  # fmt: skip
    build_page(data._replace(curves=(PageCurves("", points),)), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    titles = page.run("return [...document.querySelectorAll('h2')].map((e) => e.textContent)")
    assert titles[:3] == ["Training", "Samples", "Overview"]
    fact = "return document.querySelector('.fact').innerText"
    assert page.run(fact).split("\n")[0] == "validation, step 0 to 1,234"
    assert "95%: 10.0% to 62.5%" in page.run(fact)
    # What is constant, and what repeats another line, is in the table only.
    lines = page.run(
        "return document.querySelector('#training .plot[aria-label=Reward]').traces.map((e) => e.name)"
    )
    assert lines == ["reward"]
    assert page.table("Reward")[2] == ["1234", "123.4", "123.4", "0.5"]
    # The mean of a validation has its interval.
    bars = "document.querySelector('#training .plot[aria-label=Validation]').traces[0].error_y"
    assert page.run(f"return {bars}.array.map((e) => e.toFixed(3))")[0] == "0.425"
    assert page.table("Validation")[0] == ["0", "0.2", "0.1", "0.625"]


def test_figures_of_the_policy_have_axes_of_their_own(page, tmp_path):
    names = ("entropy", "ppo_kl", "grad_norm", "pg_clipfrac")
    points = tuple({"step": s, **{f"actor/{name}": s / 10 for name in names}} for s in (1, 2, 3))
    data = page_fixture.page_data(hostile=False, training=True)
    build_page(data._replace(curves=(PageCurves("", points),)), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    for title in ("Entropy", "KL divergence", "Gradient norm", "Clipped share"):
        place = f"document.querySelector('#training .plot[aria-label=\"{title}\"]')"
        assert page.run(f"return {place}.traces.length") == 1, title


def test_a_training_run_opens_at_its_last_step(page, tmp_path):
    data = page_fixture.page_data(hostile=False, training=True)
    sets = [data.sets[0]._replace(name=f"step {n}", step=n) for n in (1, 2, 3)]
    build_page(data._replace(sets=tuple(sets)), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert page.run("return current") == 2


def test_a_card_has_the_terms_of_its_reward_and_names_its_details(page):
    page.wait("return document.querySelector('#group article .terms') !== null")
    card = "document.querySelector('#group article.card')"
    terms = page.run(f"return {card}.querySelector('.terms').textContent")
    assert terms.startswith("reward = ")
    assert "format +0.100" in terms
    assert page.run(f"return {card}.querySelector('summary').textContent").startswith("Details: ")


def test_rows_are_filtered_by_a_column_of_ones_own(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    own = (
        PageColumn("level", np.arange(12.0)),
        slug_column("topic", pa.chunked_array([["a", "b"] * 6])),
    )
    build_page(first_set(data, columns=(*data.sets[0].columns, *own)), tmp_path / "p.html")
    page.open(tmp_path / "p.html")

    page.choose("column", "topic")
    page.choose("value", page.run("return String(samples.set.slugs.topic.indexOf('b') + 1)"))
    assert page.filtered(6) == 3
    page.choose("column", "")
    page.choose("figure", "level")
    page.choose("least", "8")
    assert page.filtered(4) == 1


def test_what_is_printed_has_every_plot_as_wide_as_a_page(page):
    page.wait("return globalThis.Plotly !== undefined")
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.wait(
        "return [...document.querySelectorAll('.plot')].every((e) => e.querySelector('.main-svg'))"
    )
    widths = page.run(
        "return [...document.querySelectorAll('.plot .main-svg')].map((e) => e.getAttribute('width'))"
    )
    assert {*widths} == {"680"}


def test_turns_are_a_conversation_with_long_results_folded(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    turns = [
        [("role", "policy"), ("text", "search: eggs")],
        [("role", "tool"), ("tool", "search"), ("arguments", '{"q": "eggs"}'), ("observation", "egg " * 200), ("status", "failed")],
        [("role", "judge"), ("text", "answer: 12")],
    ]  # fmt: skip
    texts = data.sets[0].row_texts
    column = pa.array([turns] * len(texts), pa.list_(pa.map_(pa.string(), pa.string())))
    at = texts.column_names.index("turns")
    build_page(
        first_set(data, row_texts=texts.set_column(at, "turns", column)), tmp_path / "p.html"
    )
    page.open(tmp_path / "p.html")
    page.wait("return document.querySelector('#group .preview')")
    preview = page.run("return document.querySelector('#group .preview').innerText.split('\\n')")
    assert preview[0] == "policy search: eggs"
    page.run("document.querySelector('#group article details').open = true")
    found = page.run(
        "return [...document.querySelector('.turns').children].map((e) => [e.className, e.innerText])"
    )
    assert [each for each, _ in found] == ["turn policy", "turn tool", "turn model"]
    assert 'search {"q": "eggs"}' in found[1][1]
    assert "(800 characters)" in found[1][1]
    assert "failed" in found[1][1]
    assert "egg " * 100 not in found[1][1]
    page.run("document.querySelector('.turn.tool details').open = true")
    shown = page.run("return document.querySelector('.turn.tool pre').textContent")
    assert shown == "egg " * 200


def test_tokens_are_shaded_by_their_log_probability(page, tmp_path):
    data = page_fixture.page_data(hostile=False)
    texts = data.sets[0].row_texts
    at = texts.column_names.index("response")
    texts = texts.set_column(at, "response", pa.array(["It is plain 0 \U0001f600."] * 12))
    texts = texts.drop_columns(["turns", page_fixture.EVIDENCE])
    tokens = {
        "lengths": [3, 3, 6, 2, 3, 0],
        "logprobs": [0, -250, -600, -4, -10, -1],
        "weights": [0, 100, 25, 100, 100, 100],
    }
    texts = texts.append_column(TOKENS, pa.array([tokens] * 12))
    build_page(first_set(data, row_texts=texts), tmp_path / "p.html")
    page.open(tmp_path / "p.html", "#set=0&group=0")
    page.wait("return document.getElementById('group').dataset.group")
    box = "document.querySelector('#group article[data-row=\"0\"] pre.text')"
    assert page.run(f"return {box}.textContent") == "It is plain 0 \U0001f600."
    shades = page.run(
        f"return [...{box}.querySelectorAll('.token')].map((e) => [e.textContent, e.style.getPropertyValue('--shade'), e.title])"
    )
    assert shades == [
        ["It ", "0.000", "weight 0.0, ln p 0.0, p 100.0%"],
        ["is ", "0.500", "ln p -2.5, p 8.2%"],
        ["plain ", "1.000", "weight 0.3, ln p -6.0, p 0.2%"],
        ["\U0001f600.", "0.020", "ln p -0.1, p 90.5%"],
    ]
    assert page.run(f"return {box}.querySelector('mark').textContent") == "plain 0"
    assert page.run(f"return {box}.querySelector('.masked').textContent") == "It "
    colour = f"return getComputedStyle({box}.querySelector('.token')).backgroundColor"
    shaded = page.run(colour)
    page.run("document.querySelector('.shades input').click()")
    assert page.run(colour) != shaded


def test_two_runs_have_their_prompts_beside_each_other(page, tmp_path):
    data = page_fixture.page_data()
    a, b = data.sets
    reward = next(each for each in b.columns if each.name == "reward")
    changed = reward._replace(values=reward.values + np.repeat([0.0, 0.0, 0.25], 4))
    form = next(each for each in b.columns if each.name == "reward_format")
    less = form._replace(values=form.values - np.repeat([0.0, 0.5, 0.25], 4))
    of_b = {"reward": changed, "reward_format": less}
    b = b._replace(columns=tuple(of_b.get(x.name, x) for x in b.columns))
    change = {
        "reward": [0.5, 0.75],
        "kept": [1200, 8],
        "length": [8.5, 9.0],
        "by_chance": [0.1, 0.4],
    }
    pair = {"sets": [0, 1], "prompts": [3, 0, 0], "change": change, "command": "rejuice diff <b> b"}
    build_page(data._replace(sets=(a, b), curves=(), pair=pair), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    page.wait("return document.querySelectorAll('#pair article').length === 8")
    rows = page.run(
        "return [...document.querySelectorAll('#both tbody tr')].map((e) => [...e.cells].map((c) => c.textContent))"
    )
    assert ["mean reward of kept rows", "0.500", "0.750", "0.250"] in rows
    assert ["kept rows", "1,200", "8", "-1,192"] in rows
    assert ["groups without signal", "33.3%", "33.3%", "0.0 points"] in rows
    first = page.run("return document.getElementById('pair-prompt').selectedOptions[0].textContent")
    assert first.startswith("row 6: 0.350, 0.600 (+0.250)")
    heads = page.run("return [...document.querySelectorAll('#pair h3')].map((e) => e.textContent)")
    assert [each.split(",")[0] for each in heads] == ["A: row 6", "B: row 6"]
    assert "+0.100 to +0.400" in page.run("return document.getElementById('both').textContent")
    figure = "document.querySelector('#pair [name=pair-figure]')"
    offered = page.run(f"return [...{figure}.options].map((e) => e.value)")
    names = [f"reward_{name}" for name in a.components]
    assert offered == ["reward", *names, "advantage", "length"]
    page.run(f"{figure}.value = 'reward_format'; {figure}.dispatchEvent(new Event('change'))")
    page.wait("return document.querySelector('#pair h3').textContent.startsWith('A: row 5')")
    first = page.run("return document.getElementById('pair-prompt').selectedOptions[0].textContent")
    assert first.startswith("row 5: 0.100, -0.400 (-0.500)")
    assert page.run("return window.hit") is None
    assert page.console() == []


def test_light_and_dark(page):
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    page.run("document.getElementById('theme').click()")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != ground
    assert "theme=dark" in page.run("return location.hash")
    assert page.console() == []


CONTRAST = """
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((c) => {
    const s = c / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!colour.startsWith("rgba(0, 0, 0, 0") && !colour.startsWith("color(")) return colour;
  }
  return "rgb(255, 255, 255)";
};
const poor = [];
for (const node of document.querySelectorAll("h1, h2, h3, h4, p, td, th, button, summary, pre, .quiet, .hint, .dropped, .tile span, .ctl, mark, h4 b")) {
  if (!node.textContent.trim() || node.closest(".plot, .disabled") || !node.getClientRects().length) continue;
  const [a, b] = [luminance(getComputedStyle(node).color), luminance(ground(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
}
return poor;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_contrast(page, pages, theme):
    page.open(pages["plain"], f"#set=0&group=1&theme={theme}")
    page.wait("return document.getElementById('group').dataset.group")
    assert page.run(CONTRAST) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["plain", "hostile"])
def test_on_a_phone_nothing_is_wider_than_the_screen(page, pages, theme, kind):
    page.phone()
    page.open(pages[kind], f"#set=0&group=0&theme={theme}")
    show_all(page)
    width = page.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1] == 390
    overlap = page.run(
        """
        const boxes = [...document.querySelectorAll("main h2, main h3, article h4")]
          .map((each) => each.getBoundingClientRect());
        return boxes.some((a, at) => boxes.slice(at + 1).some((b) =>
          a.top < b.bottom - 1 && b.top < a.bottom - 1 && a.left < b.right - 1 && b.left < a.right - 1));
        """
    )
    assert not overlap
    page.desktop()


def test_a_browser_is_used_where_it_must_be(monkeypatch):
    monkeypatch.setattr(browsers, "CHROMIUM", browsers.Path("/nowhere/chromium"))
    monkeypatch.setenv("REJUICE_NEED_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        browsers.start()
    monkeypatch.delitem(os.environ, "REJUICE_NEED_BROWSER")
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        browsers.start()


def test_sources_have_a_table_where_there_are_several(page, tmp_path):
    count = "return document.querySelectorAll('[data-figure=\"By source\"]').length"
    assert page.run(count) == 0
    data = page_fixture.page_data(hostile=False)
    sources = {
        "math": SourceFigures(4, 32, 0.5, 0.75)._asdict(),
        "<b>judged": SourceFigures(4, 30, None, -0.25)._asdict(),
    }
    only = data.sets[0]
    changed = only._replace(figures={**only.figures, "sources": sources})
    build_page(data._replace(sets=(changed, *data.sets[1:])), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert page.table("By source") == [
        ["math", "4", "32", "0.5", "0.75"],
        ["<b>judged", "4", "30", "null", "-0.25"],
    ]
    sources["math"] |= {"policy_age": 1.25, "too_old": 8}
    build_page(data._replace(sets=(changed, *data.sets[1:])), tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    assert page.table("By source") == [
        ["math", "4", "32", "0.5", "0.75", "1.25", "8"],
        ["<b>judged", "4", "30", "null", "-0.25", "null", "0"],
    ]
    assert "<b>judged" in page.run(
        "return document.querySelector('[data-figure=\"By source\"]').textContent"
    )
