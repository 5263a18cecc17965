"""Data-Juicer's command line, which reads the recipe: it accepts our sections, too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ...operators import RejuiceError
from ..recipe.head import checked_head
from .own_fields import give_each_use_its_fields
from .stop import stop


def accept_our_sections() -> None:
    """Let Data-Juicer's parser accept the sections of a recipe that it does not know.

    It refuses unknown keys, and has no other way to add one. `train:` is for `rejuice train`.
    `generated_datasets:` are written here, because Data-Juicer looks for its dataset right after.
    """
    from data_juicer.config import config  # Which may be importing us: its imports are done.

    class Parser(config.ArgumentParser):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.add_argument("--train", type=Any, help="Settings of `rejuice train`.")
            self.add_argument("--generated_datasets", type=Any, help="Written where missing.")
            # When the plug-in is imported, Data-Juicer's configuration has no functions yet.
            give_each_use_its_fields()

        def parse_args(self, *args: Any, **kwargs: Any) -> Any:
            settings = super().parse_args(*args, **kwargs)
            _write_missing(settings)
            return settings

    config.ArgumentParser = Parser


def _write_missing(settings: Any) -> None:
    """Write the dataset of a recipe if it does not exist and the recipe says how."""
    generated = getattr(settings, "generated_datasets", None)
    # A dataset of the command line is not the recipe's. Data-Juicer parses a first time without it.
    overridden = any(word.partition("=")[0] == "--dataset_path" for word in sys.argv)
    if generated and not overridden:
        dataset = settings.dataset_path
        head = {
            "dataset_path": dataset,
            "export_path": settings.export_path,
            "generated_datasets": generated,
        }
        recipe = Path(", ".join(map(str, settings.config or [])))
        try:
            checked_head(recipe, head, {}, ()).write_missing(Path(dataset))
        except RejuiceError as error:
            stop(error)
