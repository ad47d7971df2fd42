"""Where jobs run: clusters from a Trace, from observed use or from a file, and which nodes each job may use."""
