"""A build is whole or not there, is not done twice, and replaces nothing of anybody else's."""

import json
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from safetensors import SafetensorError
from transformers import Qwen2ForCausalLM

from rejuice.operators import RejuiceError
from tools.embedded_policy import build as builder
from tools.embedded_policy.__main__ import main
from tools.embedded_policy.build import CURRICULA, RECORD, build
from tools.embedded_policy.lookups import LookupCurriculum
from tools.embedded_policy.model import Size, build_model
from tools.embedded_policy.problems import Curriculum

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    RECORD, "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture
def built(monkeypatch):
    """The seeds of all warm starts; none of them learns anything."""
    seeds = []

    def fresh(seed, *, curriculum, **settings):
        seeds.append(seed)
        tokenizer = curriculum.tokenizer()
        return build_model(tokenizer, seed), tokenizer

    monkeypatch.setattr(builder, "warm_start", fresh)
    return seeds


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_policy_is_built_once(built, tmp_path):
    assert build(tmp_path / "a" / "b")
    assert built == [0]
    assert set(content(tmp_path / "a" / "b")) == FILES
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b"]
    assert not build(tmp_path / "a" / "b")
    assert built == [0]


def test_everybody_may_read_it(built, tmp_path):
    build(tmp_path / "policy")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "policy").iterdir()}
    (tmp_path / "plain").touch()
    assert modes == {stat.S_IMODE((tmp_path / "plain").stat().st_mode)}


def test_a_build_is_known_by_what_its_code_does():
    """Not by docstrings, comments and line breaks, which the weights do not depend on."""
    code = '"""Doc."""\nX = 1\n\n\ndef f(a):\n    """Doc."""\n    return a + X\n'
    other = 'X = 1\n"""About X."""\n\ndef f(\n    a,\n):\n    # Why.\n    return a + X\n'
    assert builder._program(code) == builder._program(other)
    for change in (("1", "2"), ("return a + X", "return X + a"), ("a + X", "a + 'Doc.'")):
        assert builder._program(code.replace(*change)) != builder._program(code)


def test_an_empty_folder_is_free(built, tmp_path):
    assert build(tmp_path)
    assert set(content(tmp_path)) == FILES


@pytest.mark.recommended("tools/embedded_policy/build.py", "name another folder, or --overwrite")
@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"curriculum": Curriculum(steps=1)}, {"size": Size(layers=2)}],
    ids=["seed", "curriculum", "size"],
)
def test_another_policy_is_replaced_only_with_overwrite(built, tmp_path, change):
    folder = tmp_path / "policy"
    build(folder)
    before = content(folder)
    with pytest.raises(RejuiceError) as error:
        build(folder, **change)
    assert str(error.value) == f"{folder} holds another policy; name another folder, or --overwrite"
    assert content(folder) == before
    assert build(folder, overwrite=True, **change)
    assert content(folder)[RECORD] != before[RECORD]
    assert [file.name for file in tmp_path.iterdir()] == ["policy"]


def test_weights_that_were_trained_since_are_another_policy(built, tmp_path):
    build(tmp_path / "policy")
    (tmp_path / "policy" / "model.safetensors").write_bytes(b"trained")
    with pytest.raises(RejuiceError, match="holds another policy"):
        build(tmp_path / "policy")


@pytest.mark.parametrize("name", ["letter.txt", RECORD])
def test_what_is_no_policy_is_never_replaced(built, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(RejuiceError) as error:
        build(tmp_path, overwrite=True)
    assert (
        str(error.value) == f"{tmp_path} holds something else; name a folder that is new or empty"
    )
    assert content(tmp_path) == {name: b"mine"}
    with pytest.raises(RejuiceError, match="holds something else"):
        build(tmp_path / name, overwrite=True)
    assert built == []


def test_a_full_disk_is_one_line(built, tmp_path, monkeypatch):
    def full(*arguments, **settings):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr(Qwen2ForCausalLM, "save_pretrained", full)
    with pytest.raises(RejuiceError) as error:
        build(tmp_path / "policy")
    assert str(error.value) == (
        f"{tmp_path / 'policy'} cannot be written: "
        "Error while serializing: I/O error: No space left on device"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_one_line(built, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RejuiceError) as error:
        build(tmp_path / "file" / "policy")
    assert str(error.value) == f"{tmp_path / 'file' / 'policy'} cannot be written: File exists"


def test_without_the_libraries_it_says_what_to_install(built, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(RejuiceError, match=r"^the policy is built .*; pip install 'rejuice\[policy\]'$"):  # fmt: skip
        build(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_each_policy_has_its_own_words(built, tmp_path):
    for name, curriculum in CURRICULA.items():
        build(tmp_path / name, curriculum=curriculum)
    tokenizers = [(tmp_path / name / "tokenizer.json").read_text() for name in CURRICULA]
    assert [" marbles" in text.replace("Ġ", " ") for text in tokenizers] == [True, True]
    assert [" harbour" in text.replace("Ġ", " ") for text in tokenizers] == [False, True]
    records = [json.loads((tmp_path / name / RECORD).read_text()) for name in CURRICULA]
    assert records[0]["made_of"] != records[1]["made_of"]


@pytest.mark.parametrize("kind", [Curriculum, LookupCurriculum])
def test_the_same_seed_gives_the_same_bytes(tmp_path, kind):
    curriculum = kind(steps=4, batch=4, window=2)
    for name in ("one", "two"):
        build(tmp_path / name, 3, curriculum=curriculum)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_killed_build_leaves_no_policy_and_no_process(tmp_path):
    words = ["-m", "tools.embedded_policy", str(tmp_path / "policy"), "--quiet"]
    learning = list[psutil.Process]()
    with subprocess.Popen([sys.executable, *words], cwd=ROOT) as process:
        try:
            # Imports start others, which end at once.
            until(lambda: learning.extend(learners(process.pid)) or learning)
        finally:
            process.kill()
    (partner,) = learning
    until(lambda: not partner.is_running() or partner.status() == psutil.STATUS_ZOMBIE)
    assert not (tmp_path / "policy").exists()
    assert all(path.name.startswith(".policy-") for path in tmp_path.iterdir())


def learners(pid):
    """Child processes that have begun to learn."""
    found = []
    for each in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            found += [each] * (each.cpu_times().user > 3)
    return found


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_command(built, tmp_path, monkeypatch, capsys):
    def command(*words):
        return main(words), *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    assert command("it", "--seed", "2") == (0, "it: the policy embedded, seed 2.\n", "")
    assert command("it", "--seed", "2") == (
        0,
        "it: the policy embedded, seed 2 (already built).\n",
        "",
    )
    assert command("it") == (2, "", f"{tmp_path / 'it'} holds another policy; name another folder, or --overwrite\n")  # fmt: skip
    assert command("other", "--policy", "embedded_flow") == (0, "other: the policy embedded_flow, seed 0.\n", "")  # fmt: skip
    assert command("it", "--overwrite", "--quiet") == (0, "", "")
    assert json.loads((tmp_path / "it" / RECORD).read_text())["seed"] == 0
