"""The benchmark's post-processing, written by hand for polars: `postprocess_polars.py IN OUT`."""

import sys

import polars as pl

rows = (
    pl.scan_parquet(sys.argv[1])
    .with_columns(rate=(pl.col("verdict") == "correct").mean().over("prompt_id"))
    .filter(pl.col("rate").is_between(0.01, 0.99))
    .drop("rate")
    .filter(pl.struct("prompt_id", "response").is_first_distinct())
    .filter(pl.col("response").str.len_chars() >= 40)
    .collect()
)
right = pl.col("verdict") == "correct"
few = min(rows.filter(right).height, rows.filter(~right).height)
place = pl.int_range(pl.len()).shuffle(seed=1).over(right)
rows.filter(place < few).write_parquet(sys.argv[2])
