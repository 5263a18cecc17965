"""The key of a server is found nowhere, whatever the server makes of it; nor does it steer the terminal."""

import gzip
import io
import json
import re
import secrets
import subprocess
import sys
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from contextlib import suppress
from html import escape
from pathlib import Path
from random import Random
from types import SimpleNamespace
from urllib.parse import quote

import psutil
import pyarrow.parquet as pq
import pytest
import typer
from command import runner
from each import check_each
from echo_server import CONTROLS, FORMS, KINDS, EchoServer
from rich.table import Table
from rich.text import Text

from rejuice.operators import RecipeError, RejuiceError, logs
from rejuice.operators.agents.tool import Observation, ToolError
from rejuice.operators.logs import REDACTED, know, know_named, logger, redact, redact_bytes
from rejuice.pipelines.analysis.page.build import embedded_json, packed_json
from rejuice.pipelines.console import Console
from rejuice.pipelines.data_juicer.failures import ServerLostError, _watched, watching
from rejuice.pipelines.data_juicer.settings import refuse_credentials
from rejuice.pipelines.dataset.remote import to_path
from rejuice.pipelines.safe_output import safe_output

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"back_off_s": 0.002, "timeout_s": 20, "patience_s": 0.1, "attempts": 2, "give_up_s": 0.05}
SAMPLE = "policy_rollout_mapper"
CONTROL = re.compile(r"[^\n\t -~\xa0-\u200a\u2010-\u2027\u2030-\ufffd]")


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(logs, "_known", {})


@pytest.fixture
def key(monkeypatch):
    """A random key, in the variable that the recipes name."""
    found = f"sk-{secrets.token_urlsafe(24)}/+{secrets.token_hex(4)}"
    monkeypatch.setenv("SOME_KEY", found)
    return found


@pytest.fixture
def rejuice(monkeypatch, capsys, tmp_path):
    return runner(monkeypatch, capsys, tmp_path)


def recipe_of(recipe_file, policy, judge):
    server = {"api_key_env": "SOME_KEY", **QUICK}
    options = {"api": "chat", "base_url": policy.url, **server}
    sampling = {"engine": "openai", "model": "m", "n": 1, "on_policy": False, "openai": options}
    judging = {"model": "m", "server": {"base_url": judge.url, **server}, "cache": "scores.sqlite"}
    process = [
        {"prompt_template_mapper": {}},
        {SAMPLE: {**sampling, "max_tokens": 99}},
        {"math_verify_mapper": {}},
        {"llm_quality_reward_mapper": judging},
    ]
    return recipe_file(process, [{"question": f"{k}?", "answer": "7"} for k in range(2)])


def read_back(path):
    """What is in a file, as it is and unpacked."""
    yield path.read_bytes()
    if path.suffix == ".parquet":
        yield json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
    if path.suffix == ".html":
        for block in re.findall(rb"<script[^>]*>([\w+/=]{24,})</script>", path.read_bytes()):
            yield gzip.decompress(b64decode(block))


def check_without(key, texts):
    """No text has the key, in any of the forms that the server gives it."""
    forms = [form(key).encode() for form in FORMS] + [key.encode(), key[5:].encode()]
    for name, text in texts:
        assert not [form for form in forms if form in text], f"{name}: {text[:2000]!r}"


def check_all(key, folder, *printed):
    check_without(key, [("printed", text.encode()) for text in printed])
    for text in printed:
        assert not CONTROL.search(text), CONTROL.findall(text)
    files = [path for path in folder.rglob("*") if path.is_file()]
    check_without(key, [(path, text) for path in files for text in read_back(path)])
    for child in psutil.Process().children(recursive=True):
        check_without(key, [(child, " ".join(child.cmdline()).encode())])


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_repeats_the_key(kind, key, rejuice, recipe_file, tmp_path):
    with EchoServer(kind) as policy, EchoServer("answer") as judge:
        recipe = recipe_of(recipe_file, policy, judge)
        _, *printed = rejuice("run", recipe, "--debug")
        assert f"Bearer {key}" in policy.keys
    check_all(key, tmp_path, *printed)
    if kind == "answer":
        for words in (["view", recipe], ["explain", recipe, "row 1", "--all"], ["report", recipe]):
            status, *more = rejuice(*words)
            assert not status
            check_all(key, tmp_path, *more)
        assert (tmp_path / "out" / "curated.html").exists()
        response = pq.read_table(tmp_path / "out" / "curated.parquet")["response"][0].as_py()
        assert response.startswith(CONTROLS), "what is stored is as it came"
        assert response.count(REDACTED) == len(FORMS)


@pytest.mark.parametrize("kind", ["500", "302", "ending", "status line"])
def test_a_judge_that_repeats_the_key(kind, key, rejuice, recipe_file, tmp_path):
    with EchoServer("answer") as policy, EchoServer(kind) as judge:
        _, *printed = rejuice("run", recipe_of(recipe_file, policy, judge))
        assert f"Bearer {key}" in judge.keys
    check_all(key, tmp_path, *printed)


@pytest.mark.slow
def test_no_process_has_the_key_in_its_arguments(key, recipe_file, tmp_path):
    with EchoServer("answer") as policy, EchoServer("answer") as judge:
        recipe = recipe_of(recipe_file, policy, judge)
        code = "from rejuice.pipelines.cli.main import main; main()"
        words = [sys.executable, "-c", code, "run", recipe, "--np", "2", "--chunk_rows", "1"]
        words.append("--allow_empty")
        seen = set()
        with subprocess.Popen(words, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as run:
            while run.poll() is None:
                with suppress(psutil.Error):
                    every = psutil.Process(run.pid).children(recursive=True)
                    seen |= {" ".join(child.cmdline()) for child in every}
                time.sleep(0.01)
            printed = run.communicate()
    assert run.returncode == 0, printed
    assert len(seen) > 1, "the verifier and the workers are processes"
    check_without(key, [("process", text.encode()) for text in seen])
    check_all(key, tmp_path, *printed)


def test_every_form_of_a_secret():
    random = Random(0)
    letters = 'abnrtu/+"\\&%<-_=.~ 012AZ'
    for _ in range(30):
        secret = "".join(random.choice(letters) for _ in range(20)).strip().rjust(20, "x")
        logs._known = {}
        know(secret)
        within = [b64encode(f"{user}:{secret}".encode()).decode() for user in ("", "u", "us")]
        of_json = json.dumps(secret)
        for text in (
            secret, of_json, of_json.replace("/", "\\/"), escape(secret), quote(secret),
            quote(secret, ""), secret.encode().hex(), *within,
            urlsafe_b64encode(secret.encode()).decode(),
        ):  # fmt: skip
            assert secret not in redact(text), (secret, text)
            assert REDACTED in redact(text), (secret, text)
            body = json.dumps({"a": f"\n{text}", "b": [json.dumps({"c": text})]})
            found = json.loads(redact_bytes(body.encode()))
            assert REDACTED in found["a"], body
            assert REDACTED in found["b"][0], body


def test_what_is_no_secret_stays():
    for short in ("EMPTY", "x", "", " k ", None):
        know(short)
    know("newline1")
    text = "EMPTY is x k; \\newline1"
    assert redact_bytes(text.encode()) == text.encode(), "it is the escape of a line break"
    assert redact_bytes(b"\\\\newline1") == b"\\\\[redacted]"
    assert redact("EMPTY x") == "EMPTY x"


def test_which_variables_are_secret(monkeypatch):
    names = {"A": "value of A", "SEARCH_API_KEY": "value of S", "LANGUAGES": "value of L"}
    for name, value in {**names, "HF_TOKEN": "value of H"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pass%20word@proxy:80")
    mcp = {"mcp": {"command": ["x"], "environment": ["LANGUAGES", "SEARCH_API_KEY"]}}
    know_named({"step": {"openai": {"api_key_env": "A"}, "tools": [mcp]}})
    assert redact(f"{' '.join(names.values())} value of H pass word") == (
        "[redacted] [redacted] value of L [redacted] [redacted]"
    )


def test_errors_and_tools_and_logs(key, caplog):
    know(key)
    text = f"a{key}\x1b\x07"
    assert str(RejuiceError(text, text, where=text)) == (
        "a[redacted]\x1b\x07: a[redacted]\x1b\x07; a[redacted]\x1b\x07"
    )
    assert str(ToolError(key)) == Observation(key).redacted().text == REDACTED
    for _ in range(2):
        logger("rejuice.some").warning("%s", text)
    assert caplog.messages == ["a[redacted]\\u001b\\u0007"] * 2
    for pack in (embedded_json, lambda value: gzip.decompress(b64decode(packed_json(value)))):
        assert json.loads(pack([text])) == ["a[redacted]\x1b\x07"]


@pytest.mark.parametrize(
    "place",
    ["s3://b/k?secret_key=a", "s3://b/k?region=x&access_key=a", "s3://me:secretive@b/k"],
)
def test_an_address_with_a_key_is_refused(place):
    with pytest.raises(RecipeError, match="is given with") as error:
        to_path(place)
    assert "secretive" not in str(error.value)
    assert str(to_path("gs://anonymous@b/k:@?x=1")) == "gs://anonymous@b/k:@?x=1"


def test_a_key_in_a_step_of_data_juicer_is_refused():
    refuse_credentials({"text_key": "long_name_of_text", "model_params": {"api_key": "EMPTY"}})
    for fields in (
        {"model_params": {"api_key": "sk-1234567"}},
        {"model_params": {"default_headers": {"X-Api-Key": "sk-1234567"}}},
        {"model_params": {"base_url": "http://me:secretive@host/v1"}},
    ):
        with pytest.raises(RecipeError, match=r"model_params.*has a key in it") as error:
            refuse_credentials(fields)
        assert not re.search("secretive|sk-", str(error.value))


class Terminal(io.StringIO):
    """What a terminal receives."""

    def isatty(self):
        return True


def test_a_terminal_receives_our_styles_and_nothing_of_others(key, monkeypatch):
    know(key)
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    bad = f"{CONTROLS}{key}\r"
    shown = "\\u001b]0;title\\u0007\\u001b[31m\\u202e\\u009b2J\\u0008[redacted]\\u000d"
    with safe_output():
        print(f"1{bad}")
        typer.echo(f"2{bad}")
        typer.echo(f"3{bad}", err=True)
        print("\rbar", f"4{bad}", file=sys.stderr)
        table = Table(width=60)
        table.add_column("heading", style="red")
        table.add_row(Text(f"5{bad}"))
        console = Console(width=200)
        console.print(table)
        console.print(Text(f"6{bad}"), f"7{bad}", soft_wrap=True, markup=False)
        sys.stdout.writelines([f"8{bad}"])
    ours = re.compile(r"\x1b\[[0-9;]*m")
    found, of_err = ours.sub("", out.getvalue()), err.getvalue()
    assert ours.search(out.getvalue()), "the table has its style"
    for number in (1, 2, 8):
        assert f"{number}{shown}" in found
    for number in (5, 6, 7):  # Rich leaves some out.
        assert f"{number}\\u001b]0;title" in found
    assert "\rbar" in of_err
    assert f"3{shown}" in of_err
    assert f"4{shown}" in of_err
    assert not CONTROL.search(found + of_err.replace("\rbar", ""))
    assert key[:12] not in found + of_err


def test_texts_of_a_recipe_and_of_arguments(rejuice, recipe_file, tmp_path):
    bad = "\x1b]0;x\x07\x1b[2J\u202e"
    strange = tmp_path / f"{bad}.yaml"
    recipe_file([{f"no{bad}": {}}], [{"question": "1?"}], name=strange.name)
    (tmp_path / "bad.yaml").write_text("process: [\x7f")
    for words in (
        ["run", strange], ["check", strange], ["explain", strange], ["view", f"{bad}.parquet"],
        [bad], ["run", strange, "--chunk_rows", bad], ["cache", bad], ["report", bad],
        ["check", "bad.yaml", f"--x{bad}", bad], ["diff", bad, bad], ["run", bad, "-z", bad],
    ):  # fmt: skip
        status, *printed = rejuice(*words)
        assert status
        assert not CONTROL.search("".join(printed)), (words, printed)


def test_what_a_model_of_data_juicer_repeats(key):
    know(key)
    with watching() as failures:
        operator = SimpleNamespace(model_key=lambda: lambda text: f"{text}: {key}")
        model = _watched(operator.model_key)
        assert model("you sent") == "you sent: [redacted]"
        failures.calls.fail(ValueError(key))
    with pytest.raises(ServerLostError, match=r"^\('\[redacted\]'"):
        failures.calls.check_answered()


def test_nothing_prints_or_logs_past_what_makes_it_safe():
    """A type may be named; what makes a console or a logger is ours."""

    def check(path):
        text = path.read_text("utf-8")
        if path.name != "console.py" and re.search(r"\bConsole\(", text):
            assert not re.search(r"from rich(\.console)? import .*\bConsole\b", text)
        if path.is_relative_to(ROOT / "operators") and path.name != "logs.py":
            assert "getLogger(__name__)" not in text, "use logger of operators/logs.py"

    folders = ("operators", "pipelines", "trainer")
    check_each([path for name in folders for path in sorted((ROOT / name).rglob("*.py"))], check)
