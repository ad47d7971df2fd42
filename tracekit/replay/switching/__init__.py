"""Nodes that are switched off while idle, and jobs that wait for an hour that the policy chooses."""
