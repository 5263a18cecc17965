"""The functions of Data-Juicer that do something else in a recipe with an operator of ours.

Each is called by a function of ours, whose first argument it is. In other recipes nothing of
Data-Juicer is changed, but that our sections are no unknown keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial, update_wrapper, wraps
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from data_juicer.ops.base_op import NON_STATS_FILTERS, Deduplicator, Filter, Selector
from data_juicer.utils.constant import Fields
from loguru import logger

from ...operators import DataError, RecipeError, RejuiceError
from ...operators.operator import COMMON_FIELDS
from ..data_juicer.catalogue import find
from ..data_juicer.tables import ROW, named, nested, plain, rows_of
from ..dataset.files import FORMAT, written
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, to_path
from ..dataset.schemas import conform, without_empty
from ..dataset.spec import DatasetPart, DatasetSpec, SplitError, files_of
from ..dataset.write import HASHES, STATS
from ..recipe.columns import check_reads, check_replaced
from ..recipe.head import checked_head, dotted, selection
from ..recipe.recipe import option_value, set_field
from ..recipe.steps import (
    FILES,
    Step,
    number_steps,
    with_files,
    with_function_file,
)
from .step_in_run import ProcessEntry, StepInRun, current_run, has_ours, is_ours, operator_of, stop

# --- The sections of a recipe that Data-Juicer does not know, in its configuration ----


def accept_our_sections(parser: Any) -> Any:
    """Data-Juicer's parser, which refuses unknown keys, with the sections that are ours."""
    parser.add_argument("--train", type=Any, help="Settings of `rejuice train`.")
    parser.add_argument("--generated_datasets", type=Any, help="Written where missing.")
    parser.add_argument("--columns", type=Any, help="Columns that are read, and their names.")
    parser.add_argument("--split", type=str, help="The files of a folder that are read.")
    parser.add_argument("--max_rows_per_file", type=int, help="Of an export that is a folder.")
    return parser


def set_up(set_up: Callable[..., Any], settings: Any, *args: Any, **kwargs: Any) -> Any:
    """`init_setup_from_cfg`, before which the dataset is written if the recipe says how."""
    try:
        if has_ours(settings.process or ()):
            if settings.get("skip_op_error"):
                # A batch of a thousand rows would be gone where one of them fails.
                settings.skip_op_error = False
                logger.warning(
                    "skip_op_error: true has no effect in a recipe with operators of rejuice: "
                    "a row that an operator fails on ends the run"
                )
            _refuse_probes(settings)
        if settings.get("generated_datasets"):
            _write_missing(settings)
    except RejuiceError as error:
        stop(error)
    return set_up(settings, *args, **kwargs)


def _refuse_probes(settings: Any) -> None:
    """Refuse what would run each operator on rows of the dataset: a step of ours may sample."""
    if settings.get("adaptive_batch_size"):
        found = "adaptive_batch_size runs each step of rejuice on rows of the dataset"
        raise RecipeError(found, "leave it out")
    if settings.get("op_fusion"):
        if settings.get("fusion_strategy") == "probe":
            found = "fusion_strategy 'probe' runs each step of rejuice on rows of the dataset"
            raise RecipeError(found, "set `fusion_strategy: greedy`")
        for name, times in Counter(name for entry in settings.process for name in entry).items():
            if times > 1 and operator_of(name) is None:
                found = f"op_fusion lets {name}, used twice, decide by its first statistics"
                raise RecipeError(found, "leave out op_fusion")


def _write_missing(settings: Any) -> None:
    names = ("dataset_path", "dataset", "export_path", "generated_datasets")
    fields = [each or {} for entry in settings.process or () for each in entry.values()]
    found = ((each.get("recorded") or {}).get("path") for each in fields)
    recordings = [Path(path) for path in found if path]
    recipe = Path(", ".join(map(str, settings.config or [])))
    head = checked_head(recipe, {name: settings.get(name) for name in names}, {}, ())
    head.write_missing(*head.dataset_spec.paths, *recordings)


# --- Each use of an operator in a recipe has its own fields, and no others ------------
# Data-Juicer merges each use of an operator into the one before: a field that the second use leaves
# out has the value of the first, and a mapping has the keys of both.


def update_op_process(merge: Callable[..., Any], cfg: Any, parser: Any, *args: Any) -> Any:
    """`update_op_process`, which keeps the fields of each entry of `process` apart."""
    process = list(cfg.process or ())
    if not has_ours(process):
        return merge(cfg, parser, *args)
    # For no entry at all, it makes one of each operator: the defaults, the environment's fields
    # and those of the command line.
    cfg.process = []
    cfg = merge(cfg, parser, *args)
    filled = {name: fields or {} for entry in cfg.process for name, fields in entry.items()}
    files = [Path(file) for file in cfg.get(FILES) or ()]
    folder = Path(str((cfg.get("config") or ["."])[-1])).parent  # Of several, the last counts.
    try:
        entries = [next(iter(entry.items())) for entry in process]
        own = [(name, _own_fields(name, fields or {}, parser.args)) for name, fields in entries]
        cfg.process = [
            {name: _whole(name, fields, filled.get(name, {}), files, folder)}
            for name, fields in own
        ]
    except RejuiceError as error:
        stop(error)
    return cfg


def _own_fields(name: str, given: Mapping[Any, Any], words: Sequence[str]) -> ProcessEntry:
    """The fields of an entry of `process` that the command line does not set as a whole."""
    # In YAML 1.1, a bare `on` is the value true.
    own = deepcopy({"on" if field is True else field: value for field, value in given.items()})
    if operator_of(name) is None and (common := [f for f in COMMON_FIELDS if f in own]):
        found = f"{name} has `{common[0]}`, which Data-Juicer's own operators do not know"
        raise RecipeError(found, "leave it out, or run the recipe with rejuice", where="process")
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, text = word.partition("=")
        _, *path = option.split(".")
        if not option.startswith(f"--{name}."):
            continue
        if len(path) > 1:
            value = option_value(option.removeprefix("--"), text if equals else following)
            set_field(own, path, value)
        else:
            own.pop(path[0], None)  # The parser has read and checked it.
    return own


def _whole(
    name: str, own: ProcessEntry, filled: ProcessEntry, files: Sequence[Path], folder: Path
) -> ProcessEntry:
    whole = {**deepcopy(filled), **own}
    kind = operator_of(name)
    if kind is not None and not whole.get(FILES):
        whole = {**whole, **with_files(kind, own, files)}
    return with_function_file(name, whole, folder)


# --- The dataset of `dj-process`, in a recipe of ours, as `rejuice run` reads it ------
# Data-Juicer's loader reads JSON by pandas or by Arrow's parser, which round numbers and move
# values (`dataset/json_lines.py`), and takes types from the first block of a file.

_CHUNK_ROWS = 65_536
_OF_THEIR_LOADER = ("load_dataset_kwargs", "decrypt_after_reading")


def is_read_here(strategy: Any) -> bool:
    """Whether what one of Data-Juicer's strategies would load is read by `load_data`.

    What `rejuice run` does not read, such as CSV, or what a recipe asks of Data-Juicer's loader
    alone, is not.
    """
    from data_juicer.core.data.load_strategy import (
        DefaultLocalDataLoadStrategy,
        RayLocalJsonDataLoadStrategy,
    )

    if not isinstance(strategy, DefaultLocalDataLoadStrategy | RayLocalJsonDataLoadStrategy):
        return False
    ours = isinstance(strategy, DefaultLocalDataLoadStrategy) and not any(
        getattr(strategy.cfg, name, None) for name in _OF_THEIR_LOADER
    )
    try:
        files = files_of(*_files(strategy))
    except SplitError as error:  # Of a folder, Data-Juicer reads the files of all splits.
        raise error if ours else error.without_option() from None
    except DataError:
        return False
    return bool(files) and ours


def load_data(strategy: Any, num_proc: int = 1, **_: Any) -> Any:
    """What `DefaultLocalDataLoadStrategy.load_data` gives, with the columns that are selected."""
    from data_juicer.format.formatter import unify_format

    settings = strategy.cfg
    path, suffixes, split = _files(strategy)
    selected = selection(getattr(settings, "columns", None))
    spec = DatasetSpec((DatasetPart(path),), suffixes, selected, split=split)
    if any("suffix_filter" in entry for entry in getattr(settings, "process", None) or ()):
        spec = spec.with_suffix()
    to_parquet = str(getattr(settings, "export_path", "")).endswith(".parquet")
    found = _mapped(Dataset(spec), to_parquet=to_parquet)
    return unify_format(found, settings.text_keys, num_proc, settings)


def _files(strategy: Any) -> tuple[AnyPath, tuple[str, ...], str | None]:
    suffixes = getattr(strategy.cfg, "suffixes", None) or ()
    split = strategy.ds_config.get("split") or getattr(strategy.cfg, "split", None)
    return to_path(strategy.ds_config["path"]), dotted(suffixes), split


def _mapped(dataset: Dataset, *, to_parquet: bool) -> Any:
    """A dataset of Hugging Face's, whose rows are mapped from a file in its cache."""
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
    given = [name for name in ("columns", "split") if getattr(settings, name, None)]
    if not given and not has_ours(getattr(settings, "process", None) or ()):
        return load(builder, *args, **kwargs)
    strategies = getattr(builder, "load_strategies", None) or []
    text_keys, settings.text_keys = settings.text_keys, []  # The steps have theirs already.
    try:
        read_here = bool(strategies) and all(map(is_read_here, strategies))
        for strategy in strategies if read_here else ():
            strategy.load_data = partial(load_data, strategy)
        if given and not read_here:
            found = f"`{given[0]}` is read of JSON lines, Parquet and Arrow, and not under Ray"
            raise RecipeError(found, "leave it out, and change the dataset")
        return load(builder, *args, **kwargs)
    except RejuiceError as error:
        stop(error)
    finally:
        settings.text_keys = text_keys


def post_instantiation_check(
    check: Callable[..., None], ops: Sequence[Any], dataset_schema: Any, cfg: Any = None
) -> None:
    """`post_instantiation_check`, with the columns as they are before each step of ours."""
    if not any(is_ours(op) and op.operator.on != "train" for op in ops) or not dataset_schema:
        check(ops, dataset_schema, cfg)
        return
    check(ops, None, cfg)  # Without the columns, all but these are checked.
    run = current_run()
    in_run, traced = list[StepInRun](), list[Step]()
    known = True  # up to the first of theirs that may change any column
    for op in ops:
        if not is_ours(op):
            # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
            known = known and (found := find(op._name)) is not None and found.keeps_columns
        elif op.operator.on != "train":
            op.unchecked = ()
            in_run.append(StepInRun(op.operator, getattr(op, "_op_cfg", None), run))
            traced += [in_run[-1].step] if known else []
    first = in_run[0]
    try:
        if first.is_first:  # Else the checkpoint has what steps of ours have written.
            steps = [each.step for each in in_run]
            check_replaced(steps, dataset_schema.columns, first.dataset, first.where)
        check_reads(traced, dataset_schema.columns, first.where)
    except RejuiceError as error:
        stop(error)


# --- Their operators beside ours ------------------------------------------------------


def load_ops(
    load: Callable[..., Any], process_list: Sequence[ProcessEntry], *args: Any, **kwargs: Any
) -> list[Any]:
    """`load_ops`, whose operators do what they do in `rejuice run`.

    A filter and a deduplicator compute again what they decide by, a selector keeps the order of the
    rows, and a deduplicator runs on Ray, too.
    """
    operators: list[Any] = load(process_list, *args, **kwargs)
    run = current_run()
    if not has_ours([*(run.skipped if run else ()), *process_list]):
        return operators
    ours = [op for op in operators if is_ours(op)]
    for op, step in zip(ours, number_steps([op.operator for op in ours]), strict=True):
        op.operator = step.operator  # Steps before and after it decide some of its fields.
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    entries = [(op.operator, op._op_cfg) for op in ours if op.operator.on != "train"]
    for op in ours:
        op.unchecked = entries
    on_ray = run is not None and run.settings.get("executor_type") == "ray"
    for op in _with_fused(operators):
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_statistics.py::test_the_steps_of_a_checkpoint_count
        (fields,) = op._op_cfg.values()
        if isinstance(op, Filter) and type(op) not in NON_STATS_FILTERS.modules.values():
            kept = frozenset(name for column, name in named(fields or {}) if column == STATS)
            for name in ("compute_stats", "compute_stats_batched"):  # The other where it is fused.
                setattr(op, name, _instead(getattr(op, name), _compute_again, kept))
        elif isinstance(op, Deduplicator):
            op.compute_hash = _instead(op.compute_hash, _hash_again)
            if on_ray:
                keeps = bool(run and run.settings.get("keep_hashes_in_res_ds"))
                allow_on_ray(op, keep_hashes=keeps)
        elif isinstance(op, Selector):
            op.run = partial(_run_selector, op.run)
        if isinstance(op, Filter) or hasattr(op, "fused_ops"):
            op.ray_execution_mode = "task"  # An actor makes the operator anew, without the above.
    return operators


def _with_fused(operators: Sequence[Any]) -> Iterator[Any]:
    for op in operators:
        yield op
        yield from _with_fused(getattr(op, "fused_ops", ()))


def _compute_again(
    compute: Callable[..., Any], kept: frozenset[str], samples: Any, *args: Any, **kwargs: Any
) -> Any:
    """A filter of theirs takes a statistic that a row has for its own, even of another text."""
    if isinstance(samples, pa.Table):
        samples = samples.to_pydict()
    old = [stats or {} for stats in samples[Fields.stats]]
    samples[Fields.stats] = [{n: each[n] for n in kept & each.keys()} for each in old]
    out = compute(samples, *args, **kwargs)
    pairs = zip(old, out[Fields.stats], strict=True)
    out[Fields.stats] = [{**before, **after} for before, after in pairs]
    return out


def _hash_again(compute: Callable[..., Any], sample: Any, *args: Any, **kwargs: Any) -> Any:
    for name in HASHES:
        if name in sample:
            del sample[name]
    return compute(sample, *args, **kwargs)


class _Partial(partial[Any]):
    """One whose attributes, such as the signature, stay when `dill` writes it."""


def _instead(of: Callable[..., Any], around: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """A function of ours around one of theirs; no closure, so that every pickler can write it."""
    return update_wrapper(_Partial(around, of, *given), of)


def allow_on_ray(op: Any, *, keep_hashes: bool) -> None:
    """Let a deduplicator of theirs work on Ray's datasets: in the driver, on all rows."""
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_deduplicators_of_theirs_are_allowed_on_ray
    op._supported_exec_modes = (*op._supported_exec_modes, "ray")
    op.num_proc, op.auto_op_parallelism = None, False  # A driver of Ray must not fork.
    op.run = partial(_run_on_driver, op.run, keep_hashes)


def _run_on_driver(run: Callable[[Any], Any], keep_hashes: bool, dataset: Any) -> Any:
    import ray

    for context in (dataset.context, ray.data.DataContext.get_current()):
        context.execution_options.preserve_order = True  # The first of equal rows is kept.
    blocks = ray.get(dataset.to_arrow_refs())
    full = [plain(block) for block in blocks if block.num_rows]
    if not full:
        return dataset
    table = pa.concat_tables(full, promote_options="permissive")
    out = rows_of(run(nested(table)))
    kept = out if keep_hashes else out.select(table.column_names)
    cuts = np.linspace(0, kept.num_rows, len(full) + 1).astype(int)
    return ray.data.from_arrow([kept.slice(at, stop - at) for at, stop in pairwise(cuts)])


def _run_selector(run: Callable[..., Any], dataset: Any, **kwargs: Any) -> Any:
    """Some of them sort, and would tear the groups apart that the steps after them work on."""
    from data_juicer.core.data import NestedDataset

    numbered = NestedDataset(dataset.add_column(ROW, np.arange(len(dataset))))
    kept = run(numbered, **kwargs)
    order = np.argsort(np.asarray(kept.with_format("arrow")[ROW]))
    return NestedDataset(kept.select(order).remove_columns(ROW))


# --- Wrap the functions ---------------------------------------------------------------


def change_data_juicer() -> None:
    """Wrap functions of Data-Juicer, while it imports us at the end of its operators' import.

    Its executors import these functions by name; so it must be now. The others are in modules
    that import the operators, and that are imported when the recipe's parser is made.
    """
    from data_juicer import ops
    from data_juicer.config import config  # It may be importing us: its functions come later.

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_repeats.py::test_repeats_of_any_recipe_give_the_rows_of_rejuice_run
    _wrap(ops, "load_ops", load_ops)
    config.ArgumentParser = partial(_make_parser, config.ArgumentParser)


def _make_parser(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    change_runs()
    return accept_our_sections(make(*args, **kwargs))


@cache
def change_runs() -> None:
    from data_juicer.config import config
    from data_juicer.core import preflight
    from data_juicer.core.data.dataset_builder import DatasetBuilder

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_python_interface.py::test_a_dataset_of_the_command_line_is_read_instead_of_the_generated_one
    _wrap(config, "init_setup_from_cfg", set_up)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
    _wrap(config, "update_op_process", update_op_process)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    _wrap(preflight, "post_instantiation_check", post_instantiation_check)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_loader_demands_no_column_and_drops_no_row
    _wrap(DatasetBuilder, "load_dataset", load_dataset)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs)

    setattr(owner, name, wrapped)
