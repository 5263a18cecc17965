"""What verl imports in every process of a run: `VERL_USE_EXTERNAL_MODULES` names it."""

import sys

# verl takes whatever is called trl for one that has a model with a value head, and fails on one
# that has none any more. GRPO needs no such model: in these processes there is no trl.
sys.modules.setdefault("trl", None)  # type: ignore[arg-type]
