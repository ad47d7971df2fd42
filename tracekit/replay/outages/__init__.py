"""Node failures: their times, their costs for jobs, and the spares that replace the nodes."""
