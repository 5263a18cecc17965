"""Steps applied to a table in memory: frames, decisions, counters."""
