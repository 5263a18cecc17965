"""The libraries inside a page: plotly.js draws, DataTables lists. Both are files of PyPI packages.

plotly.js is what the field's notebooks and panels are drawn with, and needs no network; of its
traces only those are used that draw SVG, because WebGL traces compile code at run time, which the
page's security policy forbids. DataTables comes with `itables`, which bundles it as a module.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ....operators import RejuiceError

_EXPORT = re.compile(r"export\s*\{([^}]*)\}")


@cache
def plotly_js() -> str:
    """The script of plotly.js: it defines `Plotly`.

    Raises:
        RejuiceError: the package is there without it.
    """
    return _read("plotly", "package_data/plotly.min.js")


@cache
def tables_js() -> str:
    """The module of DataTables as a plain script: it defines `dataTables`, with `jQuery`.

    Raises:
        RejuiceError: the package is there without it, or is not built as it was.
    """
    text = _read("itables", "html/dt_bundle.js")
    match = _EXPORT.search(text)
    if match is None or " as jQuery" not in match[1]:
        raise RejuiceError("the bundle of itables exports no jQuery", "install itables>=2.9,<3")
    names = [name.strip().split(" as ") for name in match[1].split(",")]
    given = ",".join(f'"{outer}":{inner}' for inner, outer in names)
    exported = f"globalThis.dataTables={{{given}}}"
    return f"(()=>{{{text[: match.start()]}{exported}{text[match.end() :]}\n}})();"


@cache
def tables_css() -> str:
    """The style of DataTables.

    Raises:
        RejuiceError: the package is there without it.
    """
    return _read("itables", "html/dt_bundle.css")


def _read(package: str, path: str) -> str:
    try:
        return files(package).joinpath(path).read_text("utf-8")
    except (OSError, ModuleNotFoundError) as error:
        raise RejuiceError(f"{package} has no {path}", f"install {package} again") from error
