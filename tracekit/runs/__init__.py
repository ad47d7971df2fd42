"""Long work as a list of runs: how runs are assigned, where results are kept, and the processes that do the work."""
