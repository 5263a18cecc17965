"""What is shown: the funnel, the explanation of a row, operator docs, the schema."""
