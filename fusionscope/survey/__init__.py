"""Many dumps as tables: found, read, analysed and kept as Parquet files, and asked by SQL."""
