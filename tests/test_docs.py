"""What the documents say can be done: every command, recipe and link in them."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from rejuice.operators import get
from rejuice.pipelines.recipe.read import load
from rejuice.pipelines.recipe.train import Train
from rejuice.trainer.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("[A-Z]*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = list(dict.fromkeys(PAGES))
COMMANDS = typer.main.get_command(app).commands


def blocks(page, *languages):
    """The fenced blocks of a page in some languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def commands(page):
    """The words of every `rejuice` command in a page's shell blocks and in its running text."""
    text = "\n".join(blocks(page, "bash", "sh", "console")).replace("\\\n", " ")
    lines = re.findall(r"^\s*(?:\$ )?rejuice (.*)$", text, re.MULTILINE)
    lines += re.findall(r"`rejuice ([^`]*)`", page.read_text("utf-8"))
    return [shlex.split(re.split(r"[|>&]", line)[0], comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page):
    for words in commands(page):
        if words[0].startswith("-") or words[0].isupper():
            continue
        assert words[0] in COMMANDS, f"there is no `rejuice {words[0]}`"
        command = COMMANDS[words[0]]
        if hasattr(command, "commands") and words[1:]:
            assert words[1] in command.commands, f"there is no `rejuice {words[0]} {words[1]}`"
            command = command.commands[words[1]]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        takes_fields = type(command).__name__ == "OverridableCommand"
        for word in words[1:]:
            name = word.partition("=")[0]
            if not name.startswith("-") or name in known or name == "--STEP.FIELD":
                continue
            step, dot, path = name[2:].partition(".")
            field = path.partition(".")[0]
            assert dot, f"`rejuice {words[0]}` has no {name}"
            assert takes_fields, f"`rejuice {words[0]}` takes no fields"
            fields = Train if step == "train" else get(re.sub(r"_\d+$", "", step))
            assert field in fields.model_fields


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_of_make_exist(page):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    text = page.read_text("utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile, f"`make {target}` is not in the Makefile"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_recipes_are_right(page, tmp_path):
    for text in blocks(page, "yaml"):
        document = yaml.safe_load(text)
        if not isinstance(document, dict) or "process" not in document:
            continue
        if "custom_operator_paths" in document:
            continue  # Its operators are in another block.
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({"dataset_path": "a", "export_path": "b.parquet", **document}))  # fmt: skip
        load(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_operator_of_the_readme_is_an_operator(tmp_path):
    from rejuice.operators.registry import load_file

    (code,) = [x for x in blocks(ROOT / "README.md", "python") if "(Filter)" in x]
    (tmp_path / "mine.py").write_text(code)
    assert list(load_file(tmp_path / "mine.py")) == ["question_mark_filter"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
