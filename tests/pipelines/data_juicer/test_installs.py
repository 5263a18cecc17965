"""No step changes the environment that it runs in, however Data-Juicer tries."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from rejuice.pipelines.data_juicer.failures import NotInstalledError, no_installs

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

PYTHON = sys.executable


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ([PYTHON, "-m", "pip", "install", "openmim"], "openmim"),
        ([PYTHON, "-m", "uv", "pip", "install", "x", "--no-deps"], "x"),
        ([PYTHON, "-m", "mim", "install", "mmcv==2.1.0"], "mmcv==2.1.0"),
        (["pip", "install", "--no-build-isolation", "git+https://h/x.git"], "git+https://h/x.git"),
        (["/usr/bin/uv", "sync"], "/usr/bin/uv sync"),
        (["pip", "uninstall", "droid_backends", "-y"], "droid_backends"),
        (["python", "setup.py", "install"], "python setup.py install"),
        (f"{PYTHON} -m pip install 'a b'", "a b"),
    ],
)
def test_a_command_that_installs_is_refused(command, package):
    with pytest.raises(NotInstalledError) as raised, no_installs():
        subprocess.run(command, shell=isinstance(command, str), check=True)
    assert raised.value.package == package


def test_a_refusal_that_is_swallowed_ends_the_step():
    refused = pytest.raises(NotInstalledError, match=r"^x is not installed$")
    with refused, no_installs(), suppress(ImportError):
        os.system("pip install x")


def test_a_refusal_that_becomes_another_error_names_the_package():
    with pytest.raises(NotInstalledError, match=r"^x is not installed$"), no_installs():
        try:
            subprocess.check_call(["pip", "install", "x"])
        except ImportError:
            raise RuntimeError("cannot go on") from None


def test_other_commands_run_and_so_do_those_that_no_operator_starts():
    with no_installs():
        assert subprocess.run([PYTHON, "-c", "print('install')"], check=True).returncode == 0
    assert subprocess.run([PYTHON, "-m", "pip", "--version", "install"]).returncode == 0


def test_a_package_that_is_imported_by_another_name_is_not_installed_again():
    from data_juicer.utils.lazy_loader import LazyLoader

    with no_installs():
        LazyLoader.check_packages(
            ["PyYAML", "pyarrow", "PyYAML>=1.0", "PyYAML==0.1", "PyYAML @ git+https://h/x"]
        )
        for missing in ("no-such-package", "no-such-package==1.0", "git+https://h/no-such.git", ""):
            with pytest.raises(NotInstalledError):
                LazyLoader._install_package(missing)
        with pytest.raises(NotInstalledError, match=r"^no-such-package is not installed$"):
            LazyLoader.check_packages(["PyYAML", "no-such-package"], "--no-deps")


def test_who_uses_data_juicer_beside_rejuice_has_its_installer(monkeypatch):
    from data_juicer.utils import lazy_loader

    with no_installs():
        pass
    started = []
    monkeypatch.setattr(lazy_loader.LazyLoader, "_dependencies", {})
    monkeypatch.setattr(lazy_loader.subprocess, "check_call", started.append)
    assert lazy_loader.LazyLoader._install_package("no-such-package") is True
    assert [command[-1] for command in started] == ["no-such-package"]


def test_installers_are_as_before_once_no_operator_works(monkeypatch):
    """Who runs a recipe from a notebook may install something in its next cell."""
    monkeypatch.setenv("UV_OFFLINE", "0")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    with no_installs():
        with no_installs():
            pass
        assert (os.environ["UV_OFFLINE"], os.environ["PIP_NO_INDEX"]) == ("0", "1")
    assert (os.environ["UV_OFFLINE"], os.environ.get("PIP_NO_INDEX")) == ("0", None)
