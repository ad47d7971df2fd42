"""The targets; each module holds one as TARGET, modules whose name begins with _ are parts of others."""
