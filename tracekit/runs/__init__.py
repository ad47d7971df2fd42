"""Long work as a list of runs: who makes which, where the results are kept, and the processes that make them."""
