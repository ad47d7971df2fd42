"""The results of a schedule: summary, tables, comparison, fairness and energy."""
