"""The `rejuice` command in a test: run in this process, or in one of its own."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch", "ray", "vllm", "verl", "hydra", "transfer_queue", "data_juicer", "datasets", "trl",
    "sentence_transformers", "sympy", "math_verify", "transformers", "scipy", "pandas", "loky",
    "matplotlib", "psutil",
)  # fmt: skip
"""What takes long to load, and what not everyone has installed."""
_LOADED = """
import json, sys
from rejuice.pipelines.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try: main()
    except SystemExit as done: assert not done.code, done.code
print()
print(*(name for name in {names} if name in sys.modules))
"""


def runner(monkeypatch, capsys, folder):
    """A function that runs the command in `folder`: exit status, stdout and stderr."""
    from rejuice.pipelines.cli import main as cli

    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(folder)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["rejuice", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        here = f"{folder}/"
        return end.value.code or 0, out.replace(here, ""), err.replace(here, "")

    return run


def heavy_after(*commands, cwd=None, names=HEAVY):
    """Which of these modules are loaded by commands, each of them a list of words."""
    words = [[str(word) for word in each] for each in commands]
    done = subprocess.run(
        [sys.executable, "-c", _LOADED.format(names=names), json.dumps(words)],
        cwd=cwd, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()
