"""What one operator does to a frame."""

from rejuice.pipelines.engine.steps import run_step
from rejuice.pipelines.recipe.steps import number_steps


def change_of(operator, frame, first_row=0):
    return run_step(*number_steps([operator]), frame, first_row=first_row).change
