"""Read and validate the Parquet files of a Trace."""
