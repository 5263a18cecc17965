"""Build the site: `make site`. It is `docs/`, the README and its neighbours, and generated pages.

The pages are gathered in `outputs/site`, where links to files of the repository become links
within the site; Zensical makes HTML of them, and fails where a link or an anchor leads nowhere. The
reference pages are generated from the code, so that they cannot be
stale.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files of the root, and the pages of the site that they become."""

PYTHON = {
    "Running recipes": {"pipelines": "Recipe run Result load"},
    "Writing operators": {
        "operators": "Operator Mapper Filter ResumableOperator Change Scope drop component "
        "component_columns Groups uniform_N",
        "operators.check": "check_operator",
    },
    "Grading answers": {
        "operators": "verify verify_batch extract_answer Verdict",
        "operators.verifier": "check_reference",
    },
    "Rewards for TRL": {"trainer.trl": "reward_funcs train_dataset grpo_settings"},
    "Errors": {"operators": "RejuiceError RecipeError DataError OperatorError EngineError"},
}
"""What the Python page documents: title, module, names."""


def main(folder: Path = ROOT / "outputs" / "site") -> int:
    """Gather the pages in `folder`, and build the site from them in `folder`/html.

    Returns:
        The exit status of Zensical: 0 where every link leads somewhere.
    """
    gather(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run([*command, "-f", folder / "mkdocs.yml"], check=False).returncode


def gather(folder: Path) -> None:
    """Write the pages of the site to `folder`/docs, and beside them the code that they document."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "docs"
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copytree(ROOT / "recipes", pages / "recipes", ignore=shutil.ignore_patterns("golden"))
    for source, page in PAGES.items():
        shutil.copyfile(ROOT / source, pages / page)
    for notebook in sorted(pages.glob("*.ipynb")):
        notebook.with_suffix(".md").write_text(notebook_page(notebook), "utf-8")
        notebook.unlink()
    for path in sorted(pages.rglob("*.md")):
        path.write_text(within_site(path.read_text("utf-8"), path.relative_to(pages)), "utf-8")
    reference = pages / "reference"
    reference.mkdir()
    (reference / "recipe.md").write_text(recipe_page(), "utf-8")
    (reference / "command-line.md").write_text(command_page(), "utf-8")
    (reference / "python.md").write_text(python_page(), "utf-8")
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    # The folders of the checkout, as the package that they become.
    for name in ("operators", "pipelines", "trainer"):
        shutil.copytree(ROOT / name, folder / "rejuice" / name, ignore=_no_code)


def _no_code(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_file() and not name.endswith(".py")]


def within_site(markdown: str, page: Path) -> str:
    """A page whose links to files of the repository lead to the site's pages instead.

    Args:
        markdown: its text.
        page: its path within the site.
    """
    roots = {Path(place): Path(source) for source, place in PAGES.items()}
    here = ROOT / roots.get(page, "docs" / page)

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target:
            return match[0]
        path = (here.parent / target).resolve().relative_to(ROOT).as_posix()
        path = PAGES.get(path, path.removeprefix("docs/")).replace(".ipynb", ".md")
        return f"{before}{'../' * (len(page.parts) - 1)}{path}{after}"

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    # Every second part is a block of code.
    parts[::2] = [_LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)


_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code, and the text that the code printed or returned."""
    parts: list[str] = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            shown = output.get("text") or output["data"]["text/plain"]
            parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def command_page() -> str:
    """Every command with its arguments and options, by Typer's own generator."""
    command = [sys.executable, "-m", "typer", "rejuice.pipelines.cli.main", "utils", "docs"]
    made = subprocess.run(
        [*command, "--name", "rejuice", "--title", "Command line"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return made.stdout


def python_page() -> str:
    """The public Python interface; mkdocstrings reads the rest from the source."""
    lines = ["# Python", ""]
    for title, modules in PYTHON.items():
        lines += [f"## {title}", ""]
        for module, names in modules.items():
            lines += [f"From `rejuice.{module}`:", ""]
            lines += [f"::: rejuice.{module}.{name}\n" for name in names.split()]
    return "\n".join(lines)


def recipe_page() -> str:
    """The keys of a recipe and of its `train:` section, from the JSON Schema of recipes."""
    schema = json.loads((ROOT / "docs" / "recipe.schema.json").read_text("utf-8"))
    keys = {key: spec for key, spec in schema["properties"].items() if key != "process"}
    theirs = [key for key, spec in keys.items() if spec == {"description": "For dj-process only."}]
    ours = {key: spec for key, spec in keys.items() if key not in theirs}
    lines = [
        "# Recipe",
        "",
        "Made from the [JSON Schema of recipes](../recipe.schema.json), which editors read and "
        "`rejuice ops --schema` prints. The steps of `process` are [operators](../operators.md).",
        "",
        "## Keys of a recipe",
        "",
        *_table(ours, schema),
        "| `process` | list | required | The steps, in order: `- operator: {field: value}`. |",
        "",
        "## Keys that only `dj-process` reads",
        "",
        ", ".join(f"`{key}`" for key in sorted(theirs)) + ".",
        "",
        "## Keys of `train:`",
        "",
        "[Fields of `train:`](../train-fields.md).",
    ]
    return "\n".join(lines) + "\n"


def _table(properties: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for key, spec in properties.items():
        inner = schema["$defs"].get(spec.get("$ref", "").rsplit("/", 1)[-1], {})
        fields = {f"{key}.{name}": each for name, each in inner.get("properties", {}).items()}
        for name, each in ({key: spec} | fields).items():
            known = f"`{json.dumps(each.get('default', {}))}`"
            default = "required" if name in schema["required"] else known
            meaning = " ".join(each.get("description", "").split()).replace("|", "\\|")
            yield f"| `{name}` | {_type(each)} | {default} | {meaning} |"


def _type(spec: Mapping[str, Any]) -> str:
    if "enum" in spec:
        return ", ".join(f"`{value}`" for value in spec["enum"])
    if "anyOf" in spec:
        # A reference is to the fields of a section, such as `train`.
        return " or ".join(_type(each) for each in spec["anyOf"])
    if spec.get("type") == "array":
        return f"list of {_type(spec['items'])}"
    return "fields" if "$ref" in spec else str(spec.get("type", "any"))


if __name__ == "__main__":
    sys.exit(main())
