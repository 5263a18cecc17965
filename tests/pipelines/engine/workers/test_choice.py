"""Which engine is chosen: by the option, else by the recipe."""

import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.engine.run import cluster_of
from rejuice.pipelines.recipe.recipe import load

STEPS = [{"length_filter": {"min": 1}}]


@pytest.fixture
def chosen(recipe_file):
    """A function that returns the address of the chosen cluster; None: the local engine."""

    def choose(engine=None, address=None, **head):
        recipe = load(recipe_file(STEPS, [{"response": "a"}], **head))
        return cluster_of(recipe, engine, address)

    return choose


@pytest.mark.parametrize(
    ("engine", "address", "head", "expected"),
    [
        (None, None, {}, None),
        (None, None, {"executor_type": "ray"}, "auto"),
        (None, None, {"executor_type": "ray_partitioned", "ray_address": "a:1"}, "a:1"),
        (None, "b:2", {"executor_type": "ray", "ray_address": "a:1"}, "b:2"),
        (None, "b:2", {}, "b:2"),
        (None, None, {"ray_address": "a:1"}, None),
        ("ray", None, {"ray_address": "a:1"}, "a:1"),
        ("ray", "local", {}, "local"),
        ("local", None, {"executor_type": "ray"}, None),
    ],
)
def test_the_option_goes_before_the_recipe(chosen, engine, address, head, expected):
    assert chosen(engine, address, **head) == expected


def test_an_address_for_the_local_engine_is_refused(chosen):
    with pytest.raises(RecipeError) as error:
        chosen("local", "a:1")
    assert str(error.value) == "engine is local, and ray is 'a:1'; give one of them"
