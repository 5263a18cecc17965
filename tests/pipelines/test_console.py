"""What the console of commands prints with `--json`."""

import json

from rich.text import Text

from rejuice.pipelines.console import Console, FigureText, figures_table, print_lines


def test_tables_are_printed_as_json_lines_and_nothing_else(capsys):
    table = figures_table("step", "rows", "mean", "size", title=Text("curated"))
    table.add_row(Text("[a]\x1b[31m" + "x" * 300), "1,200", "0.500", FigureText("1.2 kB", 1234))
    table.add_row("02", "12%", "nan", "-")
    console = Console(only_json=True)
    console.print("a headline", highlight=False)
    print_lines(["a line"], console)
    console.print(table)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {
            "table": "curated",
            "step": "[a]\x1b[31m" + "x" * 300,
            "rows": 1200,
            "mean": 0.5,
            "size": 1234,
        },
        {"table": "curated", "step": "02", "rows": 0.12, "mean": None, "size": None},
    ]
