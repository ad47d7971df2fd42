"""How many spare nodes a large job needs: its share of useful time by number of spares, under a log's outages."""
