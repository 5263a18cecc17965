"""The functions of Data-Juicer that do something else where our operators are installed.

Each is called by a function of ours, whose first argument it is. Nothing else of Data-Juicer is
changed, and these do what they did in a recipe that has no operator of ours, no operator twice and
no two that compute the same statistic.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial, wraps
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from data_juicer.ops.base_op import OP, OPERATORS, Deduplicator, Filter, Selector
from data_juicer.utils.constant import Fields, HashKeys, StatsKeysConstant
from loguru import logger

from ...operators import DataError, RecipeError, RejuiceError
from ...operators.operator import COMMON_FIELDS
from ..data_juicer.catalogue import KINDS, find
from ..data_juicer.static_checks import definition
from ..data_juicer.steps import unchecked
from ..data_juicer.tables import ROW, nested, plain, rows_of
from ..dataset.files import FORMAT, written
from ..dataset.read import Dataset
from ..dataset.remote import AnyPath, to_path
from ..dataset.schemas import conform, without_empty
from ..dataset.spec import DatasetPart, DatasetSpec, files_of, not_there
from ..recipe.columns import check_reads
from ..recipe.head import checked_head, dotted, selection
from ..recipe.recipe import option_value, set_field
from ..recipe.steps import (
    FILES,
    Step,
    number_steps,
    step_names,
    with_files,
    with_function_file,
)
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
        folder = Path(str((cfg.get("config") or ["."])[-1])).parent  # Of several, the last counts.
        cfg.process = [_entry(entry, filled, parser.args, files, folder) for entry in process]
    except RejuiceError as error:
        stop(error)
    return cfg


def _entry(
    entry: ProcessEntry,
    filled: Mapping[str, ProcessEntry],
    words: Sequence[str],
    files: Sequence[Path],
    folder: Path,
) -> ProcessEntry:
    """Return an entry of `process` with all of its fields."""
    name, given = next(iter(entry.items()))
    # In YAML 1.1, a bare `on` is the value true.
    given = {"on" if field is True else field: value for field, value in (given or {}).items()}
    own = deepcopy(given)
    if operator_of(name) is None and (common := [f for f in COMMON_FIELDS if f in own]):
        raise RecipeError(
            f"{name} has `{common[0]}`, which Data-Juicer's own operators do not know",
            "leave it out, or run the recipe with rejuice",
            where="process",
        )
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
    return {name: with_function_file(name, whole_entry, folder)}


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
        if is_ours(op) and op.operator.on == "train":
            continue
        if is_ours(op):
            yield Step(number, name, op.operator)
            continue
        found = find(kind)
        if found is None or found.kind not in KINDS:
            return
        yield Step(number, name, unchecked(kind, found.kind, text_key=op.text_key))


# --- Deduplicators on Ray, in a recipe with an operator of ours -----------------------
# Data-Juicer runs them with its default executor only, and refuses the recipe. Here the rows come
# to the driver, which runs them there as that executor does: its memory is bounded by the data.

_RAY = "ray"


def allow_on_ray(ops: Iterable[Any], *, keep_hashes: bool) -> None:
    """Let the deduplicators among the operators of a run work on Ray's datasets."""
    for op in ops:
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_deduplicators_of_theirs_are_allowed_on_ray
        modes = op._supported_exec_modes
        if isinstance(op, Deduplicator) and _RAY not in modes:
            op._supported_exec_modes = (*modes, _RAY)
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
    out, rows = rows_of(run(nested(table)))
    kept = (out if keep_hashes else out.select(table.column_names)).take(pa.array(rows))
    cuts = np.linspace(0, kept.num_rows, len(full) + 1).astype(int)
    return ray.data.from_arrow([kept.slice(at, stop - at) for at, stop in pairwise(cuts)])


# --- Selectors, in a recipe with an operator of ours: rows stay in their order --------
# Some of them sort, and so tear the groups apart that the steps after them work on. `rejuice run`
# keeps the order, too.


def keep_order(ops: Iterable[Any]) -> None:
    """Let the selectors among the operators of a run give the rows in the order they came in."""
    for op in ops:
        if isinstance(op, Selector):
            op.run = partial(_run_selector, op.run)


def _run_selector(run: Callable[..., Any], dataset: Any, **kwargs: Any) -> Any:
    from data_juicer.core.data import NestedDataset

    numbered = NestedDataset(dataset.add_column(ROW, np.arange(len(dataset))))
    kept = run(numbered, **kwargs)
    order = np.argsort(np.asarray(kept.with_format("arrow")[ROW]))
    return NestedDataset(kept.select(order).remove_columns(ROW))


# --- A repeated filter or deduplicator computes again what it decides by --------------
# A filter of theirs takes a statistic that a row has for its own, and a deduplicator a hash, though
# a mapper may have changed the text since, and the earlier use may have been of another column.

Callee = Callable[..., Any]


def load_ops(
    load: Callee, process_list: Sequence[ProcessEntry], *args: Any, **kwargs: Any
) -> list[Any]:
    """`load_ops`, which loads operators that compute again what an earlier step did.

    The first step that computes a statistic uses, as ever, what an earlier run or `dj-analyze` has
    left in the dataset. On Ray, deduplicators in a recipe with an operator of ours are allowed.
    """
    run = current_run()
    computed, classes = set[str](), dict[str, type[OP]]()
    for entry in run.skipped if run else ():  # A checkpoint has done these steps.
        _again(entry, computed, {})
    entries = [_again(entry, computed, classes) for entry in process_list]
    OPERATORS.modules.update(classes)
    try:
        operators: list[Any] = load(entries, *args, **kwargs)
    finally:
        for name in classes:
            del OPERATORS.modules[name]
    for entry, op in zip(process_list, operators, strict=True):
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
        op._op_cfg = entry
    ours = [op for op in operators if is_ours(op)]
    for op, step in zip(ours, number_steps([op.operator for op in ours]), strict=True):
        op.operator = step.operator  # Steps before and after it decide some of its fields.
    if has_ours(process_list):
        keep_order(operators)
        if run and run.settings.get("executor_type") == "ray":
            allow_on_ray(operators, keep_hashes=bool(run.settings.get("keep_hashes_in_res_ds")))
    return operators


def fuse_operators(
    fuse: Callee,
    ops: Sequence[Any],
    probe_res: Sequence[Any] | None = None,
    *args: Any,
    **kwargs: Any,
) -> list[Any]:
    """`fuse_operators`, whose groups end before an operator that computes again.

    Fused with an earlier use, or moved before it, a filter would decide by the other's statistics.
    """
    again = [at for at, op in enumerate(ops) if hasattr(op, "computes_again")]
    parts = [slice(*ends) for ends in pairwise([0, *again, len(ops)])]
    return [
        op for at in parts for op in fuse(ops[at], probe_res and probe_res[at], *args, **kwargs)
    ]


def _again(entry: ProcessEntry, computed: set[str], classes: dict[str, type[OP]]) -> ProcessEntry:
    """Return the entry of `process` that makes the operator, or one that computes again."""
    name, fields = next(iter(entry.items()))
    kind = OPERATORS.modules[name]
    if name == "general_fused_op":
        inner = [_again(each, computed, classes) for each in fields.get("fused_op_list") or ()]
        return {name: {**fields, "fused_op_list": inner}}
    if not issubclass(kind, Filter | Deduplicator):
        return entry
    found = computed_names(kind, fields or {})
    if issubclass(kind, Deduplicator) and not found:
        return entry  # It keeps no hash in the rows.
    own = found or {name}
    if own & computed:
        entry = {f"{name} {len(classes)}": fields}
        classes[next(iter(entry))] = _class_computing_again(kind, found)
    computed |= own
    return entry


def computed_names(kind: type[OP], fields: ProcessEntry) -> frozenset[str]:
    """The statistics that a filter of Data-Juicer's writes, or the columns of a deduplicator.

    They are what its methods assign to; none where the source does not tell.
    """
    found = set[str]()
    methods = [method for _, method in inspect.getmembers(kind, inspect.isfunction)]
    own = [definition(method) for method in methods if method.__module__ != OP.__module__]
    for node in (node for each in own if each is not None for node in ast.walk(each)):
        match node:
            case ast.Attribute(ast.Name("HashKeys"), name) if name != "uid":  # It numbers rows.
                found.add(getattr(HashKeys, name, name))
            case ast.Subscript(of, key, ast.Store()) if "stat" in ast.unparse(of):
                found.update(_key(key, fields))
    return frozenset(found)


def _key(node: ast.expr, fields: ProcessEntry) -> Iterator[str]:
    """The name of a statistic in `stats[StatsKeys.text_len]`, `stats["mine"]`, `stats[self.of]`."""
    match node:
        case ast.Attribute(ast.Name("StatsKeys"), name):
            yield getattr(StatsKeysConstant, name, name)
        case ast.Constant(str(name)):
            yield name
        case ast.Attribute(ast.Name("self"), name) if name in fields:
            yield str(fields[name])


def _class_computing_again(kind: type[OP], found: frozenset[str]) -> type[OP]:
    """Return the class of an operator, which finds no statistic or hash of those names in a row."""
    base, change = Deduplicator, _without_hashes
    if issubclass(kind, Filter):
        base, change = Filter, _without_statistics
    methods = ("compute_stats_single", "compute_stats_batched", "compute_hash")
    own = [name for name in methods if getattr(kind, name, None) is not getattr(base, name, None)]

    def fingerprint(self: Any) -> bytes:
        # Hugging Face has cached what an operator with these fields did without us.
        # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_loaded_operators.py::test_what_was_cached_without_us_is_not_used
        return bytes(kind._fingerprint_bytes(self)) + b"computes again"

    members = {
        **{name: change(getattr(kind, name), found) for name in own},
        "_fingerprint_bytes": fingerprint,
        "computes_again": True,
        "__module__": kind.__module__,
    }
    return type(kind.__name__, (kind,), members)


# Data-Juicer asks the signature whether there is a context. The module stays ours for pickling.
_wraps = partial(wraps, assigned=("__name__", "__doc__"))


def _without_statistics(compute: Callee, found: frozenset[str]) -> Callee:
    def hidden(stat: Any) -> dict[str, Any]:
        return {name: each for name, each in (stat or {}).items() if found and name not in found}

    @_wraps(compute)
    def again(self: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        if Fields.stats not in sample:
            return compute(self, sample, *args, **kwargs)  # It has no statistics.
        old = sample[Fields.stats]
        batched = isinstance(old, list)
        sample[Fields.stats] = [hidden(stat) for stat in old] if batched else hidden(old)
        out = compute(self, sample, *args, **kwargs)
        new = out[Fields.stats]
        pairs = zip(old, new, strict=True) if batched else [(old, new)]
        merged = [{**(before or {}), **after} for before, after in pairs]
        out[Fields.stats] = merged if batched else merged[0]
        return out

    return again


def _without_hashes(compute: Callee, found: frozenset[str]) -> Callee:
    @_wraps(compute)
    def again(self: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        for name in found:
            sample.pop(name, None)
        return compute(self, sample, *args, **kwargs)

    return again


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
    _wrap(ops, "load_ops", load_ops)
    _wrap(op_fusion, "fuse_operators", fuse_operators)
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
