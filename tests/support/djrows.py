"""Made-up rows with something in them for each of Data-Juicer's text operators."""

import tarfile
from io import BytesIO
from pathlib import Path

import pyarrow as pa

_TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then it does the same thing once more.",
    "Write to jane.doe@example.org or to bob@example.com; the server is 192.168.10.1.",
    "See https://example.org/a?b=c#d and www.example.com/index.html for more of it.",
    "<html><body><h1>Title</h1><p>One <b>bold</b> word.</p><ul><li>a</li><li>b</li></ul></body></html>",
    "<table><tr><th>k</th><th>v</th></tr><tr><td>a</td><td>1</td></tr></table> and a text after it",
    "# Copyright 2020 Somebody\n# All rights reserved\nimport os\n\nprint(os.getcwd())\n",
    "/* Copyright (c) 2021 A. Company */\nint main(void) { return 0; }\n",
    "\\newcommand{\\R}{\\mathbb{R}}\n\\section{First}\nLet $x \\in \\R $. % a comment\n"
    "\\begin{comment}\ngone\n\\end{comment}\nMore text.\n\\bibliography{refs}\n[1] A paper.",
    "\\documentclass{article}\n\\begin{document}\n\\section{Results}\nAs \\ref{fig:a} shows, it works.\n\n"
    "\\begin{figure}\n\\includegraphics{a.png}\n\\caption{A figure.}\n\\label{fig:a}\n\\end{figure}\n"
    "\\begin{figure}\\includegraphics{b.png}\\caption{Another.}\\label{fig:b}\\end{figure}\n\\end{document}",
    "这是一个中文句子，里面有标点。还有第二句！以及第三句？ABC 123",
    "這是繁體中文，與簡體不同。",
    "“Curly” quotes，full-width：punctuation；and…more ‘of’ it【here】",
    "a  b\u3000c\u00a0d\u2009e   ",
    "",
    " ",
    "word word word word word word word word word word word word",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "◆ item ● other ■ third ►",
    "supercalifragilisticexpialidociousandthensomemorelettersuntilitisverylongindeed is long",
    "visit http://spam.example now .com html buy",
    "| a | b | c |\n| - | - | - |\n| 1 | 2 | 3 |\n\nafter the table",
    "x\ty\tz\n1\t2\t3\n4\t5\t6\n\nafter a table of tabs",
    "This repeats. This repeats. This does not. This repeats. And the end is here.",
    "First paragraph of it.\n\nSecond paragraph, which is longer than the first.\n\nThird.",
    "!!! $$$ ### @ %%% ^^^ &&& ***",
    "Ünïcödé naïve café — 日本語テキスト and emoji 😀👍",
    "The tel. is +1 202 555 0143, token sk-abcdefghijklmnopqrstuvwxyz123456, path /home/jane/notes.txt",
    "short",
    "line one\nline two is longer\n" + "x" * 300,
    "Figure 3: The answer is 42.\nTherefore 6 * 7 = 42, which was to be shown.\n",
    "this is spam, it is damn wrong",
    "Menu\nHome\nA line that many documents share\nThe body of this one is its own.",
]
_LABELS = ("news", "code", "math", "news", "chat")


def rows(folder: Path, groups: int = 4) -> pa.Table:
    """Rows of many kinds; every fourth text is there unchanged in all `groups`.

    Args:
        folder: where files that rows name are written.
        groups: how often the texts are gone through.
    """
    archive = _archive(folder)
    made = [_row(g, k, text, archive) for g in range(groups) for k, text in enumerate(_TEXTS)]
    return pa.Table.from_pylist(made, schema=_schema())


def _row(group: int, k: int, text: str, archive: str) -> dict:
    n = group * len(_TEXTS) + k
    if text and k % 4:
        text = f"{text} No. {n}" if k % 2 else f"A line that many documents share\n{text}"
    return {
        "text": text,
        "second": text[::-1] if n % 3 else text,
        "query": f"What is {n} plus {k}?" if n % 5 else "Please write " + "a long essay on it " * 6,
        "response": f"It is {n + k}." if n % 7 else "",
        "history": [[f"Hello {k}", "Hi there"], ["How are you?", "Fine."]][: n % 3],
        "system": "You are helpful.",
        "label": _LABELS[n % 5],
        "n": (n * 37) % 101,
        "small": n % 9,
        "score": [0.0, 0.25, float("nan"), 1.5, -0.0][n % 5],
        "single": 0.1 * n,
        "ids": list(range(n % 4)),
        "tags": [_LABELS[n % 5], "all"][: 1 + n % 2],
        "meta": {"lang": ("en", "zh")[n % 2], "stars": n % 6, "source": {"name": f"s{n % 3}"}},
        "maybe": None if n % 6 == 0 else f"value {n % 4}",
        "messages": _messages(n),
        "choices": [{"message": {"role": "assistant", "content": f"Done with {n}."}}],
        "usage": {"prompt_tokens": n, "completion_tokens": 2 * n, "total_tokens": 3 * n},
        "compressed_file": archive,
        "file": archive,
        "raw": text.encode(),
        "long": f"long {k}",
        "__dj__suffix__": (".jsonl", ".txt")[n % 2],
    }


def _messages(n: int) -> list[dict]:
    question = {"role": "user", "content": f"Find item {n} in /skills/search/SKILL.md"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "search"}}]}
    found = {"role": "tool", "content": "Error: not found" if n % 3 else '{"status": "success"}'}
    reply = {"role": "assistant", "content": f"Here is item {n}; write to a{n}@example.org"}
    return [question, call, found, reply][: 1 + n % 4]


def _schema() -> pa.Schema:
    text, words = pa.string(), pa.list_(pa.string())
    call = pa.struct([("function", pa.struct([("name", text)]))])
    message = pa.struct([("role", text), ("content", text), ("tool_calls", pa.list_(call))])
    reply = pa.struct([("role", text), ("content", text)])
    source = pa.struct([("name", text)])
    count = pa.int64()
    usage = [("prompt_tokens", count), ("completion_tokens", count), ("total_tokens", count)]
    names = ("text", "second", "query", "response")
    return pa.schema(
        [
            *((name, text) for name in names),
            ("history", pa.list_(words)),
            ("system", text),
            ("label", text),
            ("n", pa.int64()),
            ("small", pa.int8()),
            ("score", pa.float64()),
            ("single", pa.float32()),
            ("ids", pa.list_(pa.int32())),
            ("tags", words),
            ("meta", pa.struct([("lang", text), ("stars", pa.int32()), ("source", source)])),
            ("maybe", text),
            ("messages", pa.list_(message)),
            ("choices", pa.list_(pa.struct([("message", reply)]))),
            ("usage", pa.struct(usage)),
            ("compressed_file", text),
            ("file", text),
            ("raw", pa.binary()),
            ("long", pa.large_string()),
            ("__dj__suffix__", text),
        ]
    )


def _archive(folder: Path) -> str:
    """Two files of LaTeX in an archive; beside it lists of words and a file of functions."""
    path = folder / "paper.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("main.tex", "more.tex"):
            content = f"\\section{{{name}}}".encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
    (folder / "functions.py").write_text(_FUNCTIONS)
    (folder / "flagged_words.json").write_text('{"en": ["damn", "spam", "word"]}')
    (folder / "stopwords.json").write_text('{"en": ["the", "a", "is", "it", "and", "of", "to"]}')
    return str(path)


_FUNCTIONS = '''
def upper(sample):
    return {**sample, "text": sample["text"].upper(), "length": len(sample["text"])}


def only_text(sample):
    return {"text": sample["text"][:5]}


def without_repetitions(samples):
    """Depends on which rows it gets at once."""
    seen, kept = set(), []
    for row, text in enumerate(samples["text"]):
        if text not in seen:
            kept.append(row)
        seen.add(text)
    return {key: [column[row] for row in kept] for key, column in samples.items()}


def ranks(samples):
    """Depends on which rows it gets at once."""
    order = sorted(range(len(samples["n"])), key=samples["n"].__getitem__)
    return {**samples, "rank": [order.index(row) for row in range(len(order))]}
'''
