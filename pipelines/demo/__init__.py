"""Generated arithmetic: as many word problems as are wanted, and simulated solvers of them."""
