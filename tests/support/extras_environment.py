"""A virtual environment with only some of what is installed here: what a requirement needs.

    python tests/support/extras_environment.py FOLDER REQUIREMENT

The folder is made, or gets what it lacks. Packages are links to those of the running Python, so
that it takes a second and no space. So are those that `python -m uv pip install REQUIREMENT`
installs in it: Data-Juicer installs what it misses that way.
"""

import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SCRIPT = """#!{python}
import sys
from {module} import {name}
sys.exit({name}())
"""

_UV = """import subprocess
import sys
assert sys.argv[1:3] == ["pip", "install"]
for requirement in sys.argv[3:]:
    subprocess.run([*{command!r}, requirement], check=True)
"""


def installed() -> dict[str, Distribution]:
    """What is installed beside the running Python, by canonical name."""
    path = [sysconfig.get_path("purelib")]
    return {canonicalize_name(each.name): each for each in distributions(path=path)}


def needed_by(requirement: str) -> list[Distribution]:
    """What a requirement names, and all that this requires."""
    there, found = installed(), set()
    waiting = [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for chosen in {"", *wanted.extras}:
            if (name, chosen) not in found:
                found.add((name, chosen))
                required = map(Requirement, there[name].requires or ())
                waiting += [r for r in required if not r.marker or r.marker.evaluate({"extra": chosen})]  # fmt: skip
    return [there[name] for name in sorted({name for name, _ in found} - {"uv"})]


def add(folder: Path, requirement: str) -> Path:
    """Add what is required to the environment in a folder; the path of its Python."""
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    if not python.exists():
        venv.create(folder)
        (site / "uv.py").write_text(_UV.format(command=[sys.executable, __file__, str(folder)]))
    for distribution in needed_by(requirement):
        _link(distribution, site)
        for script in distribution.entry_points.select(group="console_scripts"):
            if script.attr.isidentifier():
                path = python.with_name(script.name)
                text = _SCRIPT.format(python=python, module=script.module, name=script.attr)
                path.write_text(text, "utf-8")
                path.chmod(0o755)
    return python


def _link(distribution: Distribution, site: Path) -> None:
    """Link the modules and the metadata of a distribution, by their first folder."""
    for top in {Path(file).parts[0] for file in distribution.files or ()}:
        target = Path(str(distribution.locate_file(top)))
        if top not in ("..", "__pycache__") and not (site / top).exists():
            (site / top).symlink_to(target)


if __name__ == "__main__":
    add(Path(sys.argv[1]).absolute(), sys.argv[2])
