"""How many processor cores this process may use."""

from __future__ import annotations


def usable_cores() -> int:
    """Cores this process may use, at least 1: its affinity and a container's CPU quota count."""
    from loky import cpu_count

    return int(cpu_count())
