"""The site is built from what is here: every page, every link, nothing from the network."""

import importlib.util
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from typer.main import get_command

from rejuice.operators import installed
from rejuice.pipelines.cli.main import app

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]


class Html(HTMLParser):
    """Anchors of a page, where it links to, and what a browser would load with it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.update(attributes[key] for key in ("id", "name") if attributes.get(key))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif attributes.get("src"):
            self.loaded.append(attributes["src"])
        elif tag == "link" and attributes.get("rel") == "stylesheet":
            self.loaded.append(attributes["href"])


def builder():
    """`docs/build_site.py` as a module."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of a site that was built, by their paths, and its folder."""
    folder = tmp_path_factory.mktemp("site")
    assert builder().main(folder) == 0
    html = (folder / "html").resolve()
    return {path: Html(path) for path in sorted(html.rglob("*.html"))}, html


def test_every_link_leads_somewhere(site):
    pages, html = site
    seen = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # It is shown at any address, so that its links are absolute.
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            assert there.is_relative_to(html), f"{path.name} links out of the site: {target}"
            assert there.exists(), f"{path.name} links to {target}"
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].ids, f"{path.name}: {target}"
            seen += 1
    assert seen > 1000


def test_nothing_is_loaded_from_elsewhere(site):
    pages, _ = site
    assert not [target for page in pages.values() for target in page.loaded if "//" in target]


def test_every_page_is_in_the_navigation(site):
    pages, html = site
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = list(pages_of(nav))
    assert len(listed) == len({*listed})
    built = {path.relative_to(html).with_suffix(".md").as_posix() for path in pages}
    assert built - {"404.md"} == {*listed}


def pages_of(nav):
    """The pages of a navigation, or of a part of it."""
    if isinstance(nav, str):
        yield nav
    for part in nav if isinstance(nav, list) else ():
        for inner in part.values():
            yield from pages_of(inner)


def test_the_reference_has_every_command_and_name(site):
    pages, html = site
    made = builder()
    commands = (html / "reference" / "command-line.html").read_text("utf-8")
    for name in get_command(app).commands:
        assert f"rejuice {name}</code>" in commands
    python = pages[html / "reference" / "python.html"].ids
    for modules in made.PYTHON.values():
        for module, names in modules.items():
            assert {f"rejuice.{module}.{name}" for name in names.split()} <= python
    assert set(installed()) <= pages[html / "operators.html"].ids


def test_a_broken_link_ends_the_build(tmp_path, monkeypatch, capfd):
    made = builder()
    copied = made.gather

    def with_broken_link(folder):
        copied(folder)
        with (folder / "docs" / "glossary.md").open("a") as page:
            page.write("\n[nowhere](nowhere.md)\n")

    monkeypatch.setattr(made, "gather", with_broken_link)
    assert made.main(tmp_path / "site") != 0
    assert "page does not exist" in "".join(capfd.readouterr())
