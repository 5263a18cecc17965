"""A run on many small files beside one on a tenth of them: `bench_many_files.py [FILES]`.

Each file has eight responses to two prompts. Aim: at most 12 times the CPU time.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from measure import cost

STEPS = [{"pass_rate_filter": {"min": 0.1, "max": 0.9}}]


def rows(number):
    return [
        {
            "prompt_id": f"{number}-{at // 4}",
            "prompt_text": f"{number} + {at // 4}?",
            "response_id": f"{number}-{at}",
            "response": f"It is {at}.",
            "verdict": "correct" if at % 4 else "wrong_answer",
        }
        for at in range(8)
    ]


def write(folder, files, suffix):
    folder.mkdir()
    for number in range(files):
        path = folder / f"{number:06d}{suffix}"
        if suffix == ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows(number)))
        else:
            pq.write_table(pa.Table.from_pylist(rows(number)), path)


def main(files):
    rejuice = shutil.which("rejuice", path=str(Path(sys.executable).parent)) or "rejuice"
    for suffix in (".jsonl", ".parquet"):
        seconds = []
        for count in (files // 10, files):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                write(folder / "in", count, suffix)
                recipe = folder / "recipe.yaml"
                export = str(folder / "out.parquet")
                head = {"dataset_path": str(folder / "in"), "export_path": export}
                recipe.write_text(yaml.safe_dump({**head, "process": STEPS}))
                seconds.append(cost(rejuice, "run", str(recipe)).cpu)
                assert pq.read_metadata(export).num_rows == 8 * count
        few, many = seconds
        print(
            f"{suffix}: {files // 10:,} files {few:.1f} CPU-s, {files:,} {many:.1f}: {many / few:.1f} times"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10_000)
