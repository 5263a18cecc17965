"""Tables compared bit by bit."""


def written(table):
    """The content of a table: a float differs from any other float, and -0.0 from 0.0."""
    # Parquet names the items of lists otherwise.
    types = (str(field.type).replace("<element:", "<item:") for field in table.schema)
    columns = list(zip(table.column_names, types, strict=True))
    return columns, [repr(row) for row in table.to_pylist()]
