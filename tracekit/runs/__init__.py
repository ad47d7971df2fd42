"""Long work as a list of runs: how runs are assigned, where results are kept, and the worker processes."""
