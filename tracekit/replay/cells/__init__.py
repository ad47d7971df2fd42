"""Buddy cells of virtual clusters, bound to blocks of the nodes."""
