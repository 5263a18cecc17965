"""What one operator does to a frame; its errors are of no step."""

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine.steps import run_step
from rejuice.pipelines.recipe.steps import number_steps


def change_of(operator, frame, first_row=0):
    try:
        return run_step(*number_steps([operator]), frame, first_row=first_row).change
    except RejuiceError as error:
        raise type(error)(error.found, error.right) from error.__cause__
