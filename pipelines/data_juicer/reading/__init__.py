"""What is known of Data-Juicer from its source: its operators, their fields, its settings."""
