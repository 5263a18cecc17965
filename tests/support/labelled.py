"""The file of `rejuice audit` as a person labels it."""

import json


def lines_of(path):
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def label(path, of):
    """Label each row of a sample: `of` gives `right`, `wrong`, `unsure` or None for its line."""
    lines = lines_of(path)
    for line in lines:
        if line["kind"] == "sample":
            line["label"] = of(line)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
