"""The `rejuice` command, word by word."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny_run
import yaml
from command import HEAVY, heavy_after, runner
from tiny_run import write_tiny

from rejuice.operators import __version__, installed
from rejuice.pipelines.analysis import reference
from rejuice.pipelines.cli import main
from rejuice.pipelines.console import path_text

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "check", "ops", "explain", "report", "data", "export")


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def recipe(recipe_file, rollouts):
    return recipe_file(
        [{"pass_rate_filter": {"max": 0.9}}, {"length_filter": {"min": 3}}],
        rollouts(10).to_pylist(),
        project_name="try",
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("{here}/out/a.parquet", "out/a.parquet"),
        ("{here}/a.jsonl, {here}/b.jsonl", "a.jsonl, b.jsonl"),
        ("/data{here}/a.jsonl", "/data{here}/a.jsonl"),
        ("../a.jsonl", "../a.jsonl"),
        ("{here}", "{here}"),
        ("s3://b/a.parquet", "s3://b/a.parquet"),
    ],
)
def test_a_path_as_commands_print_it(path, shown):
    here = Path.cwd()
    assert path_text(path.format(here=here)) == shown.format(here=here)


def test_paths_below_the_working_directory_are_printed_relative(monkeypatch, capsys, tmp_path):
    """However they were given; a command that is printed again is as it was typed."""
    monkeypatch.chdir(tmp_path)
    path = write_tiny(tmp_path)
    export = tmp_path / "curated.parquet"
    for words in (
        ("run", path),
        ("run", path),
        ("report", export),
        ("view", export, "--no-open"),
        ("audit", export),
        ("explain", export, "row 1"),
        ("whatif", path, "--reward_sum_mapper.weights.format", "0.5"),
        ("preview", export),
        ("diff", path, export),
    ):
        monkeypatch.setattr(sys, "argv", ["rejuice", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main.main()
        printed = "\n".join(capsys.readouterr())
        assert not end.value.code, printed
        lines = [line for line in printed.splitlines() if not line.startswith("details")]
        assert str(tmp_path) not in "\n".join(lines), words


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(rejuice, command):
    code, out, _ = rejuice(command, "--help")
    assert code == 0
    assert f"rejuice {command}" in out


def test_help_lists_every_command(rejuice):
    code, out, _ = rejuice("--help")
    assert code == 0
    assert all(f" {command} " in out for command in COMMANDS)
    panels = [out.index(f" {panel} ") for panel in ("Make", "Look", "Train", "Share")]
    assert panels == sorted(panels)


def test_version(rejuice):
    assert rejuice("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("words", [["no_such"], ["run"], ["check", "a", "b"], ["ops", "a", "b"]])
def test_wrong_words_exit_with_2(rejuice, words):
    code, out, err = rejuice(*words)
    assert (code, out) == (2, "")
    assert "Usage" in err


# run


def test_run_twice(rejuice, recipe, tmp_path):
    code, out, _ = rejuice("run", recipe)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["try"]
    rows = pq.read_table(tmp_path / "out" / "curated.parquet").num_rows
    assert lines[-3] == [f"{rows}", "rows", "in", "out/curated.parquet"]
    assert "\naudit log and report: out/curated.run\n" in out
    assert lines[2][:4] == ["pass_rate_filter", "30", "1", "29"]
    assert rejuice("report", tmp_path / "out" / "curated.parquet") == (0, out, "")
    code, again, err = rejuice("run", recipe)
    assert code == 0
    assert again.count("cached") == 2
    assert "nothing to do: out/curated.parquet is up to date\n" in err
    assert rejuice("report", tmp_path / "out" / "curated.parquet") == (0, out, ""), "nor rewritten"


@pytest.mark.parametrize("overrides", [[], ["--length_filter.min", "4"]])
def test_the_last_line_of_a_run_is_a_command_that_traces_a_dropped_row(
    rejuice, recipe, tmp_path, overrides
):
    code, out, _ = rejuice("run", recipe, *overrides)
    assert code == 0
    what, command = out.splitlines()[-1].split(": ", 1)
    assert what == "to trace one dropped row"
    name, *words = shlex.split(command)
    assert (name, words[:2]) == ("rejuice", ["explain", "out/curated.parquet"])
    code, explained, err = rejuice(*words)
    assert (code, err) == (0, "")
    assert ": dropped, " in explained


MINE = """
import numpy as np, pyarrow as pa, pyarrow.compute as pc
from rejuice.operators import Change, Filter, Operator, drop


class ShortFilter(Filter):
    reasons = {"short": "the response is short"}

    def reads(self):
        return ("response",)

    def decide(self, table):
        return drop({"short": pc.less(pc.utf8_length(table["response"]), 3)})


class EmptyRowMapper(Operator):
    def reads(self):
        return ("response", "response_id")

    def writes(self):
        return ("response", "response_id")

    def apply(self, table):
        added = {"response": "", "response_id": None}
        columns = {n: pa.array([added[n], *table[n].to_pylist()], pa.string()) for n in added}
        return Change(columns, parents=np.array([-1, *range(table.num_rows)]))
"""


@pytest.mark.recommended("pipelines/analysis/funnel.py", "to trace one dropped row: rejuice explain {…}")  # fmt: skip
@pytest.mark.parametrize(
    ("process", "ids"),
    [
        (["short_filter"], ["a", "b"]),
        (["short_filter"], ["-1", "b"]),
        (["short_filter"], ["--all", "b"]),
        (["short_filter"], ["it's a", "b"]),
        (["empty_row_mapper", "short_filter"], ["a", "b"]),
    ],
)
def test_a_dropped_row_is_traced_with_operators_of_the_recipes_own_and_from_any_folder(
    rejuice, recipe_file, tmp_path, monkeypatch, process, ids
):
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"response_id": i, "response": r} for i, r in zip(ids, ["x", "long"], strict=True)]
    recipe_file(process, rows, name="my recipe.yaml", custom_operator_paths=["mine.py"],
                dataset_path="data.jsonl", export_path="out of it/x.parquet")  # fmt: skip
    code, out, err = rejuice("run", "my recipe.yaml")
    assert (code, err) == (0, "")
    name, *words = shlex.split(out.splitlines()[-1].removeprefix("to trace one dropped row: "))
    assert (name, words[:2]) == ("rejuice", ["explain", "out of it/x.parquet"])
    code, explained, err = rejuice(*words)
    assert (code, err) == (0, "")
    assert explained.splitlines()[0] == f"response_id {ids[0]}"
    assert ": dropped, short" in explained
    monkeypatch.chdir(tmp_path / "out of it")
    words[1] = "x.run/recipe.yaml"
    assert rejuice(*words) == (0, explained, "")


def test_a_row_that_an_operator_made_without_an_id_is_not_named(rejuice, recipe_file, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"response_id": "a", "response": "long"}]
    custom = {"custom_operator_paths": [str(tmp_path / "mine.py")]}
    recipe_file(["empty_row_mapper", "short_filter"], rows, **custom)
    _, out, _ = rejuice("run", "recipe.yaml")
    assert out.splitlines()[-1] == "audit log and report: out/curated.run"


def test_quiet_prints_nothing(rejuice, recipe):
    assert rejuice("run", recipe, "-q") == (0, "", "")
    assert rejuice("run", recipe, "--quiet") == (0, "", "")


def test_another_recipe_does_not_replace_an_export(rejuice, recipe, tmp_path):
    rejuice("run", recipe)
    assert rejuice("run", recipe, "-q", "--length_filter.min", "5")[0] == 0, "the same recipe may"
    other = tmp_path / "other.yaml"
    other.write_text((tmp_path / recipe).read_text())
    code, out, err = rejuice("run", other)
    assert (code, out) == (2, "")
    assert err == (
        "rejuice: export_path out/curated.parquet exists; "
        "give another --export_path, or --overwrite\n"
    )
    assert rejuice("run", other, "-q", "--overwrite")[0] == 0


@pytest.mark.recommended("pipelines/cli/shared.py", "--dataset_path, --export_path or --np")
def test_options_of_run(rejuice, recipe, tmp_path):
    (tmp_path / "data.jsonl").rename(tmp_path / "moved.jsonl")
    code, _, err = rejuice(
        "run", recipe, "--dataset_path", tmp_path / "moved.jsonl", "--export_path",
        tmp_path / "new" / "x.jsonl", "--np", "1", "--chunk_rows", "7", "--cache_dir",
        tmp_path / "cache", "--project_name", "'[/other]'", "--text_keys", "[a, b]",
    )  # fmt: skip
    assert (code, err) == (0, "")
    report = json.loads((tmp_path / "new" / "x.run" / "report.json").read_text())
    assert report["project_name"] == "[/other]"
    resolved = yaml.safe_load((tmp_path / "new" / "x.run" / "recipe.yaml").read_text())
    assert resolved["text_keys"] == ["a", "b"]
    assert (tmp_path / "cache").is_dir()
    assert not (tmp_path / "new" / ".rejuice").exists()


@pytest.mark.parametrize("np", ["0", "x"])
def test_a_wrong_option(rejuice, recipe, np):
    code, _, err = rejuice("run", recipe, "--np", np)
    assert code == 2
    assert err.startswith(
        f"rejuice: --np: 'np' is {np if np == '0' else repr(np)}; input should be"
    )


# --STEP.FIELD


def length_filter(tmp_path):
    text = (tmp_path / "out" / "curated.run" / "recipe.yaml").read_text()
    return yaml.safe_load(text)["process"][1]["length_filter"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--length_filter.max", "50"], {"min": 3, "max": 50}),
        (["--length_filter.max=50"], {"min": 3, "max": 50}),
        (["--length_filter.min=null", "--length_filter.max=60"], {"min": None, "max": 60}),
        (["--length_filter.max", "50", "--length_filter.max", "70"], {"min": 3, "max": 70}),
        (["--length_filter.column=response_id"], {"column": "response_id"}),
        (["--length_filter.column", "response_id", "--length_filter.min", "1"], {"min": 1}),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_fields_of_steps(rejuice, recipe, tmp_path, words, found, before):
    order = [*words, recipe] if before else [recipe, *words]
    code, _, err = rejuice("run", *order, "-q")
    assert (code, err) == (0, "")
    assert {**length_filter(tmp_path), **found} == length_filter(tmp_path)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--length_filter.max"], "--length_filter.max has no value; write --length_filter.max VALUE"),
        (["--length_filter.max="], "recipe.yaml, line 6, step 2 length_filter: field 'max' is ''; input should be a valid integer, unable to parse string as an integer"),
        (["--length_filter.max", "-1"], "recipe.yaml, line 6, step 2 length_filter: field 'max' is -1; input should be greater than or equal to 0"),
        (["--length_filter.max", "[1]"], "recipe.yaml, line 6, step 2 length_filter: field 'max' is [1]; input should be a valid integer"),
        (["--length_filter.max", "["], "--length_filter.max: '[' is not YAML; quote the value"),
        (["--lenght_filter.max", "1"], "--lenght_filter.max: no step 'lenght_filter' in the recipe; did you mean 'length_filter'?"),
        (["--owerwrite", "1"], "recipe.yaml: unknown key 'owerwrite'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_wrong_fields_of_steps(rejuice, recipe, command, words, line):
    assert rejuice(command, recipe, *words) == (2, "", f"rejuice: {line}\n")


@pytest.mark.slow
def test_explain_takes_fields_before_and_after_the_row(rejuice, recipe):
    rejuice("run", recipe, "-q", "--length_filter.min", "4")
    for words in (["--length_filter.min", "4", recipe, "row 1"], [recipe, "row 1", "--length_filter.min=4"]):  # fmt: skip
        code, out, err = rejuice("explain", *words)
        assert (code, err) == (0, "")
        assert out.startswith("response_id response-0000-0\nprompt_id prompt-0000\ndata.jsonl, row 1\n")  # fmt: skip
    for path in ("out/curated.parquet", "out/curated.run", "out/curated.run/recipe.yaml"):
        assert rejuice("explain", path, "row 1") == (0, out, "")
    differ = "rejuice: warning: recipe.yaml and the recipe of the run differ: this explains out/curated.run/recipe.yaml\n"
    assert rejuice("explain", recipe, "row 1") == (0, out, differ)
    assert rejuice("explain", "out/curated.parquet")[1].startswith(
        "data.jsonl -> out/curated.parquet\n"
    )
    assert rejuice("explain", recipe)[1].startswith("data.jsonl -> out/curated.parquet\n")


# check, ops, schema, report, data


def test_check(rejuice, recipe, tmp_path):
    right = "recipe.yaml: 2 steps, all fields and columns are right.\n"
    assert rejuice("check", recipe) == (0, right, "")
    assert not (tmp_path / "out").exists(), "a check leaves no file"
    code, out, _ = rejuice("check", recipe, "--dataset_path", tmp_path / "later.jsonl")
    assert code == 0
    assert out == (
        "recipe.yaml: 2 steps, all fields are right.\n"
        "later.jsonl does not exist yet, so columns were not checked.\n"
    )


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"folder": "models/none"}, "there is no folder 'models/none'; name one with a reward model"),
        ({"model": "m", "tokenizer": "./t"}, "there is no folder 't'; name one with a tokenizer"),
        ({"model": "m", "tokenizer": "a/b/c"}, "there is no folder 'a/b/c'; name one with a tokenizer"),
        ({"model": "m", "tokenizer": "some/model"}, None),
    ],
)  # fmt: skip
def test_check_finds_folders_that_are_not_there(rejuice, recipe_file, fields, lacks):
    rows = [{"prompt_id": "p", "prompt": "1 + 1?", "response": "2"}]
    recipe_file([{"reward_model_mapper": fields}], rows)
    code, _, err = rejuice("check", "recipe.yaml")
    line = f"rejuice: recipe.yaml, line 4, step 1 reward_model_mapper: {lacks}\n"
    assert (code, err) == ((2, line) if lacks else (0, ""))


@pytest.mark.slow
def test_ops(rejuice):
    assert rejuice("ops") == (0, reference.listing(), "")
    assert rejuice("ops", "--markdown") == (0, reference.page(), "")
    for name in [*installed(), "react", "search"]:
        assert rejuice("ops", name) == (0, reference.entry(name), "")
    code, out, err = rejuice("ops", "pas_rate_filter")
    assert (code, out) == (2, "")
    assert err == (
        "rejuice: unknown operator, flow or tool 'pas_rate_filter'; "
        "did you mean 'pass_rate_filter'?\n"
    )


def test_schema(rejuice):
    code, out, err = rejuice("ops", "--schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["title"] == "rejuice recipe"


def test_a_report_of_nothing(rejuice, tmp_path):
    assert rejuice("report", tmp_path / "x.parquet") == (
        2,
        "",
        "rejuice: x.parquet does not exist; give an export, a run folder or a recipe\n",
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".arrow"])
def test_data(rejuice, tmp_path, suffix):
    path = tmp_path / "deep" / f"rollouts{suffix}"
    line = f"deep/rollouts{suffix}: 3 problems, 2 responses each, seed 1.\n"
    words = ("data", path, "--prompts", 3, "--responses", 2, "--seed", 1)
    assert rejuice(*words) == (0, line, "")
    first = path.read_bytes()
    rejuice(*words)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["x.csv"], "rejuice: x.csv has no known format; end it in .jsonl, .parquet, .arrow\n"),
        (["x.jsonl", "--levels", "x"], "rejuice: levels are 'x'; write them like 1,2,3\n"),
        (["x.jsonl", "--levels", "9"], "rejuice: levels are 9; name some of 1, 2, 3, 4\n"),
    ],
)
def test_wrong_data(rejuice, tmp_path, words, line):
    assert rejuice("data", tmp_path / words[0], *words[1:]) == (2, "", line)


# The process


@pytest.mark.slow
def test_nothing_heavy_is_loaded_for_help_and_check(recipe_file, rollouts):
    path = recipe_file(
        [
            {"math_verify_mapper": {}},
            {"diversity_reward_mapper": {}},
            {"exact_deduplicator": {"within": "all"}},
            {"minhash_deduplicator": {}},
        ],
        [{**row, "reference": "1"} for row in rollouts(3).drop_columns(["verdict"]).to_pylist()],
    )
    assert heavy_after(["--help"], ["explain", path], ["ops"], ["check", path]) == []


@pytest.mark.slow
def test_no_client_of_servers_is_loaded_to_look_at_a_run(tmp_path):
    run = tiny_run.run_tiny(tmp_path).head.export_path
    page = tmp_path / "page.html"
    commands = ["explain", run, "row 1"], ["view", run, "-o", page, "--no-open"]
    assert heavy_after(*commands, names=("aiohttp",)) == []


UNUSED_BY_CHECK = (
    "email.parser", "math_verify", "rejuice.operators.verifier",
    "rejuice.pipelines.engine.cache", "rejuice.pipelines.engine.plan", "rejuice.pipelines.engine.run",
    "rich.console", "sympy",
)  # fmt: skip
"""What `rejuice check` once loaded to no use."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["quickstart", "gsm8k_qwen"])
def test_check_loads_nothing_that_it_does_not_use(recipe, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    command = ["check", ROOT / "recipes" / f"{recipe}.yaml", "--dataset_path", path]
    assert heavy_after(command, names=UNUSED_BY_CHECK) == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["python"]])
def test_check_of_agents_loads_nothing_that_it_does_not_use(more, tmp_path):
    path = tmp_path / "recipe.yaml"
    recipe = yaml.safe_load((ROOT / "recipes" / "flow_lookup.yaml").read_text())
    recipe["process"][1]["agent_rollout_mapper"]["tools"] += more
    path.write_text(yaml.safe_dump(recipe))
    of_rows = ("pyarrow.compute", "pyarrow.parquet", "rejuice.pipelines.engine")
    names = (*HEAVY, *UNUSED_BY_CHECK, *of_rows, "aiohttp", "bm25s", "mcp", "tokenizers")
    assert heavy_after(["check", path], cwd=tmp_path, names=names) == []


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_the_workers_and_prints_how_to_continue(
    recipe_file, rollouts, tmp_path, number
):
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n"
        "from rejuice.operators import Filter, drop\n"
        "class SlowFilter(Filter):\n"
        "    gil_bound = True\n"
        "    def reads(self): return ('response',)\n"
        "    def decide(self, table):\n"
        f"        pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.pid').touch()\n"
        "        time.sleep(300)\n"
    )
    path = recipe_file(
        ["slow_filter"], [row | {"prompt_id": str(at)} for at, row in enumerate(rollouts(3).to_pylist())],
        custom_operator_paths=[str(tmp_path / "mine.py")], np=2,
    )  # fmt: skip
    running = subprocess.Popen(
        [sys.executable, "-m", "rejuice.pipelines.cli", "run", str(path), "--chunk_rows", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(workers := list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(running.pid, number)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert err == "rejuice: stopped; run it again to continue where it stopped\n"
    assert len(workers) == 2
    assert not any(Path("/proc", worker.stem).exists() for worker in workers)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed):
    command = f"{sys.executable} -m rejuice.pipelines.cli --version {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_processes_that_a_command_starts_may_have_plugins_of_pydantic():
    code = """
import os, sys
from rejuice.pipelines.cli.__main__ import main
sys.argv[1:] = ["--version"]
try:
    main()
except SystemExit:
    print(os.environ.get("PYDANTIC_DISABLE_PLUGINS"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[1:] == ["None"], done.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m rejuice.pipelines.cli ops --schema | head -c 10"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.stdout == '{\n  "$schem'[:10]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--allow-empty", "--allow_empty"])
def test_an_option_has_two_spellings(rejuice, recipe, option):
    nothing_left = ("run", recipe, "--length_filter.min", "100000")
    assert rejuice(*nothing_left)[0] == 1
    assert rejuice(*nothing_left, option)[0] == 0
