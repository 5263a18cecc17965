"""`rejuice export`: prompts, rewards and datasets for other trainers."""
