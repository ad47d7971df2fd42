"""Node failures: when they occur, what they cost jobs, and the spares that replace the nodes."""
