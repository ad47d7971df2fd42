"""The engine: time, events, nodes, gangs, rates, eviction, accounting. It depends on no policy."""
