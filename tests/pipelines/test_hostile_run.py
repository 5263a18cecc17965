"""The run of a stranger: looking at it runs none of its code, and other commands ask first."""

import json
import shlex
import shutil
import sys

import pytest
import yaml
from command import runner
from fake_run import write_run
from page_fixture import Page
from trained_run import PROCESS as TRAINED
from trained_run import tiny_rollouts, write_trained

from rejuice.operators import RecipeError
from rejuice.pipelines.cli import shared as commands
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import trust
from rejuice.pipelines.recipe.recipe import load
from rejuice.pipelines.recipe.trust import code_of

OPERATORS = """
open({canary!r}, "w").close()
import pyarrow as pa, pyarrow.compute as pc
from rejuice.operators import Filter, Mapper, drop

class MarkMapper(Mapper):
    def reads(self): return ("response",)
    def writes(self): return ("mark",)
    def map(self, table): return {{"mark": pc.utf8_length(table["response"]).cast(pa.float64())}}

class FourFilter(Filter):
    reasons = {{"four": "the response has a 4"}}
    def reads(self): return ("response",)
    def decide(self, table): return drop({{"four": pc.match_substring(table["response"], "4")}})
"""
ROWS = [
    {"question": f"{n} + 1?", "answer": f"#### {n + 1}", "responses": [f"{n + 1}.", f"It is {n}."]}
    for n in range(6)
]
PROCESS = [
    {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
    {"recorded_rollout_mapper": {"columns": ["responses"]}},
    "mark_mapper",
    "math_verify_mapper",
    "four_filter",
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}}},
    "grpo_advantage_mapper",
]


class Hostile:
    """Runs with operators of their own, which leave a file, the canary, when they are imported."""

    def __init__(self, folder):
        self.folder, self.canary = folder, folder / "canary"
        self.mine = folder / "mine.py"
        self.mine.write_text(OPERATORS.format(canary=str(self.canary)))
        (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        self.recipe = self.recipe_file("recipe.yaml", export_path=str(folder / "out.parquet"))
        run(load(self.recipe))
        self.run, self.export = folder / "out.run", folder / "out.parquet"
        custom = {"custom_operator_paths": [str(self.mine)]}
        (folder / "trained").mkdir()
        process = [*TRAINED[:2], "mark_mapper", *TRAINED[2:]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trained_run.write_run", lambda *a, **k: write_run(*a, **k, **custom))
            rollouts = tiny_rollouts(folder / "trained")
            self.training = write_trained(folder / "trained" / "try", rollouts, [1, 2], process=process)  # fmt: skip
        self.forget()

    def recipe_file(self, name, **head):
        document = {
            "dataset_path": str(self.folder / "data.jsonl"),
            "export_path": str(self.folder / "other.parquet"),
            "custom_operator_paths": ["mine.py"],
            "process": PROCESS,
            **head,
        }
        (self.folder / name).write_text(yaml.safe_dump(document, sort_keys=False))
        return self.folder / name

    def forget(self):
        """As in a new process: what is imported now leaves the canary again."""
        for name in [name for name in sys.modules if name.startswith("rejuice_custom_")]:
            del sys.modules[name]
        self.canary.unlink(missing_ok=True)
        trust._this_process.clear()

    def words(self, words):
        names = {"run": self.run, "export": self.export, "own": self.recipe, "try": self.training}
        return [word.format(**names) for word in words.split("|")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Hostile(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def hostile(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made.forget()
    return made


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


LOOKING = {
    "explain|{run}": "3. mark_mapper (its code is not run)",
    "explain|{run}/recipe.yaml": "5. four_filter (its code is not run)",
    "explain|{run}|row 5|--all": "   mark = 2",
    "explain|{run}/recipe.yaml|row 4": "  four_filter: four  ",
    "explain|{export}|row 4": "  four_filter: four  ",
    "report|{run}": "four_filter",
    "report|{run}/recipe.yaml": "mark_mapper",
    "view|{run}|--no-open|-o|p.html": "12 rows, 6 groups",
    "view|{run}/recipe.yaml|--no-open|-o|p.html": "12 rows, 6 groups",
    "view|{own}|--no-open|-o|p.html": "12 rows, 6 groups",
    "diff|{run}|{export}": "all with the same fate, reward and advantage",
    "diff|{run}/recipe.yaml|{run}/recipe.yaml": "all with the same fate, reward and advantage",
    "audit|{run}": "graded by math_verify_mapper",
    "audit|{run}/recipe.yaml": "graded by math_verify_mapper",
    "audit|{own}": "graded by math_verify_mapper",
    "cache|ls|{run}/recipe.yaml": "mark_mapper",
    "explain|{try}/steps/000002/recipe.yaml": "mark_mapper (its code is not run)",
    "explain|{try}|row 1": "   mark = ",
    "report|{try}|--allow_empty": "mark_mapper",
    "view|{try}|--no-open|-o|p.html": "2 sets",
    "diff|{try}/steps/000001|{try}/steps/000002": "recipe       reward_sum_mapper.weights.format ",
    "audit|{try}": "graded by math_verify_mapper",
}


@pytest.mark.parametrize("words", LOOKING)
def test_looking_runs_no_code_of_the_run(rejuice, hostile, words):
    code, out, err = rejuice(*hostile.words(words))
    assert not hostile.canary.exists()
    assert (code, err) == (0, "")
    assert LOOKING[words] in out


def test_a_page_has_what_steps_wrote_whose_code_was_not_run(rejuice, hostile, tmp_path):
    assert rejuice("view", hostile.run, "--no-open", "-o", "p.html")[0] == 0
    (one,) = Page(tmp_path / "p.html").head["sets"]
    assert one["banner"] == ""
    assert ["mark"] in [each["writes"] for each in one["steps"]]


NEEDING = (
    "whatif|{run}|--reward_sum_mapper.weights.accuracy|2.0",
    "whatif|{run}/recipe.yaml",
    "whatif|{run}|--each",
    "preview|{run}|--allow_empty",
    "check|{run}/recipe.yaml",
    "run|{run}/recipe.yaml|-q|--export_path|again.parquet",
    "whatif|{try}",
    "whatif|{try}|--each",
    "check|{try}/steps/000001/recipe.yaml",
)


@pytest.mark.recommended("pipelines/cli/shared.py", "`rejuice {…} --trust{…}`")
@pytest.mark.parametrize("words", NEEDING)
def test_commands_that_need_the_code_ask_once(rejuice, hostile, words):
    words = hostile.words(words)
    code, out, err = rejuice(*words)
    assert not hostile.canary.exists()
    assert (code, out) == (2, "")
    folder = hostile.training if str(hostile.training) in words[1] else hostile.run
    command = shlex.join(["rejuice", *words, "--trust"])
    right = f"if you made it, or trust whoever did, run `{command}`"
    assert err == f"rejuice: {folder} makes code run: custom_operator_paths; {right}\n"
    assert rejuice(*shlex.split(command)[1:])[0] == 0
    assert hostile.canary.exists()
    hostile.forget()
    assert rejuice(*words)[0] == 0, "the answer is remembered"
    hostile.forget()
    text = hostile.mine.read_text()
    hostile.mine.write_text(f"{text}# edited\n")
    try:
        assert rejuice(*words) == (2, "", err), "for this code only"
    finally:
        hostile.mine.write_text(text)
    assert not hostile.canary.exists()


def test_the_option_is_added_before_what_is_no_option(rejuice, hostile, tmp_path):
    (tmp_path / "-x").symlink_to(hostile.folder, target_is_directory=True)
    err = rejuice("whatif", "--each", "--", "-x/out.run")[2]
    typed = err.partition("run `")[2].partition("`")[0]
    assert typed == "rejuice whatif --each --trust -- -x/out.run"
    assert rejuice(*shlex.split(typed)[1:])[0] == 0


def test_a_recipe_of_ones_own_asks_nothing(rejuice, hostile):
    other = hostile.recipe_file("own.yaml")
    for words in (["check", other], ["run", other, "-q"], ["whatif", other], ["explain", other]):
        hostile.forget()
        code, _, err = rejuice(*words)
        assert (code, "--trust" in err) == (0, False)
        assert hostile.canary.exists()


def test_the_run_that_one_has_made_asks_nothing(rejuice, hostile):
    """Neither by its run folder, nor for its recipe there; of a copy of it, as of a stranger's."""
    made = hostile.recipe_file("made.yaml")
    export = hostile.folder / "made.parquet"
    assert rejuice("run", made, "-q", "--export_path", export)[0] == 0
    run = export.with_suffix(".run")
    shared = ["export", "verl", export, hostile.folder / "verl"]
    for words in (["whatif", export], ["whatif", run], ["check", run / "recipe.yaml"], shared):
        hostile.forget()
        code, _, err = rejuice(*words)
        assert (code, "--trust" in err) == (0, False), words
    copied = hostile.folder / "copied.run"
    shutil.copytree(run, copied)
    assert "--trust" in rejuice("check", copied / "recipe.yaml")[2]


def test_the_training_run_that_one_has_made_asks_nothing(rejuice, hostile):
    """What `rejuice train` trusts is its recipe; those that it keeps of each step name no more."""
    run = hostile.training
    trust.trust(run, trust.code_of([run / "recipe.yaml"]))
    for words in (["whatif", run], ["whatif", run / "steps" / "000001"]):
        hostile.forget()
        code, _, err = rejuice(*words)
        assert (code, "--trust" in err) == (0, False), words
    step = run / "steps" / "000001" / "recipe.yaml"
    text = step.read_text()
    document = yaml.safe_load(text)
    document["process"].append({"python_lambda_mapper": {"lambda_str": "lambda x: x"}})
    step.write_text(yaml.safe_dump(document))
    try:
        assert "--trust" in rejuice("whatif", run)[2], "a step that names more code"
    finally:
        step.write_text(text)


def test_what_was_trusted_is_used_to_look_too(rejuice, hostile):
    words = ("explain", hostile.run, "row 4")
    # The reasons of its own operators are in the report: no code runs to say them.
    assert "the response has a 4" in rejuice(*words)[1]
    assert rejuice(*words, "--trust")[1] == rejuice(*words)[1]
    hostile.forget()
    assert "the response has a 4" in rejuice(*words)[1]


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(rejuice, hostile, monkeypatch, answer):
    asked = []
    monkeypatch.setattr(commands, "_has_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or answer)
    code, _, err = rejuice("check", hostile.run / "recipe.yaml")
    assert (code, hostile.canary.exists(), len(asked)) == (0 if answer else 2, answer, 1)
    assert str(hostile.mine) in err


def test_a_server_of_tools_is_not_started_to_explain(rejuice, hostile, tmp_path):
    folder = tmp_path / "x.run"
    folder.mkdir()
    server = {"mcp": {"command": ["touch", str(hostile.canary)]}}
    process = [{"agent_rollout_mapper": {"tools": [server]}}]
    document = {"dataset_path": "a.jsonl", "export_path": "x.parquet", "process": process}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    code, out, err = rejuice("explain", folder / "recipe.yaml")
    assert (code, err, hostile.canary.exists()) == (0, "", False)
    assert "1. agent_rollout_mapper (its code is not run)" in out
    assert "makes code run: the tool mcp;" in rejuice("check", folder / "recipe.yaml")[2]


def test_what_of_a_recipe_makes_code_run(tmp_path):
    def named(text):
        (tmp_path / "recipe.yaml").write_text(text)
        return list(code_of([tmp_path / "recipe.yaml"]).named)

    step = "process: [{some_mapper: %s}]"
    assert named("ray_address: auto\ntrain: {verl: {}}\nprocess: [length_filter]") == []
    assert named("ray_address: evil:6379") == ["ray_address"]
    assert named("train: {verl: {a.b: 1}}") == ["train.verl"]
    assert named("process: [{python_lambda_mapper: {}}]") == ["python_lambda_mapper"]
    assert named(step % "{a: [{trust_remote_code: true}]}") == ["trust_remote_code"]
    assert named(step % "{trust_remote_code: false, vllm: {python: null}}") == []
    assert named(step % "{vllm: {python: ./python}}") == ["vllm: python"]
    assert named(step % "{tools: [search, mcp]}") == ["the tool mcp"]
    assert named("a: &a [{trust_remote_code: 1}]\nb: [*a, *a]") == ["trust_remote_code"]
    with pytest.raises(RecipeError, match="'custom_operator_paths' is 3; make it a list of paths"):
        named("custom_operator_paths: 3")
