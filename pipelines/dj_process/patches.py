"""The functions of Data-Juicer that do something else where our operators are installed.

Each is called by a function of ours, whose first argument it is. Nothing else of Data-Juicer is
changed, and these do what they did in a recipe that has no operator of ours, no operator twice and
no two that compute the same statistic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import xxhash
from loguru import logger

from ...operators import DataError, RecipeError, RejuiceError
from ..data_juicer.catalogue import KINDS, find
from ..data_juicer.steps import unchecked
from ..dataset.files import FORMAT, written
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, to_path
from ..dataset.schemas import conform, without_empty
from ..dataset.spec import DatasetPart, DatasetSpec, files_of, not_there
from ..recipe.columns import check_reads
from ..recipe.head import checked_head, dotted, selection
from ..recipe.recipe import option_value, set_field
from ..recipe.steps import FILES, Step, step_names, with_files
from . import loaded_operators
from .step_in_run import ProcessEntry, StepInRun, current_run, has_ours, is_ours, operator_of, stop

# --- The sections of a recipe that Data-Juicer does not know, in its configuration ----


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


# --- Probes, which run operators on a sample of the dataset before the run ------------
# `fusion_strategy: probe` and `adaptive_batch_size: true` run each operator on rows of the dataset,
# which lack what the steps before it write; and a step of ours may sample for hours. A recipe with
# one keeps the order of its filters and the sizes of batches.

Probe = Callable[..., Any]


def probe_small_batch(probe: Probe, adapter: Any, dataset: Any, operators: Sequence[Any]) -> Any:
    """`Adapter.probe_small_batch`: the speed of each operator, None if one is ours."""
    effect = "filters are fused in the order of the recipe, as with `fusion_strategy: greedy`"
    if _warned(operators, effect):
        return None, 0
    return probe(adapter, dataset, operators)


def adapt_workloads(adapt: Probe, adapter: Any, dataset: Any, operators: Sequence[Any]) -> Any:
    """`Adapter.adapt_workloads`: the batch size of each operator, as it is if one is ours."""
    if _warned(operators, "`adaptive_batch_size` has no effect"):
        return [operator.batch_size for operator in operators]
    return adapt(adapter, dataset, operators)


def _warned(operators: Sequence[Any], effect: str) -> bool:
    """Return whether one of the operators is ours; if so, a warning is logged."""
    ours = next((operator for operator in operators if is_ours(operator)), None)
    if ours is not None:
        name = ours.operator_class.name()
        logger.warning(f"{effect}: '{name}' cannot be probed on rows of the dataset")
    return ours is not None


# --- Each use of an operator in a recipe has its own fields, and no others ------------
# Data-Juicer merges each use of an operator into the one before: a field that the second use leaves
# out has the value of the first, and a mapping has the keys of both.


def update_op_process(
    merge: Callable[..., Any], cfg: Any, parser: Any, used_ops: set[str] | None = None
) -> Any:
    """`update_op_process`, which keeps the fields of each entry of `process` apart."""
    process = list(cfg.process or ())
    names = {name for entry in process for name in entry}
    if len(names) == len(process) and not has_ours(process):
        return merge(cfg, parser, used_ops)  # It changes nothing there.
    # For no entry at all, it makes one of each operator: the defaults, the environment's fields
    # and those of the command line.
    cfg.process = []
    cfg = merge(cfg, parser, used_ops)
    filled = {name: fields or {} for entry in cfg.process for name, fields in entry.items()}
    try:
        files = [Path(file) for file in cfg.get(FILES) or ()]
        cfg.process = [_entry(entry, filled, parser.args, files) for entry in process]
    except RejuiceError as error:
        stop(error)
    return cfg


def _entry(
    entry: ProcessEntry,
    filled: Mapping[str, ProcessEntry],
    words: Sequence[str],
    files: Sequence[Path],
) -> ProcessEntry:
    """Return an entry of `process` with all of its fields."""
    name, given = next(iter(entry.items()))
    own = deepcopy(dict(given or {}))
    whole = dict[str, str]()
    for (field, *inner), text in _options(name, words):
        if not inner:
            own.pop(field, None)  # The parser has read and checked it.
            whole[field] = text
            continue
        if field in whole:
            own.setdefault(field, option_value(f"{name}.{field}", whole[field]))
        set_field(own, [field, *inner], option_value(".".join([name, field, *inner]), text))
    whole_entry = {**deepcopy(filled.get(name, {})), **own}
    kind = operator_of(name)
    if kind is not None and not whole_entry.get(FILES):
        whole_entry = {**whole_entry, **with_files(kind, own, files)}
    return {name: whole_entry}


def _options(name: str, words: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the fields of an operator that the command line sets, and what it sets them to."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(f"--{name}."):
            option, equals, text = word.partition("=")
            yield option.split(".")[1:], text if equals else following


# --- The dataset of `dj-process`, in a recipe of ours, as `rejuice run` reads it ------
# Data-Juicer's loader reads JSON by pandas or by Arrow's parser, which round numbers and move
# values (`dataset/json_lines.py`), and takes types from the first block of a file.

_CHUNK_ROWS = 65_536
_OF_THEIR_LOADER = ("load_dataset_kwargs", "decrypt_after_reading")


def is_read_here(strategy: Any) -> bool:
    """Return whether what one of Data-Juicer's strategies would load is read by `load_data`.

    What `rejuice run` does not read, such as CSV, or what a recipe asks of Data-Juicer's loader
    alone, is not.
    """
    from data_juicer.core.data.load_strategy import DefaultLocalDataLoadStrategy

    settings = strategy.cfg
    if not isinstance(strategy, DefaultLocalDataLoadStrategy):
        return False
    if any(getattr(settings, name, None) for name in _OF_THEIR_LOADER):
        return False
    try:
        return bool(files_of(*_files(strategy)))
    except DataError:
        return False


def load_data(strategy: Any, num_proc: int = 1, **_: Any) -> Any:
    """What `DefaultLocalDataLoadStrategy.load_data` gives, with the columns that are selected."""
    from data_juicer.format.formatter import unify_format

    settings = strategy.cfg
    path, suffixes = _files(strategy)
    selected = selection(getattr(settings, "columns", None))
    spec = DatasetSpec((DatasetPart(path),), suffixes, selected)
    if any("suffix_filter" in entry for entry in getattr(settings, "process", None) or ()):
        spec = spec.with_suffix()
    to_parquet = str(getattr(settings, "export_path", "")).endswith(".parquet")
    found = _mapped(Dataset(spec), to_parquet=to_parquet)
    return unify_format(found, settings.text_keys, num_proc, settings)


def _files(strategy: Any) -> tuple[AnyPath, tuple[str, ...]]:
    """Return the path that a strategy reads, and the suffixes of files there."""
    suffixes = getattr(strategy.cfg, "suffixes", None) or ()
    return to_path(strategy.ds_config["path"]), dotted(suffixes)


def _mapped(dataset: Dataset, *, to_parquet: bool) -> Any:
    """Return a dataset of Hugging Face's, whose rows are mapped from a file in its cache."""
    import datasets

    cache = Path(datasets.config.HF_DATASETS_CACHE) / "rejuice"
    made_of = json.dumps([FORMAT, dataset.fingerprint, dataset.spec.selection, to_parquet])
    key = xxhash.xxh3_64_hexdigest(made_of.encode())
    path = cache / f"{key}.arrow"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        chunks = TemporaryDirectory(prefix=key, dir=cache)  # of this process alone
        source = dataset.chunks(Path(chunks.name), chunk_rows=_CHUNK_ROWS, group_by=())
        fields = [
            field.with_type(without_empty(field.type)) if to_parquet else field
            for field in source.schema
        ]
        schema = pa.schema(fields)
        with (
            written(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_stream(sink, schema) as stream,
        ):
            for chunk in range(len(source.rows)):
                stream.write_table(conform(source.chunk(chunk), schema))
        chunks.cleanup()
    return datasets.Dataset.from_file(str(path))


# --- Columns: also those that our steps write -----------------------------------------
# Data-Juicer looks for the text of each of its operators in the dataset, before the first step. A
# recipe that samples has the responses only after a step of ours. So where a recipe has an operator
# of ours, its loader demands no column and drops no row, as `rejuice run`; and its preflight
# follows the columns through the steps, as `rejuice check`.


def load_dataset(load: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
    """`DatasetBuilder.load_dataset`, for which a recipe with an operator of ours has no text."""
    settings = builder.cfg
    columns = getattr(settings, "columns", None)
    if not columns and not has_ours(getattr(settings, "process", None) or ()):
        return load(builder, *args, **kwargs)
    strategies = getattr(builder, "load_strategies", None) or []
    read_here = bool(strategies) and all(map(is_read_here, strategies))
    for strategy in strategies if read_here else ():
        strategy.load_data = partial(load_data, strategy)
    text_keys, settings.text_keys = settings.text_keys, []  # The steps have theirs already.
    try:
        found = load(builder, *args, **kwargs)
    except RejuiceError as error:
        stop(error)
    finally:
        settings.text_keys = text_keys
    if read_here or not columns:
        return found
    return _selected(found, columns, str(settings.get("dataset_path")))


def _selected(dataset: Any, columns: Any, path: str) -> Any:
    """Return the dataset with the columns that the recipe selects, under their new names."""
    from data_juicer.core.data import NestedDataset
    from data_juicer.utils.ray_utils import is_ray_mode

    try:
        selected = selection(columns)
        if is_ray_mode():
            raise RecipeError("`columns` is not read under Ray", "rename columns in the dataset")
        names = selected.names or ()
        for name, _ in names:
            if name not in dataset.column_names:
                raise not_there(name, dataset.column_names, path)
    except (RejuiceError, ValueError) as error:
        stop(error if isinstance(error, RejuiceError) else RecipeError(f"columns: {error}"))
    found = dataset.select_columns([old for old, _ in names])
    return NestedDataset(found.rename_columns(dict(names)))


def post_instantiation_check(
    check: Callable[..., None], ops: Sequence[Any], dataset_schema: Any, cfg: Any = None
) -> None:
    """`post_instantiation_check`, with the columns as they are before each step."""
    ours = [op for op in ops if is_ours(op)]
    if not ours or not dataset_schema:
        check(ops, dataset_schema, cfg)
        return
    check(ops, None, cfg)  # Without the columns, all but these are checked.
    try:
        run = current_run()
        first = StepInRun(ours[0].operator, getattr(ours[0], "_op_cfg", None), run)
        skipped = [next(iter(entry)) for entry in run.skipped] if run else []
        check_reads(list(_steps(ops, skipped)), dataset_schema.columns, first.where)
    except RejuiceError as error:
        stop(error)


def _steps(ops: Sequence[Any], skipped: Sequence[str]) -> Iterator[Step]:
    """Yield the steps of a run, up to the first one whose columns nobody knows."""
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    kinds = [op._name for op in ops]
    names = step_names([*skipped, *kinds])[len(skipped) :]
    steps = zip(kinds, names, ops, strict=True)
    for number, (kind, name, op) in enumerate(steps, len(skipped) + 1):
        if is_ours(op):
            yield Step(number, name, op.operator)
            continue
        found = find(kind)
        if found is None or found.kind not in KINDS:
            return
        yield Step(number, name, unchecked(kind, found.kind, text_key=op.text_key))


# --- Wrap the functions ---------------------------------------------------------------


def change_data_juicer() -> None:
    """Wrap functions of Data-Juicer, while it imports us at the end of its operators' import.

    Its executors import these functions by name; so it must be now. The others are in modules
    that import the operators, and that are imported when the recipe's parser is made.
    """
    from data_juicer import ops
    from data_juicer.config import config  # It may be importing us: its functions come later.
    from data_juicer.ops import op_fusion

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_loaded_operators.py::test_executors_load_and_fuse_with_ours
    _wrap(ops, "load_ops", loaded_operators.load_ops)
    _wrap(op_fusion, "fuse_operators", loaded_operators.fuse_operators)
    config.ArgumentParser = partial(_make_parser, config.ArgumentParser)


def _make_parser(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    change_runs()
    return accept_our_sections(make(*args, **kwargs))


@cache
def change_runs() -> None:
    """Wrap functions that a run calls, once, before any run."""
    from data_juicer.config import config
    from data_juicer.core import preflight
    from data_juicer.core.adapter import Adapter
    from data_juicer.core.data.dataset_builder import DatasetBuilder

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_python_interface.py::test_a_dataset_of_the_command_line_is_read_instead_of_the_generated_one
    _wrap(config, "init_setup_from_cfg", write_missing)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
    _wrap(config, "update_op_process", update_op_process)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    _wrap(preflight, "post_instantiation_check", post_instantiation_check)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_loader_demands_no_column_and_drops_no_row
    _wrap(DatasetBuilder, "load_dataset", load_dataset)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_upstream_tools.py::test_fusion_and_adaptive_batches_give_the_same_rows
    _wrap(Adapter, "probe_small_batch", probe_small_batch)
    _wrap(Adapter, "adapt_workloads", adapt_workloads)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs)

    setattr(owner, name, wrapped)
