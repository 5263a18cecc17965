"""What `rejuice train` does before and around verl: prompts, configuration, processes, failures."""
