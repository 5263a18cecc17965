"""What `rejuice check` takes, as CPU time (user and system) of its process, the median of five.

    python benchmarks/bench_check.py

Printed beside it is what the same machine takes, in turns with it, to import three of the libraries
that it cannot do without: the ratio is the figure that machines and busy hours have in common.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from measure import cost

from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5
REJUICE = (sys.executable, "-m", "rejuice.pipelines.cli", "check")
LIBRARIES = "import pyarrow, pydantic, yaml"


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        write_dataset(prompts, "arithmetic", DemoOptions(seed=0, prompts=200))
        quickstart = str(ROOT / "recipes" / "quickstart.yaml")
        commands = {
            LIBRARIES: (sys.executable, "-c", LIBRARIES),
            "quickstart.yaml, with its prompts": (
                *REJUICE,
                quickstart,
                "--dataset_path",
                str(prompts),
            ),
            "gsm8k_qwen.yaml, without data": (
                *REJUICE,
                str(ROOT / "recipes" / "gsm8k_qwen.yaml"),
            ),
        }
        # Bytecode is written and read, as on a user's machine. The first round writes it.
        runs = [
            {
                name: cost(*command, PYTHONDONTWRITEBYTECODE="").cpu
                for name, command in commands.items()
            }
            for _ in range(1 + RUNS)
        ]
    medians = {name: statistics.median(run[name] for run in runs[1:]) for name in commands}
    for name, seconds in medians.items():
        print(f"{name:<36}{seconds:6.2f} CPU-s{seconds / medians[LIBRARIES]:6.2f}")


if __name__ == "__main__":
    main()
