"""Whether a run is finished: its export and its run folder are whole, and are those of its plan.

    curated.run/manifest.json    the key of the run, size and xxh3 of each file; written last

A run whose manifest has its key, and whose files are as the manifest says, has nothing to do.
Anything else (a flipped bit in the export, a report that is gone, a torn manifest) is no finished
run: its files are written again, from the commits.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import xxhash
from pydantic import TypeAdapter

from ....operators import ResumableOperator
from ....operators.disk import NotAFileError, open_file
from ....operators.json_text import parse_json
from ...dataset.files import read_file, write_file
from ...dataset.remote import AnyPath, RemotePath
from ...dataset.run_folder import is_folder, run_folder, unfinished_made_by
from ...dataset.written import written_columns
from ...recipe.recipe import Recipe
from ...recipe.yaml_text import dump
from ..plan import Plan, kept_folder
from ..report import Report
from .place import written_files
from .sole_writer import Hold

NAME = "manifest.json"
_FORMAT = 1
"""Part of every key: raise it when exports, decisions or reports are written in another way."""
_NOT_COMPARED = ("dataset_path",)
"""A dataset that is a table has another temporary file in each run."""


class FileState(NamedTuple):
    """What a file holds: its size in bytes, and the xxh3_128 of its content.

    In an object store, it is when the file was written instead of what it holds.
    """

    size: int
    xxh3: str


class Manifest(NamedTuple):
    """What a finished run has written.

    Attributes:
        key: of the run, see `run_key`.
        made_by: the recipe that was run, see `recipe_mark`.
        cache: the folder with its commits.
        uses: names of the folders in there that it uses.
        files: by their path in the folder of the export, what each holds.
    """

    key: str
    made_by: str
    cache: str
    uses: Sequence[str]
    files: Mapping[str, FileState]


_MANIFEST = TypeAdapter(Manifest)


def run_key(plan: Plan) -> str:
    """A hash of all that decides the rows and the decisions of a run.

    Not of what only describes it, such as the number of workers: see `describe`.
    """
    head = plan.recipe.head
    made_of = [
        _FORMAT,
        head.export_path.name,
        plan.result_key,
        head.keep_stats_in_res_ds,
        head.keep_hashes_in_res_ds,
        sorted(written_columns(head.dataset_spec)),
        head.max_rows_per_file if is_folder(head.export_path) else None,
    ]
    return _hash(json.dumps(made_of))


def recipe_mark(recipe: Recipe) -> str:
    """What a recipe is recognised by: its file or, where it has none, what it says."""
    if recipe.from_file:
        return str(recipe.path.resolve())
    compared = {k: v for k, v in recipe.absolute().items() if k not in _NOT_COMPARED}
    return _hash(dump(compared))


def manifest_of(plan: Plan, files: Mapping[str, FileState]) -> Manifest:
    """The manifest of a run that has written these files."""
    operators = (step.operator for step in plan.steps)
    kept = [kept_folder(plan.cache, o).name for o in operators if isinstance(o, ResumableOperator)]
    uses = dict.fromkeys((plan.source.folder.name, *plan.keys, *kept))
    cache = str(plan.cache.resolve())
    return Manifest(run_key(plan), recipe_mark(plan.recipe), cache, tuple(uses), files)


def finished_report(plan: Plan, head: Mapping[str, Any]) -> Report | None:
    """The report of a run that has nothing to do; None where it is not finished.

    Args:
        plan: of the run.
        head: the fields of the report that describe the run. Where the report on disk has others,
            for the recipe now has another name or another number of workers, it is written again.
    """
    export = plan.recipe.head.export_path
    found = read_manifest(run_folder(export))
    if found is None or found.key != run_key(plan) or not all(map(plan.is_done, plan.steps)):
        return None
    if not _is_whole(export, found.files) or unfinished_made_by(export) is not None:
        return None
    report = Report.read(export)
    described = report.model_copy(update=dict(head))
    text = dump(plan.recipe.absolute())
    if described != report or text.encode() != read_file(run_folder(export) / "recipe.yaml"):
        describe(export, described, text, manifest_of(plan, found.files))
    steps = tuple(s.model_copy(update={"cached": True, "retried": 0}) for s in described.steps)
    return described.model_copy(update={"steps": steps})


def describe(
    export: AnyPath, report: Report, recipe: str, manifest: Manifest | None = None
) -> None:
    """Replace the report and the recipe of a finished run, whose rows stay as they are.

    Args:
        export: its export.
        report: the new report.
        recipe: the new recipe as YAML.
        manifest: the new manifest, but for these two files; None: as it was.
    """
    folder = run_folder(export)
    manifest = manifest or read_manifest(folder)
    (folder / NAME).unlink(missing_ok=True)  # First: until all is written, nothing is finished.
    write_file(folder / "recipe.yaml", recipe)
    report.write(folder)
    if manifest is not None:
        changed = _states(export.parent, (folder / "recipe.yaml", folder / "report.json"))
        write_manifest(folder, manifest._replace(files={**manifest.files, **changed}))


def sign(plan: Plan, hold: Hold) -> None:
    """Write the manifest of a run all of whose other files are in place.

    Raises:
        RejuiceError: in a store, another run has taken the export: some of the files may be its.
    """
    export = plan.recipe.head.export_path
    files = _states(export.parent, written_files(export))
    hold.check()
    write_manifest(run_folder(export), manifest_of(plan, files))


def write_manifest(folder: AnyPath, manifest: Manifest) -> None:
    """Write the manifest of a run, whose other files are in place."""
    content = {**manifest._asdict(), "format": _FORMAT}
    signed = {**content, "checksum": _checksum(content)}
    write_file(folder / NAME, f"{json.dumps(signed, indent=1)}\n")


def read_manifest(folder: AnyPath) -> Manifest | None:
    """The manifest in a run folder; None where there is none, or where it is damaged."""
    try:
        content = parse_json(read_file(folder / NAME))
        checksum = content.pop("checksum")
        if checksum != _checksum(content) or content.pop("format") != _FORMAT:
            return None
        # A checksum can be made of anything.
        return _MANIFEST.validate_python(content, strict=True)
    except (FileNotFoundError, NotAFileError, ValueError, AttributeError, KeyError, TypeError):
        return None


def _states(root: AnyPath, files: Iterable[AnyPath]) -> dict[str, FileState]:
    """What files hold, by their path in the folder `root`."""
    return {_name_in(root, file): _state(file) for file in files}


def _name_in(root: AnyPath, file: AnyPath) -> str:
    parents: Iterable[AnyPath] = file.parents
    between = [path.name for path in takewhile(lambda path: path != root, parents)]
    return "/".join([*reversed(between), file.name])


def _is_whole(export: AnyPath, files: Mapping[str, FileState]) -> bool:
    """Whether the files of a run are as its manifest says, and its folder of parts has no other.

    On disk all of them are read. Their size and time would be known for less, but no flipped bit
    changes these, and each one has to be found.
    """
    root = export.parent
    paths = {root / name: state for name, state in files.items()}
    try:  # Sizes first: they cost nothing, and most of what is wrong shows in them.
        if any(path.stat().st_size != state.size for path, state in paths.items()):
            return False
        if is_folder(export) and any(path not in paths for path in export.iterdir()):
            return False  # Readers of datasets would read it, too.
        return all(_state(path) == state for path, state in paths.items())
    except (FileNotFoundError, NotAFileError):
        return False


def _state(file: AnyPath) -> FileState:
    if isinstance(file, RemotePath):  # It is not fetched: a store does not change what it holds.
        found = file.stat()
        return FileState(found.st_size, f"written at {found.st_mtime_ns}")
    with open(open_file(file), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if not size:  # Nothing can be mapped.
            return FileState(0, xxhash.xxh3_128_hexdigest(b""))
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return FileState(size, xxhash.xxh3_128_hexdigest(content))


def _checksum(content: Mapping[str, Any]) -> str:
    return _hash(json.dumps(content, sort_keys=True))


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())
