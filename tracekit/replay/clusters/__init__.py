"""Where jobs run: clusters of a Trace, observed ones, those of a file; which nodes a job may use."""
