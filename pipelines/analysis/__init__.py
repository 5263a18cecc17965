"""Commands that look at a run: explain, report, view, whatif, preview, diff and audit."""
