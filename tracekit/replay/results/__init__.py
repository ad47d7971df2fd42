"""What a schedule says: summary, tables, comparison, fairness, energy."""
