"""What verl imports in every process of a run: `VERL_USE_EXTERNAL_MODULES` names it."""

import os
import sys

# verl takes whatever is called trl for one that has a model with a value head, and fails on one
# that has none any more. GRPO needs no such model: in these processes there is no trl.
sys.modules.setdefault("trl", None)  # type: ignore[arg-type]

if os.environ.get("VERL_PLATFORM") == "cpu":
    from ..cpu import platform  # noqa: F401
