"""Keys of servers in a recipe, which belong in the environment."""

from __future__ import annotations

import re
from typing import Any

from ...operators import RecipeError
from ...operators.redaction import SHORTEST

_NAMES = frozenset(
    {"access_key", "access_token", "api_key", "auth_token", "authorization", "hf_token"}
    | {"password", "secret", "secret_key", "x_api_key"}
)
"""Fields of Data-Juicer's operators and of the clients that they make, and headers."""

_WITH_PASSWORD = re.compile(r"https?://[^/?#]*:[^/?#]*@")


def refuse_credentials(fields: Any, where: str = "") -> None:
    """Pass fields without a key in them: a run stores its recipe.

    One that is too short for a secret passes: a server of one's own takes any value.

    Args:
        fields: values of YAML, of any depth.
        where: of the field that they are the value of.

    Raises:
        RecipeError: there is one.
    """
    for name, value in fields.items() if isinstance(fields, dict) else ():
        place = f"{where}.{name}" if where else str(name)
        is_named = str(name).lower().replace("-", "_") in _NAMES
        is_key = is_named and isinstance(value, str) and len(value) >= SHORTEST
        if is_key or (isinstance(value, str) and _WITH_PASSWORD.match(value)):
            right = "take it out, and set OPENAI_API_KEY or the variable that the library reads"
            raise RecipeError(f"{place} has a key in it, and a run stores its recipe", right)
        refuse_credentials(value, place)
