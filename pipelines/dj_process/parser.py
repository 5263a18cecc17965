"""The sections of a recipe that Data-Juicer does not know, in its configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from loguru import logger

from ...operators import RejuiceError
from ..recipe.head import checked_head
from .ours import has_ours
from .stop import stop


def accept_our_sections(parser: Any) -> Any:
    """Data-Juicer's parser, which refuses unknown keys, with the sections that are ours.

    `train:` is for `rejuice train`; `generated_datasets:` are written before a run; `columns:` are
    selected when the dataset is loaded;
    `max_rows_per_file:` is for `rejuice run`.
    """
    parser.add_argument("--train", type=Any, help="Settings of `rejuice train`.")
    parser.add_argument("--generated_datasets", type=Any, help="Written where missing.")
    parser.add_argument("--columns", type=Any, help="Columns that are read, and their names.")
    parser.add_argument("--max_rows_per_file", type=int, help="Of an export that is a folder.")
    return parser


def write_missing(set_up: Callable[..., Any], settings: Any, *args: Any, **kwargs: Any) -> Any:
    """`init_setup_from_cfg`, before which the dataset is written if the recipe says how.

    What Data-Juicer does there is to look for the dataset, and to give `skip_op_error` to each
    step. A file that exists stays as it is.
    """
    if settings.get("skip_op_error") and has_ours(settings.get("process") or ()):
        # A batch of a thousand rows would be gone where one of them fails.
        settings.skip_op_error = False
        logger.warning(
            "skip_op_error: true has no effect in a recipe with operators of rejuice: a row that "
            "an operator fails on ends the run"
        )
    generated = getattr(settings, "generated_datasets", None)
    if generated:
        head = {
            "dataset_path": settings.dataset_path,
            "dataset": settings.dataset,
            "export_path": settings.export_path,
            "generated_datasets": generated,
        }
        fields = [each or {} for entry in settings.process or () for each in entry.values()]
        found = ((each.get("recorded") or {}).get("path") for each in fields)
        recordings = [path for path in found if path]
        recipe = Path(", ".join(map(str, settings.config or [])))
        try:
            checked = checked_head(recipe, head, {}, ())
            checked.write_missing(*checked.dataset_spec.paths, *map(Path, recordings))
        except RejuiceError as error:
            stop(error)
    return set_up(settings, *args, **kwargs)
