"""Generated problems, as many as are wanted, and simulated solvers: arithmetic and programs."""
