"""The engine: time, events, nodes, gangs, rates, eviction and accounting. It does not depend on any policy."""
