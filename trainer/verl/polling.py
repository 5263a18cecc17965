"""How often to look whether groups have ended.

TransferQueue notifies nobody and counts nothing: to see one group end, all keys are listed.
"""

from __future__ import annotations

_SHORTEST_S, _LONGEST_S = 0.02, 1.0
_DELAY_SHARE = 0.01
"""A group is seen this late at most, as a share of the time waited."""
_LISTING_SHARE = 0.1
"""Listing takes this share of the time at most."""


def poll_interval(waited_s: float, listing_s: float) -> float:
    """Seconds until keys are listed again.

    Args:
        waited_s: how long groups have been waited for.
        listing_s: how long the last listing took.
    """
    by_delay = min(max(_SHORTEST_S, waited_s * _DELAY_SHARE), _LONGEST_S)
    return max(by_delay, listing_s / _LISTING_SHARE)
