"""What must hold on any x86-64 holds with fewer of this processor's instructions, too.

Sums are taken in another order where registers are narrower, so that last digits differ. The tests
named here compare with float64, or one way to compute with another on the same machine.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TESTS = (
    "tests/operators/sampling/test_key_values.py",
    "tests/operators/sampling/test_transformers_engine.py",
    "tests/trainer/cpu/test_engine.py",
)
COMPARED = "log_probs or logprobs or update or full_pass or stores"
FEWEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}


def test_with_the_fewest_instructions():
    import torch

    mine = torch.backends.cpu.get_cpu_capability()
    if not mine.startswith("AVX"):
        pytest.skip(f"this processor has {mine}: the suite itself runs so")
    environment = {**os.environ, **FEWEST}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        COMPARED,
        *TESTS,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= 8, "tests have other names"
