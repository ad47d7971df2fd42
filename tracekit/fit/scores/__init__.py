"""Score how closely generators reproduce a log by fitting them to its first part and judging them on its last part."""
