"""An operator of Data-Juicer at work on rows of ours, and what goes wrong in it."""
