"""rejuice's operators inside Data-Juicer: what `dj-process` runs."""
