"""What `make` prints while it installs, and where pip fails; nothing is installed here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "install.sh"
PYTHON = f"""#!/bin/sh
case "$*" in
    -c*) exec {sys.executable} "$@" ;;
    *--version) exit 0 ;;
esac
echo "$*" >> installed
echo "Collecting $4"
seq 30
case "$*" in *-e*) test ! -e broken || exit 7 ;; esac
"""


@pytest.fixture
def install(tmp_path):
    """The script in a folder with an environment, whose pip does nothing; its last words: status."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*words):
        command = ["sh", str(SCRIPT), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_torch_is_installed_first_and_all_is_pinned(install, tmp_path):
    line = "installing rejuice[demo] into .venv; the output of pip is in .venv/install-demo.log\n"
    assert install("demo") == (0, line, "")
    pip = "-m pip install --no-input --progress-bar off"
    assert (tmp_path / "installed").read_text().splitlines() == [
        f"{pip} --upgrade pip",
        f"{pip} -c constraints.txt torch",
        f"{pip} -c constraints.txt -e .[demo]",
    ]


def test_where_pip_fails_its_log_ends_the_output(install, tmp_path):
    (tmp_path / "broken").touch()
    status, _, err = install("train")
    assert status == 7
    assert err.splitlines() == [
        "pip has failed with status 7. The end of .venv/install-train.log:",
        *map(str, range(16, 31)),
    ]
    assert "Collecting" in (tmp_path / ".venv" / "install-train.log").read_text()


def test_another_python_is_refused_before_anything_is_installed(install, tmp_path):
    shutil.rmtree(tmp_path / ".venv")
    other = tmp_path / "python3.9"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    advice = "make demo PYTHON=python3.12"
    assert install("demo", str(other)) == (
        1, "", f"rejuice needs Python 3.11 or 3.12, and {other} is another: {advice}\n",
    )  # fmt: skip
    status, _, err = install("demo", "no_python")
    assert (status, err) == (
        1, f"there is no no_python: {advice}, or another of Python 3.11 or 3.12\n",
    )  # fmt: skip
    assert not (tmp_path / ".venv").exists()
