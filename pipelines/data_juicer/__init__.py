"""Data-Juicer, both ways: our operators in `dj-process`, its operators in `rejuice run`."""
