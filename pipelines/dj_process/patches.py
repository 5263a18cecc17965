"""The functions of Data-Juicer that do something else where our operators are installed.

Each is called by a function of ours, whose first argument it is. Nothing else of Data-Juicer is
changed, and these do what they did in a recipe that has no operator of ours, no operator twice and
no two that compute the same statistic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

from . import columns, fresh_statistics, own_fields, parser, probing


def change_data_juicer() -> None:
    """Wrap functions of Data-Juicer, while it imports us at the end of its operators' import.

    Its executors import these functions by name; so it must be now. The others are in modules
    that import the operators, and that are imported when the recipe's parser is made.
    """
    from data_juicer import ops
    from data_juicer.config import config  # It may be importing us: its functions come later.
    from data_juicer.ops import op_fusion

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_fresh_statistics.py::test_executors_load_and_fuse_with_ours
    _wrap(ops, "load_ops", fresh_statistics.load_ops)
    _wrap(op_fusion, "fuse_operators", fresh_statistics.fuse_operators)
    config.ArgumentParser = partial(_make_parser, config.ArgumentParser)


def _make_parser(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    change_runs()
    return parser.accept_our_sections(make(*args, **kwargs))


@cache
def change_runs() -> None:
    """Wrap functions that a run calls, once, before any run."""
    from data_juicer.config import config
    from data_juicer.core import preflight
    from data_juicer.core.adapter import Adapter
    from data_juicer.core.data.dataset_builder import DatasetBuilder

    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_python_interface.py::test_a_dataset_of_the_command_line_is_read_instead_of_the_generated_one
    _wrap(config, "init_setup_from_cfg", parser.write_missing)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_own_fields.py::test_a_second_use_has_its_own_fields
    _wrap(config, "update_op_process", own_fields.update_op_process)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_preflight_finds_what_our_steps_write
    _wrap(preflight, "post_instantiation_check", columns.post_instantiation_check)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_columns.py::test_the_loader_demands_no_column_and_drops_no_row
    _wrap(DatasetBuilder, "load_dataset", columns.load_dataset)
    # private: py-data-juicer==1.6.1, tests/pipelines/dj_process/test_upstream_tools.py::test_fusion_and_adaptive_batches_give_the_same_rows
    _wrap(Adapter, "probe_small_batch", probing.probe_small_batch)
    _wrap(Adapter, "adapt_workloads", probing.adapt_workloads)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs)

    setattr(owner, name, wrapped)
