"""Score how closely generators reproduce a log: fit them to its first part and judge them on its last part."""
