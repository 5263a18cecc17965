"""Show a file in the browser of the desktop."""

from __future__ import annotations

import webbrowser
from pathlib import Path


def open_browser(page: Path) -> None:
    """Open a page; where there is no browser, nothing happens."""
    webbrowser.open(page.resolve().as_uri())
