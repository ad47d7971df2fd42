"""The targets; each module has its own in MEMBERS, modules whose name begins with _ are parts of others."""
