"""What `rejuice train` does before and around verl: prompts, overrides, processes, failures."""
