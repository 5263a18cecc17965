"""Every command that a page, a recipe or a message recommends works.

Those of pages and recipes are read by the parsers of the programs themselves, and applied to the
recipe that they name; what they start takes long or needs a GPU, so it is not started here. Those
of messages are run: by the tests that are marked `recommended`, one for each message.
"""

import ast
import re
import shlex
from collections import Counter
from configparser import ConfigParser
from importlib.metadata import metadata, version
from itertools import chain
from pathlib import Path

import pytest
import typer
from each import check_each
from packaging.requirements import Requirement

from rejuice.operators import get
from rejuice.pipelines.cli.main import app
from rejuice.pipelines.cli.shared import overrides_of
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.train import Train
from rejuice.trainer.run import TrainingRun

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = typer.main.get_command(app).commands
CODE = [file for name in ("operators", "pipelines", "tools", "trainer") for file in sorted((ROOT / name).rglob("*.py"))]  # fmt: skip
HISTORY = ROOT / "CHANGELOG.md"  # It names commands of earlier versions.
PAGES = [*sorted({*ROOT.glob("[A-Z]*.md")} - {HISTORY}), *sorted((ROOT / "docs").rglob("*.md"))]
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
SOURCES = [*PAGES, *RECIPES, *CODE, ROOT / "docs" / "python.ipynb", ROOT / "Makefile"]
FLAGS = {"steps": "train.steps", "profile": "train.profile", "schedule": "train.schedule"}
PROGRAMS = r"rejuice|dj-process|pip install"
AT_LINE_START = re.compile(rf"^[ \t#]*(?:\$ |\$\(BIN\)/)?((?:{PROGRAMS})\b.*)$", re.MULTILINE)
IN_BACKTICKS = re.compile(rf"`((?:{PROGRAMS}) [^`]*)`")


def commands(file):
    """The commands of a file: the words, and whether it is a mention in running text."""
    text = file.read_text("utf-8")
    code = text
    if file.suffix == ".md":
        code = "\n".join(re.findall(r"^```(?:bash|sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))  # fmt: skip
    elif file.suffix in (".py", ".ipynb"):
        code = ""
    code = re.sub(r"\\\n[#\s]*", " ", code)
    code = re.sub(r" \$\([A-Z]+\)$", "", code, flags=re.MULTILINE)  # A variable of the Makefile.
    found = [(line, False) for line in AT_LINE_START.findall(code)]
    text = re.sub(r"\n\s*(?:# )?", " ", text)
    found += [(line, True) for line in IN_BACKTICKS.findall(text)]
    for line, mentioned in found:
        if "{" in line and file.suffix == ".py":
            continue  # A message: its command is made when it is shown.
        words = shlex.split(re.split(r"[|>&;]", line)[0], comments=True)
        if len(words) > 1:
            yield words, mentioned


ALL = {file: found for file in SOURCES if (found := list(commands(file)))}
RUN_OF_README = re.compile(r"(?:outputs/quickstart/first\.run/)?recipe\.yaml")


def recipe_of(path, page, folder):
    """The recipe that a command names; None for those that only its reader has."""
    if path.suffix == ".yaml" and path.parts[0] == "recipes":
        return ROOT / path
    if RUN_OF_README.fullmatch(str(path)) and page.name in ("README.md", "start.md"):
        (text, *_) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)  # fmt: skip
        (folder / "recipe.yaml").write_text(text)
        return folder / "recipe.yaml"
    return None


def context_of(words, mentioned):
    """The words of a `rejuice` command, as its own parser reads them."""
    assert words[0] in COMMANDS, f"there is no `rejuice {words[0]}`"
    command, name, rest = COMMANDS[words[0]], words[0], words[1:]
    if hasattr(command, "commands") and rest:
        if name == "data" and rest[0] not in command.commands:
            rest = ["generate", *rest]
        assert rest[0] in command.commands, f"there is no `rejuice {name} {rest[0]}`"
        command, name, rest = command.commands[rest[0]], f"{name} {rest[0]}", rest[1:]
    if mentioned and not rest:
        return None  # The command is named, not written out.
    try:
        return command.make_context(name, list(rest))
    except typer.BadParameter as error:
        if mentioned and type(error).__name__ == "MissingParameter":
            return None
        pytest.fail(f"`rejuice {name}`: {error.format_message()}")


def test_the_commands_of_a_file_work(tmp_path, monkeypatch):
    # Whether this machine can confine programs is tried by starting one.
    for module in ("agents.tools.python", "sandbox.run"):
        monkeypatch.setattr(f"rejuice.operators.{module}.check_confinement", lambda: None)

    def check(page):
        for (program, *words), mentioned in ALL[page]:
            if program == "pip":
                check_requirements([word for word in words if "[" in word])
            elif program == "dj-process":
                assert words[0] == "--config"
                check_overrides({words[i][2:]: words[i + 1] for i in range(2, len(words), 2)})
            elif words[0].isidentifier() and words[0].islower():
                context = context_of(words, mentioned)
                if context is not None and "recipe" in context.params:
                    check_on_recipe(context, page, tmp_path)

    check_each(ALL, check)


def check_on_recipe(context, page, folder):
    overrides = overrides_of(context) if context.meta else {}
    check_overrides(overrides)
    path = recipe_of(Path(context.params["recipe"]), page, folder)
    if path is None:
        return
    is_training = context.info_name == "train"
    recipe = load(path, {FLAGS.get(k, k) if is_training else k: v for k, v in overrides.items()})
    if is_training:
        TrainingRun.of(folder, recipe)


def check_overrides(overrides):
    for key in overrides.keys() - {"STEP.FIELD", "train.FIELD"}:
        step, _, field = key.partition(".")
        if not field:
            continue  # A key of the head, which Data-Juicer has more of.
        fields = Train if step == "train" else get(re.sub(r"_\d+$", "", step))
        assert field.partition(".")[0] in fields.model_fields, f"--{key}"


def check_requirements(words):
    """What is installed exists, in the version that this project is made for."""
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    for word in words:
        requirement = Requirement(re.sub(r"^\.", "rejuice", word))
        extras = metadata(requirement.name).get_all("Provides-Extra") or []
        if requirement.name == "rejuice":
            extras = parser["options.extras_require"]
        assert requirement.extras <= {*extras}
        assert requirement.specifier.contains(version(requirement.name))


def test_the_help_of_a_command_leaves_lines_to_the_terminal():
    groups = [each.commands.values() for each in COMMANDS.values() if hasattr(each, "commands")]
    for command in (*COMMANDS.values(), *chain.from_iterable(groups)):
        assert not re.search(r"\S\n\S", command.help), command.name


def test_there_are_commands_in_pages_recipes_and_messages():
    """That the patterns above still find something."""
    kinds = Counter()
    for file, found in ALL.items():
        kinds[file.suffix] += len(found)
    assert kinds[".md"] > 50
    assert kinds[".yaml"] > 15
    assert min(kinds[kind] for kind in (".py", ".ipynb", "")) > 1


# What messages recommend

RECOMMENDS = re.compile(
    r"`(?:rejuice|dj-process|make|pip|vllm)\b"
    r"|\b(?:pip install|rejuice (?:" + "|".join(COMMANDS) + r"))\b"
    r"|(?<![\w-])--[A-Za-z][\w.-]*"
)
OPTION = re.compile(r"--[\w-]+")
"""The declaration of an option, and no message."""


def docstrings(tree):
    """Nodes of strings that are statements: for readers of the code."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def texts(tree):
    """The strings of a module, but docstrings; of an f-string, with its fields as `{…}`."""
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in ast.walk(node) if part is not node}
            fields = (getattr(part, "value", None) for part in node.values)
            yield node, "".join(f if isinstance(f, str) else "{…}" for f in fields)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node, node.value


def recommendations():
    """What messages recommend: file, text, and where in the text a command or an option begins."""
    return [
        (str(file.relative_to(ROOT)), text, found.start())
        for file in CODE
        for _, text in texts(ast.parse(file.read_text("utf-8")))
        if not OPTION.fullmatch(text)
        for found in RECOMMENDS.finditer(text)
    ]


def marked():
    """The files and parts of messages whose commands are run, by the marks of all tests."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for mark in getattr(node, "decorator_list", ()):
                if ast.unparse(mark).startswith("pytest.mark.recommended("):
                    yield tuple(ast.literal_eval(each) for each in mark.args)


def is_in(file, text, at, mark):
    """Whether a mark is about what is recommended at a place of a message."""
    of, part = mark
    begin = text.find(part) if file == of else -1
    return begin >= 0 and begin <= at < begin + len(part)


def test_every_command_that_a_message_recommends_is_run():
    found, marks = recommendations(), set(marked())
    untested = {(f, t) for f, t, at in found if not any(is_in(f, t, at, mark) for mark in marks)}
    assert not untested, (
        "write a test that runs what the message recommends, and mark it with "
        "@pytest.mark.recommended(FILE, PART OF THE MESSAGE)"
    )
    stale = {mark for mark in marks if not any(is_in(*each, mark) for each in found)}
    assert not stale, "no message recommends this any more"


@pytest.mark.parametrize("message", [
    "use `rejuice run`", "give --all", "then rejuice check it", "pip install it", "--a and --b",
])  # fmt: skip
def test_a_message_is_searched_for_commands(message):
    assert RECOMMENDS.search(message)
    assert not OPTION.fullmatch(message)


# Those that need what is not here: they are read, not run.


@pytest.mark.recommended("operators/errors.py", "pip install {…}")
@pytest.mark.recommended("pipelines/analysis/page/tokens.py", "pip install 'rejuice[policy]'")
@pytest.mark.recommended("tools/embedded_policy/build.py", "pip install 'rejuice[policy]'")
def test_what_messages_install_exists():
    """Installing takes minutes and gigabytes: extras and versions are looked up instead."""
    source = "".join(file.read_text("utf-8") for file in CODE)
    words = {*re.findall(r"['\"]((?:rejuice|verl)\[[\w-]+\][\w.=]*)['\" ]", source)}
    extras = {f"rejuice[{extra}]" for extra in (
        "agents", "data-juicer", "embed", "hub", "mcp", "policy", "ray", "semantic", "train",
    )}  # fmt: skip
    assert words == {*extras, *(f"verl[{extra}]==0.9.1" for extra in ("mcore",))}
    check_requirements(words)


@pytest.mark.recommended("operators/sampling/openai_engine.py", "--enable-scale-out")
def test_the_option_of_vllm_is_that_of_the_real_server():
    """vLLM is in an environment of its own: tests marked `vllm` start it with this option."""
    server = (ROOT / "tests" / "support" / "vllm_server.py").read_text("utf-8")
    assert "--enable-scale-out" in server


@pytest.mark.recommended(
    "pipelines/cli/shared.py", "--STEP.FIELD VALUE, such as --pass_rate_filter.max 0.9"
)
@pytest.mark.recommended("pipelines/cli/training.py", "--train.learning_rate 1e-6")
def test_the_examples_of_the_help_are_overrides():
    lines = [command.epilog for command in COMMANDS.values() if getattr(command, "epilog", None)]
    examples = {tuple(found) for line in lines for found in re.findall(r"--([a-z_]+\.\w+) ([\w.-]+\w)", line)}  # fmt: skip
    assert len(examples) == 2
    check_overrides(dict(examples))
    Train(learning_rate=dict(examples)["train.learning_rate"])
    get("pass_rate_filter")(max=float(dict(examples)["pass_rate_filter.max"]))


@pytest.mark.recommended("pipelines/dj_process/patches.py", "Settings of `rejuice train`.")
@pytest.mark.recommended("trainer/split.py", "`rejuice train` does")
@pytest.mark.recommended("trainer/export/verl.py", "Made by `rejuice export verl`")
def test_commands_that_messages_only_name_exist():
    """They say which command does something, and not what to type."""
    for words in (["train"], ["export", "verl"]):
        assert context_of(words, mentioned=True) is None
