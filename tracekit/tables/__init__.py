"""The Parquet files of a Trace: reading them, and what has to hold in them."""
