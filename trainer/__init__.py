"""GRPO on verl, fed by a recipe."""
