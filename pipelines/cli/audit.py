"""`rejuice audit`: how far the verdicts of a stored run can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Debug, TrainingSteps, range_of_steps
from .stored_path import StoredPath

if TYPE_CHECKING:
    from ..analysis.verifiers import GradedRows

_OUTPUT = Path("audit.jsonl")


def audit(
    path: StoredPath,
    sample: Annotated[
        int, typer.Option("--sample", min=1, help="How many rows to draw for a person to label.")
    ] = 200,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the sample and failing pairs here, as JSON lines; by default audit.jsonl, "
            "and nowhere where labels are given.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="An audit.jsonl with labels: state error rates by them."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", metavar="SIGN", help="Print only the rows of a sign, as JSON lines."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other rows.")] = 0,
    steps: TrainingSteps = None,
    debug: Debug = False,
) -> None:
    """Compare the verdicts of a run with those of a second verifier, and sample rows to label.

    Without labels only agreement is stated, never an error rate. Answers are also rewritten in ways
    that must leave a verdict, and in ways that must change it. Assertions about programs are run,
    confined, on programs that solve nothing. Signs of reward hacking come last,
    each compared with permuted groups, so that false alarms have a stated rate.
    """
    from ..analysis.open import open_stored
    from ..analysis.show_audit import weak_test_lines
    from ..analysis.show_signs import sign_lines, sign_row_lines
    from ..analysis.signs import audit_signs
    from ..analysis.unit_tests import audit_tests
    from ..analysis.verifiers import graded_rows

    stored = open_stored(path, steps=range_of_steps(steps))
    if rows is not None:
        for line in sign_row_lines(audit_signs(stored, seed), rows):
            typer.echo(line)
        return
    graded = graded_rows(stored)
    if graded is None:
        found = f"no verdict in {path}: the recipe has no verifier"
        line = f"{found}, so only signs that need none are computed"
        typer.echo(f"rejuice: warning: {line}", err=True)
    else:
        _audit_verdicts(path, graded, sample, output or (None if labels else _OUTPUT), labels, seed)
        for line in weak_test_lines(audit_tests(stored, seed)):
            typer.echo(line)
    for line in sign_lines(audit_signs(stored, seed)):
        typer.echo(line)


def _audit_verdicts(
    path: Path, graded: GradedRows, sample: int, output: Path | None, labels: Path | None, seed: int
) -> None:
    from ..analysis.labels import (
        check_replaceable,
        failing_lines,
        labelled_errors,
        sample_lines,
        write_lines,
    )
    from ..analysis.metamorphic import metamorphic_checks
    from ..analysis.show_audit import agreement_lines, error_lines, metamorphic_lines, sample_line
    from ..analysis.strata import draw, strata
    from ..analysis.verifiers import agreement, no_answer

    if output is not None:
        check_replaceable(output)
    errors = labelled_errors(labels, graded) if labels is not None else None
    recheck_N = _rechecked(graded)
    strata_N = strata(graded, recheck_N)
    rows = draw(graded, strata_N, sample, seed) if output is not None else []
    operator = graded.by_math_verify_mapper
    checks = metamorphic_checks(graded, operator, seed) if operator is not None else None
    without = int(no_answer(graded).sum())
    lines = [*agreement_lines(path, graded, agreement(graded, recheck_N), without)]
    if output is not None:
        failing = failing_lines(checks.failing if checks is not None else ())
        write_lines(output, [*sample_lines(graded, recheck_N, strata_N, rows), *failing])
        lines.append(sample_line(len(rows), output))
    lines += error_lines(graded.verifier, errors)
    lines += metamorphic_lines(checks, graded.verifier, output)
    for line in lines:
        typer.echo(line)


def _rechecked(graded: GradedRows) -> list[str | None]:
    """The second verdict of each row; a progress bar where somebody is looking."""
    from rich.progress import Progress

    from ..analysis.verifiers import rechecked
    from ..console import Console

    console = Console(stderr=True)
    found: list[str | None] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("math-verify", total=graded.table.num_rows)
        for verdicts in rechecked(graded):
            found += verdicts
            progress.update(task, completed=len(found))
    return found
