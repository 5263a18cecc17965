"""A clock that jumps, as one does that is set."""

import time


def jump(seconds):
    """For a new process: its clock jumps by so many seconds at every other question."""
    clock, asked = time.time, [0]

    def now():
        asked[0] += 1
        return clock() + seconds * (asked[0] % 2)

    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
