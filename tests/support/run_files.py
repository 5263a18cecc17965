"""What a run has written, for comparison with what another run has."""

import json

NAMES_PATHS = ("recipe.yaml", "manifest.json")
"""Files in which the path of the export stands, or a checksum of it."""
ITS_OWN = ("recipe", "dataset_path", "export_path", "cache", "seconds")
"""Entries of a report that differ between runs whose rows do not."""


def files_of(folder):
    """The bytes of everything that a run writes, but for its report, which has times."""
    files = [p for p in folder.rglob("*") if p.is_file() and ".rejuice" not in p.parts]
    left = [p for p in files if p.suffix != ".lock"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in left if p.name != "report.json"}


def rows_of(folder):
    """`files_of`, without those of `NAMES_PATHS`; and the report, apart from times, paths and what
    was found in the cache."""
    written = files_of(folder).items()
    files = {name: data for name, data in written if name.rpartition("/")[2] not in NAMES_PATHS}
    (path,) = folder.rglob("report.json")
    report = json.loads(path.read_text())
    steps = [
        {key: value for key, value in step.items() if key not in ("seconds", "cached")}
        for step in report.pop("steps")
    ]
    rest = {key: value for key, value in report.items() if key not in ITS_OWN}
    return {**files, "report.json": {**rest, "steps": steps}}
