"""Commands that look at a run: one file for what each finds and one for what it prints."""
