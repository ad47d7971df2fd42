"""How many spares a gang needs: the time that does useful work against nodes held free, under the outages of a log."""
