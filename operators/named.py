"""What recipes name: operators, and the tools and flows of agents."""

from __future__ import annotations

import re
from abc import ABC
from typing import ClassVar

from .config import Config


class Named(Config, ABC):
    """Base of the classes that distributions and files add to recipes, each under its name."""

    noun: ClassVar[str]
    """What such a class is, for messages; entry points are in the group `rejuice.<noun>s`."""

    @classmethod
    def name(cls) -> str:
        """The recipe key: the class name in snake case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
