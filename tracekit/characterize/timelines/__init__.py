"""The timelines; `tracekit.characterize.timeline` lists the module of each."""
