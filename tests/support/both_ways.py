"""One operator of Data-Juicer's, run by Data-Juicer and as a step of ours, and compared.

`bench_both_ways.py` and `test_both_ways.py` use it. Nothing here asks the network: what would
download something fails at once.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml
from djrows import rows

from rejuice.operators import RecipeError, RejuiceError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.data_juicer import catalogue
from rejuice.pipelines.engine.steps import run_in_memory

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "UV_OFFLINE": "1",
    "PIP_NO_INDEX": "1",
    "OPENAI_API_KEY": "none",
    # Nobody listens on port 9: what asks the network through these is refused at once.
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    ),
    "NO_PROXY": "",
    "no_proxy": "",
}
IDENTICAL, ORDER, SAME_FAILURE, NEEDS, REFUSED, DIFFERENT, RAW = CLASSES = (
    "identical",
    "identical but for the order",
    "the same failure",
    "needs a package or a model",
    "refused",
    "different",
    "an unclear failure, or ours alone",
)
BAD = (DIFFERENT, RAW)
SORTING = {
    "frequency_specified_field_selector",
    "random_selector",
    "range_specified_field_selector",
    "topk_specified_field_selector",
}
"""Selectors after which Data-Juicer has the rows in another order, as docs/data-juicer.md says."""
HASHED_COLUMNS = {"latex_figure_context_extractor_mapper"}
"""Whose columns come out of a set: their order differs from process to process."""
CHUNK_ROWS = 40
_RAY = re.compile(r"ray_\w+_deduplicator$")
_MEDIA = re.compile("image|audio|video|imgdiff|mllm|sdxl|vggt|lerobot|phrase_grounding")
_NEEDS = re.compile(
    "needs|offline|cannot be reached|ConnectionError|Cannot connect|ConnectError|LocalEntryNotFound"
    "|couldn't connect|Connection refused|not the path to a directory|APIConnectionError"
)
_FIELDS = Path(__file__).with_name("effective_fields.yaml")


class Outcome(NamedTuple):
    """What came of an operator both ways.

    Attributes:
        verdict: one of `CLASSES`.
        line: the difference, or the message.
        effect: what Data-Juicer's operator did to the rows; empty: nothing, or it failed.
    """

    verdict: str
    line: str = ""
    effect: str = ""


def operators() -> list[str]:
    """Data-Juicer's operators of every kind, but for those of images, sound and films.

    Nor are the deduplicators for Ray: Data-Juicer's default executor does not run them. They are
    compared in `tests/pipelines/data_juicer/test_with_ray.py`.
    """
    names = sorted(catalogue.registered())
    return [name for name in names if not _MEDIA.search(name) and not _RAY.match(name)]


def effective_fields() -> dict[str, list[dict[str, Any]]]:
    """Fields with which an operator does something to the rows of `djrows`."""
    return yaml.safe_load(_FIELDS.read_text("utf-8"))


def located(value: Any, folder: Path) -> Any:
    """Fields with `{folder}` filled in."""
    if isinstance(value, str):
        return value.replace("{folder}", str(folder))
    if isinstance(value, dict):
        return {key: located(each, folder) for key, each in value.items()}
    return [located(each, folder) for each in value] if isinstance(value, list) else value


def compare(
    name: str, fields: dict[str, Any], table: pa.Table, *, in_memory: bool = True
) -> Outcome:
    """Run an operator by Data-Juicer and as a step of ours, in chunks and in memory.

    Args:
        name: the operator's.
        fields: its fields.
        table: the rows.
        in_memory: False: only in chunks, which is quicker.
    """
    try:
        recipe = Recipe([{name: fields}], table)
    except RecipeError as error:
        return Outcome(NEEDS if "pip install" in str(error) else REFUSED, str(error))
    theirs, failure = _result(lambda: upstream(name, fields, table))
    effect = "" if theirs is None else _effect(table, theirs)
    operators = [step.operator for step in recipe.steps]
    ways = {
        f"in chunks of {CHUNK_ROWS} rows": lambda: (
            run(recipe, chunk_rows=CHUNK_ROWS, allow_empty=True).table
        )
    }
    if in_memory:
        ways["in memory"] = lambda: run_in_memory(operators, table)
    outcome = Outcome(IDENTICAL, effect=effect)
    for label, way in ways.items():
        verdict, line = _judge(name, theirs, failure, *_result(way))
        if verdict in BAD:
            return Outcome(verdict, f"{label}: {line}", effect)
        if verdict != IDENTICAL:
            outcome = Outcome(verdict, line, effect)
    return outcome


def upstream(name: str, fields: dict[str, Any], table: pa.Table) -> pa.Table:
    """The rows that Data-Juicer makes of a table, in this process, as its default executor does.

    Its `init_setup_from_cfg` gives every operator the attributes below, those that say how many
    processes work aside. A failing row is an error, as all our recipes have it.
    """
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops import load_ops
    from datasets import Dataset, disable_caching

    disable_caching()
    of_recipe = {
        "text_key": "text",
        "image_key": "images",
        "audio_key": "audios",
        "video_key": "videos",
        "image_bytes_key": "image_bytes",
        "turbo": False,
        "skip_op_error": False,
        "auto_op_parallelism": False,
        "num_proc": None,
    }
    operators = load_ops([{name: {**of_recipe, **fields}}])
    done = NestedDataset(Dataset(table)).process(operators, open_monitor=False)
    return done.with_format("arrow")[:].replace_schema_metadata(None)


def exported(table: pa.Table) -> pa.Table:
    """What Data-Juicer exports of its rows: without statistics, tags and hashes."""
    from data_juicer.utils.constant import Fields, HashKeys

    hashes = (HashKeys.hash, HashKeys.minhash, HashKeys.simhash, HashKeys.imagehash)
    gone = {Fields.stats, Fields.meta, *hashes, HashKeys.videohash}
    return table.select([name for name in table.column_names if name not in gone])


def difference(theirs: pa.Table, ours: pa.Table) -> str:
    """How two tables differ, in one line; empty where they do not."""
    if theirs.column_names != ours.column_names:
        return f"columns {theirs.column_names} became {ours.column_names}"
    for one, other in zip(theirs.schema, ours.schema, strict=True):
        if not _plain(one.type).equals(_plain(other.type)):
            return f"column '{one.name}' is {one.type} for Data-Juicer, {other.type} for us"
    if theirs.num_rows != ours.num_rows:
        return f"{theirs.num_rows} rows became {ours.num_rows}"
    for name in theirs.column_names:
        pairs = zip(theirs[name].to_pylist(), ours[name].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if repr(one) != repr(other):
                return f"column '{name}', row {row}: {one!r:.120} became {other!r:.120}"
    return ""


def _judge(
    name: str,
    theirs: pa.Table | None,
    failure: Exception | None,
    ours: pa.Table | None,
    error: Exception | None,
) -> tuple[str, str]:
    if error is not None:
        line = str(error)
        if failure is None or not isinstance(error, RejuiceError) or "\n" in line.strip():
            return RAW, f"{type(error).__name__}: {line}"
        if _NEEDS.search(line) or _NEEDS.search(f"{type(failure).__name__}: {failure}"):
            return NEEDS, line
        first = next((each for each in str(failure).splitlines() if each.strip()), "")
        named = type(failure).__name__ in line or first in line
        return (SAME_FAILURE if named else RAW), f"{line} [Data-Juicer: {failure!r:.200}]"
    if failure is not None:
        return DIFFERENT, f"Data-Juicer fails, we do not: {failure!r:.300}"
    theirs, ours = exported(theirs), exported(ours)
    if name in HASHED_COLUMNS:
        theirs, ours = (table.select(sorted(table.column_names)) for table in (theirs, ours))
    line = difference(theirs, ours)
    if line and name in SORTING and not difference(_sorted(theirs), _sorted(ours)):
        return ORDER, ""
    return (DIFFERENT if line else IDENTICAL), line


def _result(work: Any) -> tuple[pa.Table | None, Exception | None]:
    from loguru import logger

    logger.disable("data_juicer")
    try:
        return work(), None
    except Exception as error:
        return None, error


def _effect(before: pa.Table, after: pa.Table) -> str:
    """What an operator did to the rows; statistics and hashes do not count."""
    helper = re.compile("__dj__(?!meta__)")
    before, after = (
        table.select([name for name in table.column_names if not helper.match(name)])
        for table in (before, after)
    )
    if after.num_rows != before.num_rows:
        return f"{before.num_rows} rows became {after.num_rows}" if after.num_rows else ""
    return difference(before, after)


def _sorted(table: pa.Table) -> pa.Table:
    order = sorted(range(table.num_rows), key=[repr(row) for row in table.to_pylist()].__getitem__)
    return table.take(pa.array(order, pa.int64()))


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type in which the names of a list's items do not matter."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(pa.field("item", _plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind


def fields_of(name: str, number: int) -> dict[str, Any]:
    """The default fields of an operator (-1), or the effective ones of that number."""
    return {} if number < 0 else effective_fields()[name][number]


def outcome(name: str, number: int, folder: Path, *, quick: bool = False) -> Outcome:
    """What comes of an operator with the fields `fields_of` has, over the rows of `djrows`."""
    fields = located(fields_of(name, number), folder)
    return compare(name, fields, rows(folder, 2 if quick else 4), in_memory=not quick)
