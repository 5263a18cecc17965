"""The pictures of the page in the docs: made by `make docs-images`, and of what the page shows now.

Fonts differ between machines, so pixels are not compared, but sizes and the titles of sections.
"""

import os
import struct
from pathlib import Path

import browser as browsers
import pytest
from page_fixture import STEPS

from rejuice.pipelines.analysis.page.build import build_page
from rejuice.pipelines.analysis.page.rows import page_of
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions

pytestmark = [pytest.mark.browser, pytest.mark.slow]
IMAGES = Path(__file__).resolve().parents[4] / "docs" / "images"
SIZE = (1280, 860)
WRITE = os.environ.get("REJUICE_WRITE_IMAGES") == "1"
SECTIONS = ["Overview", "Samples", "Rewards", "Lengths and advantages", "Time", "Recipe"]


@pytest.fixture(scope="module")
def browser():
    found = browsers.start()
    metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    found.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield found
    found.close()


@pytest.fixture
def page(tmp_path, recipe_file, monkeypatch):
    """Recorded responses to arithmetic problems, as `rejuice data` writes them."""
    from rejuice.pipelines.engine.run import run
    from rejuice.pipelines.recipe import load

    write_dataset(
        tmp_path / "data.jsonl", "recorded", DemoOptions(seed=0, prompts=100, responses=8)
    )
    steps = [
        {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
        {"recorded_rollout_mapper": {"columns": ["responses"], "text": "text"}},
        {"diversity_reward_mapper": {"measure": "centroid"}},
        *STEPS,
    ]
    steps[7] = {
        "reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0, "diversity": 0.5}}
    }
    run(load(recipe_file(steps, project_name="arithmetic")))
    monkeypatch.chdir(tmp_path)  # Paths on the page are as they were given.
    export = Path("out", "curated.parquet")
    build_page(page_of([(export, open_stored(export))]), tmp_path / "p.html")
    return tmp_path / "p.html"


def size_of(path):
    """Width and height of a PNG file."""
    return struct.unpack(">II", path.read_bytes()[16:24])


@pytest.mark.parametrize(
    ("name", "part", "section"),
    [
        ("view_overview", "#set=0&theme=light", ""),
        ("view_rewards", "#set=0&theme=dark", "rewards"),
        ("view_samples", "#set=0&theme=light", "samples"),
    ],
)
def test_the_pictures_show_the_page(browser, page, name, part, section):
    browser.open(page, part)
    browser.wait("return document.getElementById('matches').dataset.rows")
    titles = browser.run("return [...document.querySelectorAll('main > section > h2')].map((e) => e.textContent)")  # fmt: skip
    assert titles == SECTIONS
    browser.wait("return document.getElementById('group').dataset.group")
    browser.run("document.getElementById(arguments[0])?.scrollIntoView()", section)
    browser.wait(
        """
        const near = [...document.querySelectorAll(".plot")].filter((each) => {
          const box = each.getBoundingClientRect();
          return box.bottom > 0 && box.top < innerHeight;
        });
        return near.every((each) => each.dataset.drawn);
        """
    )
    picture = IMAGES / f"{name}.png"
    if WRITE:
        picture.write_bytes(browser.driver.get_screenshot_as_png())
    assert size_of(picture) == SIZE
