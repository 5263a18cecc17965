"""What verl imports in every process of a run: `VERL_USE_EXTERNAL_MODULES` names it."""

import sys

# verl imports trl's model with a value head wherever trl is installed, and fails with versions of
# trl that have none. GRPO needs no such model: in these processes, trl is reported as missing.
# private: trl==1.16.0, tests/trainer/cpu/test_seams.py::test_the_platform_is_there_where_it_is_named_and_nowhere_else
sys.modules.setdefault("trl", None)  # type: ignore[arg-type]
