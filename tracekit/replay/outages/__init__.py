"""Node failures: when they happen, what they cost the jobs, and the spares that replace the nodes."""
