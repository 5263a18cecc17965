"""What the documents say can be done: every command, recipe and link in them."""

import ast
import importlib
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from each import check_each

from rejuice.operators.check import check_operator
from rejuice.operators.registry import load_file
from rejuice.pipelines.engine.run import run
from rejuice.pipelines.recipe import load

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("[A-Z]*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = list(dict.fromkeys(PAGES))


def blocks(page, *languages):
    """The fenced blocks of a page in some languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def test_targets_of_make_exist():
    def check(page):
        makefile = (ROOT / "Makefile").read_text("utf-8")
        text = page.read_text("utf-8")
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE):
            assert f"\n{target}:" in makefile, f"`make {target}` is not in the Makefile"

    check_each(PAGES, check)


def test_recipes_are_right(tmp_path):
    def check(page):
        for text in blocks(page, "yaml"):
            document = yaml.safe_load(text)
            if not isinstance(document, dict) or "process" not in document:
                continue
            if "custom_operator_paths" in document:
                continue  # Its operators are in another block.
            path = tmp_path / "recipe.yaml"
            path.write_text(yaml.safe_dump({"dataset_path": "a", "export_path": "b.parquet", **document}))  # fmt: skip
            load(path)

    check_each(PAGES, check)


def test_imports_work():
    def check(page):
        for code in blocks(page, "python"):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("rejuice"):
                    module = importlib.import_module(node.module)
                    for name in node.names:
                        assert hasattr(module, name.name), f"{node.module} has no {name.name}"

    check_each(PAGES, check)


def test_files_that_are_named_exist():
    """A path of this repository, where a page names one in its text."""

    def check(page):
        folders = "benchmarks|docs|operators|pipelines|recipes|tests|tools|trainer"
        text = page.read_text("utf-8")
        for path in re.findall(
            rf"(?<![\w./…-])(?:{folders})/[\w./-]*\.(?:py|md|yaml|json)\b", text
        ):
            assert (ROOT / path).exists(), f"{page.name} names {path}"

    check_each(PAGES, check)


def test_links_lead_somewhere():
    def check(page):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"

    check_each(PAGES, check)


FOUND_AT = {
    "base-models": "base model|chat template|chat_template_kwargs|few-shot|stop token",
    "cluster": "failures|Ray|resume",
    "docker": "Docker",
    "exports": "DPO|LLaMA-Factory|OpenRLHF|SFT|TRL",
    "operators": "dedup",
    "policy": "GPU|embedded",
    "quality": "judge",
    "sampling": "on-policy|resume|vLLM",
    "servers-other": "llama.cpp|Ollama|SGLang",
    "signs": "reward hacking",
    "slurm": "multi-node|SLURM",
    "thinking-models": "enable_thinking|reasoning|think block|thinking|truncated",
    "training": "checkpoint|dynamic sampling|FSDP|GRPO|LoRA|Megatron|pass@k|resume|wandb",
    "why": "asynchronous|Trinity-RFT",
}
"""Words that a newcomer searches for, and the page that is to be the first hit."""


def test_the_usual_words_are_where_a_search_ranks_them_high():
    def check(name, words):
        text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        headings = re.findall(r"^#+ .*", text, re.MULTILINE)
        seen = " ".join([*headings, *text.split()[:120]]).lower()
        missing = [word for word in words.split("|") if word.lower() not in seen]
        assert not missing, f"{missing}: in no heading, nor in the first 120 words"

    check_each(FOUND_AT.items(), check)


README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "own-operators.md"


def operator_of(page, base, folder):
    """The operator in the block of a page that subclasses `base`, as a recipe would load it."""
    (code,) = [block for block in blocks(page, "python") if base in block]
    file = folder / "mine.py"
    file.write_text(code)
    (found,) = load_file(file).items()
    return (*found, code)


def test_the_operator_of_the_readme_is_an_operator(tmp_path):
    name, kind, code = operator_of(README, "(Filter)", tmp_path)
    assert name == "question_mark_filter"
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    table = pa.table({"response": ["so it is 3.", "is it 3?", None]})
    assert check_operator(kind(), table).reasons.to_pylist() == [None, "asks_back", None]
    assert blocks(GUIDE, "python")[0] == code, "the guide begins with the README's operator"


def test_a_response_that_was_not_sampled_has_no_brevity(tmp_path):
    _, kind, _ = operator_of(GUIDE, "BrevityRewardMapper(Mapper)", tmp_path)
    table = pa.table({"response": ["x" * 10, "", None, "x" * 50]})
    columns = check_operator(kind(limit=40), table).columns
    assert columns["reward_brevity"].to_pylist() == [0.75, 1.0, None, 0.0]
    assert columns["reward_brevity_missing"].to_pylist() == [None, None, "no_response", None]


def test_the_group_operator_of_the_guide(tmp_path):
    _, kind, _ = operator_of(GUIDE, "GroupMeanMapper(Mapper)", tmp_path)
    table = pa.table({"prompt_id": ["a", "a", "b", "b"], "reward": [1.0, 0.0, None, 0.5]})
    columns = check_operator(kind(), table).columns
    assert columns["group_mean"].to_pylist() == [0.5, 0.5, None, 0.5]


def test_the_dataset_operator_of_the_guide(tmp_path):
    _, kind, _ = operator_of(GUIDE, "FrequentAnswerFilter(Filter)", tmp_path)
    table = pa.table({"prompt_id": list("aabbcc"), "answer": ["1", "1", "2", "1", "3", "2"]})
    reasons = check_operator(kind(most=2), table).reasons.to_pylist()
    assert reasons == ["frequent", "frequent", None, "frequent", None, None]


def test_the_recipe_of_the_readme_prints_its_funnel(tmp_path):
    """That the rows are those of a real run, `make demo` and the quickstart's tests show."""
    text = next(text for text in blocks(README, "yaml") if "export_path" in text)
    assert len(text.splitlines()) == 12
    assert text == next(text for text in blocks(ROOT / "docs" / "start.md", "yaml"))
    (tmp_path / "recipe.yaml").write_text(text)
    recipe = load(tmp_path / "recipe.yaml")
    funnel = next(text for text in blocks(README, "") if text.startswith("rejuice\nstep "))
    head, *lines = funnel.splitlines()[1:]
    ends = {title: head.index(title) + len(title) for title in ("rows in", "added", "dropped", "rows out")}  # fmt: skip
    shown = []
    for line in lines:
        if re.match(r"\w+_\w+ ", line):
            numbers = {title: re.search(r"([\d,]*)$", line[:end])[1] for title, end in ends.items()}
            rows = {title: int(number.replace(",", "") or 0) for title, number in numbers.items()}
            reasons = line[head.index("drop reasons") : head.index("details")]
            shown.append((line.split()[0], rows, reasons))
    assert [name for name, _, _ in shown] == [step.name for step in recipe.steps]
    for (_, before, _), (_, rows, reasons) in pairwise([("", {"rows out": 200}, ""), *shown]):
        assert rows["rows in"] == before["rows out"]
        assert rows["rows in"] + rows["added"] == rows["rows out"] + rows["dropped"]
        assert sum(map(int, re.findall(r"\d+", reasons))) == rows["dropped"]
    assert f"\n{shown[-1][1]['rows out']:,} rows in {recipe.head.export_path}\n" in funnel


@pytest.mark.slow
def test_the_funnel_of_the_readme_is_worded_as_a_run_words_it(tmp_path):
    text = next(text for text in blocks(README, "yaml") if "export_path" in text)
    shown = next(text for text in blocks(README, "") if text.startswith("rejuice\nstep "))
    (tmp_path / "recipe.yaml").write_text(text)
    for words in (
        "data outputs/quickstart/prompts.jsonl --prompts 8 --responses 0",
        "run recipe.yaml",
    ):
        command = [sys.executable, "-m", "rejuice.pipelines.cli", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for part in (slice(2), slice(-3, None)):
        assert [unnumbered(line) for line in shown.splitlines()[part]] == [
            unnumbered(line) for line in done.stdout.splitlines()[part]
        ]


def unnumbered(line):
    """A line without its numbers, ids and the width of its columns."""
    return " ".join(re.sub(r"\b[0-9a-f]{32}\b|[\d,.]*\d", "#", line).split())


@pytest.mark.slow
def test_the_tool_and_the_flow_of_the_guide(tmp_path, monkeypatch):
    """The file and the recipe as they stand there, on two questions, with the embedded policy."""
    page = ROOT / "docs" / "agents.md"
    (code,) = blocks(page, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    recipe = next(text for text in blocks(page, "yaml") if "mine.py" in text)
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "recipe.yaml").write_text(recipe)
    rows = [{"question": f"What is an ox, {n}?", "answer": "an animal"} for n in range(2)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    run(load(tmp_path / "recipe.yaml"))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 4
    for row in table.to_pylist():
        assert [turn["role"] for turn in row["turns"]] == ["policy", "tool", "policy"]
        assert row["turns"][1]["tool"] == "dictionary"
        assert row["turns"][1]["observation"].endswith("is not in the dictionary")
        assert row["response"] == row["turns"][2]["text"]
