"""Whether a run is finished: its export and its run folder are whole, and are those of its plan.

    curated.run/manifest.json    the key of the run; size, time and xxh3 of each file; written last

A run whose manifest has its key, and whose files are as the manifest says, has nothing to do.
Anything else (another export, a report that is gone, a torn manifest) is no finished run: its files
are written again, from the commits. On disk a file is as it was where size and time are the same,
or its bytes: with `--verify` they are always read, which finds what a bad disk has changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from ...operators import DataError, RejuiceError, ResumableOperator
from ...operators.disk import NotAFileError, check_is_file, left_by_killed, open_file, sync
from ...operators.json_text import parse_json
from ..dataset.files import (
    MANIFEST,
    PART,
    PARTS_LIST,
    check_is_no_folder,
    is_folder,
    is_part,
    made_by_file,
    read_file,
    remove_folder,
    run_folder,
    unfinished_made_by,
    write_file,
)
from ..dataset.remote import AnyPath, RemotePath, leased
from ..dataset.write import parts_of, written_of
from ..recipe.recipe import Recipe, dump
from .plan import Plan, kept_folder
from .report import Report, decision_files

# --- Only one run writes an export, and its run folder, at a time ---------------------
# On disk a lock of the system is held, which ends with its process. In an object store a run keeps
# a lease, see `dataset/remote.py`. One that was suspended loses it, and ends where it next looks,
# which is before it puts files in place. Each file of an export is still complete.


class Hold(NamedTuple):
    export_path: AnyPath
    # in a store, what is there as long as the lease is not lost; None: a lock of the system is held
    claim: RemotePath | None = None

    def check(self) -> None:
        if self.claim is not None and not self.claim.exists():
            found = "this run did not renew its lease, so that another may be writing"
            right = "when that has ended, run this recipe again: what was computed is kept"
            raise RejuiceError(f"{found} {self.export_path}", right)


@contextmanager
def sole_writer(export_path: AnyPath) -> Iterator[Hold]:
    """Hold an export for this run alone, with all exports that have the same run folder."""

    def refuse() -> None:
        found = f"another run is writing {export_path}"
        raise RejuiceError(found, "wait for it, or give another --export_path")

    lock = export_path.with_name(f".{run_folder(export_path).name}.lock")
    if isinstance(lock, RemotePath):
        with leased(lock, refuse) as claim:
            yield Hold(export_path, claim)
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    check_is_file(lock)
    try:
        with FileLock(lock, timeout=0):
            yield Hold(export_path)
    except Timeout:
        refuse()


# --- Place ----------------------------------------------------------------------------
# Where a run is written: on disk under temporary names, in an object store where it belongs.
#
# What makes a run complete is its manifest, which is removed first and written last. As long as
# files of two runs may be there, a marker names the recipe that the export is of. Files are put in
# place one by one, and of the others only those go that a run has written.

_ABOUT = ("recipe.yaml", "report.json")  # of a run folder


class RunPlace(NamedTuple):
    folder: AnyPath  # for the report, the recipe and the decisions
    export: AnyPath  # for the export: the file, or the folder of parts
    hold: Hold  # what keeps other runs from writing there


@contextmanager
def placed(plan: Plan, hold: Hold) -> Iterator[RunPlace]:
    """Where to write a run; it is in place, and signed, when the block ends without an error."""
    export, folder = hold.export_path, run_folder(hold.export_path)
    marker, made_by = made_by_file(export), recipe_mark(plan.recipe)
    hold.check()
    if isinstance(marker, Path):
        made = marker.parent / "made"
        remove_folder(made)  # What a killed run may have left.
        try:
            yield RunPlace(made / folder.name, made / export.name, hold)
        except BaseException:
            remove_folder(made)
            with suppress(OSError):  # The marker stays of a run that was killed as it was placed.
                marker.parent.rmdir()
            raise
        write_file(marker, made_by)
        _put_in_place(made, Path(str(export)))
    else:
        write_file(marker, made_by)
        about = [folder / name for name in (MANIFEST, *_ABOUT)]
        for file in (*about, *decision_files(folder), *_parts(export)):
            file.unlink(missing_ok=True)  # Another run may have cut it into more parts.
        yield RunPlace(folder, export, hold)
    sign(plan, hold)
    marker.unlink(missing_ok=True)
    # S3 keeps a folder from which the last file is removed.
    if isinstance(marker, Path) or next(marker.parent.iterdir(), None) is None:
        remove_folder(marker.parent)


def _put_in_place(made: Path, export: Path) -> None:
    """Move the files of a complete run where they belong, the rows last, and then their list."""
    final = Path(str(run_folder(export)))
    (final / MANIFEST).unlink(missing_ok=True)
    if is_folder(export):
        (export / PARTS_LIST).unlink(missing_ok=True)
    about, files = made / final.name, [path for path in made.rglob("*") if path.is_file()]
    files.sort(key=lambda path: (about not in path.parents, path.name == PARTS_LIST))
    moves = {path: export.parent / path.relative_to(made) for path in files}
    torn = [old for name in (MANIFEST, *_ABOUT) for old in left_by_killed(final / name)]
    stale = {*decision_files(final), *_parts(export), *torn}.difference(moves.values())
    for path, place in moves.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        check_is_no_folder(place)
        path.replace(place)
    for old in stale:
        old.unlink(missing_ok=True)
        with suppress(OSError):  # Of a step that the recipe no longer has.
            Path(str(old.parent)).rmdir()
    sync(export.parent)


def _parts(export: AnyPath) -> list[AnyPath]:
    """The files of an export in parts, whichever run has written them."""
    if not is_folder(export):
        return []
    return [export / PARTS_LIST, *filter(is_part, export.glob(f"{PART}-*"))]


# --- Finished -------------------------------------------------------------------------

_FORMAT = 2
"""Part of every key: raise it when exports, decisions or reports are written in another way."""
_BLOCK = 1 << 24
_NOT_COMPARED = ("dataset_path",)
"""A dataset that is a table has another temporary file in each run."""


class FileState(NamedTuple):
    size: int  # bytes
    mtime_ns: int  # when it was written
    xxh3: str  # of its content; in an object store, which changes no file, it is empty


class Manifest(NamedTuple):
    key: str  # of the run, see `run_key`
    made_by: str  # the recipe that was run, see `recipe_mark`
    cache: str  # the folder with its commits
    uses: Sequence[str]  # names of the folders in there that it uses
    files: Mapping[str, FileState]  # by their path in the folder of the export, what each holds


_MANIFEST = TypeAdapter(Manifest)


def run_key(plan: Plan) -> str:
    """A hash of all that decides the rows and the decisions of a run.

    Not of what only describes it, such as the number of workers: see `describe`.
    """
    head = plan.recipe.head
    made_of = [
        _FORMAT,
        head.export_path.name,
        plan.keys[-1],
        head.keep_stats_in_res_ds,
        head.keep_hashes_in_res_ds,
        sorted(written_of(head.dataset_spec).columns),
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
    operators = (step.operator for step in plan.steps)
    kept = [kept_folder(plan.cache, o).name for o in operators if isinstance(o, ResumableOperator)]
    uses = dict.fromkeys((plan.source.folder.name, *plan.keys, *kept))
    cache = str(plan.cache.resolve())
    return Manifest(run_key(plan), recipe_mark(plan.recipe), cache, tuple(uses), files)


def finished_report(plan: Plan, head: Mapping[str, Any], *, verify: bool) -> Report | None:
    """The report of a run that has nothing to do; None where it is not finished.

    Where `head`, the fields that describe the run, is not as in the report on disk, since the
    recipe has another name or number of workers, the report is written again.
    """
    export = plan.recipe.head.export_path
    found = read_manifest(run_folder(export))
    if found is None or found.key != run_key(plan) or not all(map(plan.is_done, plan.steps)):
        return None
    if not _is_whole(export, found.files, verify) or unfinished_made_by(export) is not None:
        return None
    try:
        report = Report.read(export)
    except DataError:  # It is damaged, and has the size and the time that it had.
        return None
    described = report.model_copy(update=dict(head))
    text = dump(plan.recipe.absolute())
    if described != report or text.encode() != read_file(run_folder(export) / "recipe.yaml"):
        describe(export, described, text, manifest_of(plan, found.files))
    steps = tuple(s.model_copy(update={"cached": True, "retried": 0}) for s in described.steps)
    return described.model_copy(update={"steps": steps})


def describe(
    export: AnyPath, report: Report, recipe: str, manifest: Manifest | None = None
) -> None:
    """Replace the report and the recipe of a finished run, whose rows stay as they are."""
    folder = run_folder(export)
    manifest = manifest or read_manifest(folder)
    (folder / MANIFEST).unlink(missing_ok=True)  # First: until all is written, nothing is finished.
    write_file(folder / "recipe.yaml", recipe)
    report.write(folder)
    if manifest is not None:
        changed = _states(export.parent, [folder / name for name in _ABOUT])
        write_manifest(folder, manifest._replace(files={**manifest.files, **changed}))


def sign(plan: Plan, hold: Hold) -> None:
    """Write the manifest of a run all of whose other files are in place."""
    export, folder = plan.recipe.head.export_path, run_folder(plan.recipe.head.export_path)
    rows = [*parts_of(export), export / PARTS_LIST] if is_folder(export) else [export]
    files = _states(export.parent, [*rows, *(folder / x for x in _ABOUT), *decision_files(folder)])
    hold.check()
    write_manifest(folder, manifest_of(plan, files))


def write_manifest(folder: AnyPath, manifest: Manifest) -> None:
    content = manifest._asdict()
    signed = {**content, "checksum": _checksum(content)}
    write_file(folder / MANIFEST, f"{json.dumps(signed, indent=1)}\n")


def read_manifest(folder: AnyPath) -> Manifest | None:
    """The manifest in a run folder; None where there is none, or where it is damaged."""
    try:
        content = parse_json(read_file(folder / MANIFEST))
        if content.pop("checksum") != _checksum(content):
            return None
        # A checksum can be made of anything.
        return _MANIFEST.validate_python(content, strict=True)
    except (FileNotFoundError, NotAFileError, ValueError, AttributeError, KeyError, TypeError):
        return None


def _states(root: Any, files: Iterable[AnyPath]) -> dict[str, FileState]:
    return {file.relative_to(root).as_posix(): _state(file) for file in files}


def _is_whole(export: AnyPath, files: Mapping[str, FileState], verify: bool) -> bool:
    try:
        return all(_is_same(export.parent / name, state, verify) for name, state in files.items())
    except (FileNotFoundError, NotAFileError):
        return False


def _is_same(file: AnyPath, state: FileState, verify: bool) -> bool:
    if isinstance(file, Path):
        check_is_file(file)
    found = file.stat()
    if found.st_size != state.size:
        return False
    if found.st_mtime_ns == state.mtime_ns and (isinstance(file, RemotePath) or not verify):
        return True
    return _state(file).xxh3 == state.xxh3 != ""


def _state(file: AnyPath) -> FileState:
    if isinstance(file, RemotePath):  # It is not fetched.
        found = file.stat()
        return FileState(found.st_size, found.st_mtime_ns, "")
    with open(open_file(file), "rb") as stream:
        stat, checksum = os.fstat(stream.fileno()), xxhash.xxh3_128()
        while block := stream.read(_BLOCK):
            checksum.update(block)
        return FileState(stat.st_size, stat.st_mtime_ns, checksum.hexdigest())


def _checksum(content: Mapping[str, Any]) -> str:
    return _hash(json.dumps(content, sort_keys=True))


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())
