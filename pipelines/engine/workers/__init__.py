"""Where chunks are run: this process, a pool of processes, or a Ray cluster."""
