"""The engine: time, events, nodes, gangs, rates, eviction, accounting. It knows no policy."""
