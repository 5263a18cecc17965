"""What the loop says where it fails, to be found again in verl's log."""

SAMPLER_FAILED = "rejuice: the sampler failed: "
"""What is told where the sampler fails; the run may go on."""
NO_PROMPT_LEFT = "every prompt failed"
"""Part of the error where it does not."""
