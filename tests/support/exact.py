"""Tables compared bit by bit."""


def written(table):
    """The content of a table: a float differs from any other float, and -0.0 from 0.0."""
    columns = [(field.name, str(field.type)) for field in table.schema]
    return columns, [repr(row) for row in table.to_pylist()]
