"""What runs inside verl: groups as tables, the recipe on them, rewards and advantages back."""
