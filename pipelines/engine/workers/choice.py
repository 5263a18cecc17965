"""Which engine runs a recipe: workers on this machine, or Ray."""

from __future__ import annotations

from functools import partial
from typing import Literal

from ....operators import RecipeError
from ...ray_session import AUTO
from ...recipe.recipe import Recipe
from ..progress import Progress
from .local import LocalWorkers, OpenWorkers

RunEngine = Literal["local", "ray"]


def chosen_workers(
    recipe: Recipe, engine: RunEngine | None, ray_address: str | None, progress: Progress
) -> OpenWorkers:
    """How the workers of a run are opened.

    Args:
        recipe: what is to be run; its `executor_type` and `ray_address` hold where nothing else is
            given.
        engine: the engine; None: Ray where an address is given, else what the recipe has.
        ray_address: of the cluster, see `connected_to_ray`; None: what the recipe has.
        progress: gets a line that tells on which cluster the recipe runs.

    Raises:
        RecipeError: an address is given for an engine that is not Ray.
    """
    if engine == "local" and ray_address is not None:
        raise RecipeError(f"engine is local, and ray is {ray_address!r}", "give one of them")
    head = recipe.head
    if engine is None:
        of_recipe: RunEngine = "local" if head.executor_type == "default" else "ray"
        engine = of_recipe if ray_address is None else "ray"
    if engine == "local":
        return LocalWorkers
    from .on_ray import RayWorkers

    address = ray_address or head.ray_address or AUTO
    return partial(RayWorkers, address=address, report_line=progress.tell)
