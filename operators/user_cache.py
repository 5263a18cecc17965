"""Where rejuice keeps what is worth keeping beyond a run: a folder in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def in_user_cache(name: str) -> Path:
    """A file in rejuice's folder in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "rejuice" / name
