"""A small page for tests: three prompts with four responses each, and texts that attack a reader."""

import gzip
import json
import re
from base64 import b64decode

import numpy as np
import pyarrow as pa

from rejuice.operators.groups import Groups
from rejuice.pipelines.analysis.figures import set_figures
from rejuice.pipelines.analysis.page.build import (
    PageColumn,
    PageCurves,
    PageData,
    PageSet,
    PageStep,
)
from rejuice.pipelines.analysis.page.rows import COLUMN as EVIDENCE
from rejuice.pipelines.analysis.page.rows import slug_column
from rejuice.pipelines.analysis.rows import RowTable
from rejuice.pipelines.engine.report import StepReport

HOSTILE = (
    "<script>window.hit=1</script>",
    "</script><script>window.hit=2</script>",
    "<!--<script>window.hit=3",
    '<img src=x onerror="window.hit=4">',
    '<svg onload="window.hit=5"><animate onbegin="window.hit=6"></svg>',
    '<a href="javascript:window.hit=7">a</a>',
    '"><style>*{display:none}</style>',
    "{{constructor.constructor('window.hit=8')()}} {{HEAD}} {{SCRIPT}} {{POLICY}}",
    '<b onmouseover="window.hit=9" style="position:fixed;inset:0">b</b>',
    "a\u2028b\u2029c",
    "\u202eright to left\u202c \u2066isolate\u2069 zero\u200bwidth",
    "NUL \x00 ESC \x1b[31m red",
    '<iframe srcdoc="<script>parent.hit=10</script>"></iframe><base href=//x.invalid/>',
    "]]><link rel=stylesheet href=//x.invalid/x.css><meta http-equiv=refresh content=0;url=//x.invalid>",
)
"""What a policy, a judge or a dataset may contain."""


def shown_as(text):
    """A text as the page shows it: characters that cannot be seen by their code points."""
    import unicodedata

    def mark(c):
        unseen = unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"
        return f"U+{ord(c):04X}" if unseen or c in "\u2028\u2029" else c

    return "".join(map(mark, text))


def page_data(hostile=True, title=None, training=False):
    """A page of 12 rows; with `hostile`, every text of it attacks, else none does."""
    attack = (lambda at: HOSTILE[at % len(HOSTILE)]) if hostile else (lambda at: f"plain {at}")
    n, components = 12, (attack(0), "format")
    reward_N = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0], float) + 0.1
    verdicts = ["correct" if r > 1 else "wrong_answer" for r in reward_N]
    advantage_N = np.repeat([0.0, 0, 0], 4) + reward_N - np.repeat([0.6, 1.1, 0.35], 4)
    fate_N = np.array([-1] * 4 + [2] * 4 + [-1] * 4, np.int16)
    table = pa.table(
        {
            "response_id": [f"r{at:02d} {attack(at)}" for at in range(n)],
            "prompt_id": [f"p{at // 4} {attack(at // 4)}" for at in range(n)],
            "fate": fate_N,
            "reason": pa.array([attack(1) if f >= 0 else None for f in fate_N], pa.string()),
            "verdict": pa.array([*verdicts[:11], attack(2)], pa.string()),
            "finish_reason": pa.array([*["stop"] * 11, attack(3)], pa.string()),
            "tokens": pa.array(np.arange(n) + 3, pa.int32()),
            "characters": pa.nulls(n, pa.int64()),
            "reward": reward_N,
            "advantage": advantage_N,
            "loss_weight": pa.nulls(n, pa.float64()),
            "masked_tokens": pa.nulls(n, pa.float64()),
            **{
                name: column
                for c, values in zip(components, (reward_N - 0.1, np.full(n, 0.1)), strict=True)
                for name, column in (
                    (f"reward_{c}", pa.array(values)),
                    (f"reward_{c}_missing", pa.array([None] * 10 + [attack(4)] * 2, pa.string())),
                    (f"contribution_{c}", pa.array(values)),
                )
            },
        }
    )
    rows = RowTable(table, Groups.of(table), components)
    funnel = [_step("math_verify_mapper", 12, {}), _step(attack(5), 12, {attack(1): 4})]
    lengths_N = np.asarray(table["tokens"]).astype(np.int32)
    figures = {**set_figures(rows, funnel)._asdict(), "length_unit": "tokens", "sampled": n}
    group_texts = pa.table(
        {
            "prompt_id": table["prompt_id"].take(pa.array([0, 4, 8])),
            "prompt": [
                [{"role": attack(g + 6), "content": f"What is {g}? {attack(g + 3)}"}]
                for g in range(3)
            ],
            "reference": [f"{g} {attack(g + 7)}" for g in range(3)],
        }
    )
    row_texts = pa.table(
        {
            "response_id": table["response_id"],
            "response": [f"answer {at}: {attack(at)}\n{attack(at + 1)}" for at in range(n)],
            "extracted_answer": [attack(at) for at in range(n)],
            "raw_answer": [f"judge {attack(at + 2)}" for at in range(n)],
            attack(3): [attack(at + 4) for at in range(n)],
            EVIDENCE: [evidence_of(at, attack) for at in range(n)],
            "turns": pa.array(
                [
                    [
                        [
                            ("role", attack(at)),
                            ("text", attack(at + 5)),
                            ("tool", attack(at + 6)),
                            ("arguments", attack(at + 7)),
                            ("observation", attack(at + 8)),
                        ]
                    ]
                    for at in range(n)
                ],
                pa.list_(pa.map_(pa.string(), pa.string())),
            ),
        }
    )
    only = PageSet(
        name=f"set {attack(0)}",
        kind="answers",
        step=None,
        steps=(
            PageStep(1, "math_verify_mapper", ("verdict", "extracted_answer", attack(3)), {}),
            PageStep(2, attack(5), ("reward",), {attack(1): f"meaning {attack(8)}"}),
            PageStep(3, "grpo_advantage_mapper", ("advantage",), {}),
        ),
        figures=figures,
        columns=(
            PageColumn("row", np.repeat([4, 5, 6], 4).astype(np.int32)),
            PageColumn("fate", fate_N.astype(np.int32)),
            *(slug_column(name, table[name]) for name in ("reason", "verdict", "finish_reason")),
            PageColumn("length", lengths_N),
            *(PageColumn(name, np.asarray(table[name])) for name in ("reward", "advantage")),
            *(
                column
                for c in components
                for column in (
                    PageColumn(f"reward_{c}", np.asarray(table[f"reward_{c}"])),
                    slug_column(f"reward_{c}_missing", table[f"reward_{c}_missing"]),
                    PageColumn(f"contribution_{c}", np.asarray(table[f"contribution_{c}"])),
                )
            ),
        ),
        components=components,
        groups_at=rows.groups.starts_G.astype(np.int32),
        group_texts=group_texts,
        row_texts=row_texts,
        banner=f"banner {attack(4)}",
    )
    other = only._replace(name=f"other {attack(1)}", banner="")
    if training:
        only, other = only._replace(step=1), other._replace(step=2)
    points = tuple(
        {"step": s, "rejuice/reward": s / 10, f"rejuice/reward_{attack(0)}": 0.5} for s in range(3)
    )
    return PageData(
        f"project {title or attack(1)}",
        (only, other),
        curves=(PageCurves("", points),),
        recipe=f"# {attack(1)}\nprocess: []\n",
    )


def evidence_of(at, attack):
    """Where the answer of a row is found, what a judge wrote of it, and the response after it."""
    start = len(f"answer {at}: ")
    near = (at + 1) % 4 + at // 4 * 4
    found = {
        (1, "found_by"): "boxed",
        (1, "found_at"): f"{start}:{start + len(attack(at))}",
        (2, "raw_failure"): f"no score for {at}\n{attack(at + 3)}",
        (2, attack(at)): attack(at + 1),
        (3, "raw_answer"): f"judged {attack(at + 2)}",
        (3, "nearest_response_id"): f"r{near:02d} {attack(near)}",
        (3, "nearest_cosine"): "0.875",
    }
    return [{"step": step, "name": name, "text": text} for (step, name), text in found.items()]


def _step(name, rows_in, dropped):
    return StepReport(
        step=name,
        rows_in=rows_in,
        rows_out=rows_in - sum(dropped.values()),
        added=0,
        dropped=dropped,
        seconds=0.5,
        cached=False,
        notes={f"note {name}": 2.0},
        columns={},
        written=[],
    )


TYPES = {"f64": "<f8", "i32": "<i4", "u8": "u1"}
RESPONSES = {
    "What is 3 + 4?": ("7", ["\\boxed{7}", "It is 7.", "\\boxed{8}", "It is 9."]),
    "What is 1 + 1?": ("2", ["\\boxed{2}", "2", "It is 2.", "That is 2."]),
    "What is 5 + 5?": ("10", ["\\boxed{10}", "It is 11.", "12", "13"]),
}
STEPS = [
    "math_verify_mapper",
    {"format_reward_mapper": {"style": "boxed"}},
    "group_stats_mapper",
    {"pass_rate_filter": {"max": 0.9}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 1.0}}},
    "grpo_advantage_mapper",
]


def recorded():
    return [
        {
            "prompt_id": f"{group:032x}",
            "response_id": f"{group * 16 + at:032x}",
            "prompt": [{"role": "user", "content": question}],
            "reference": reference,
            "response": response,
        }
        for group, (question, (reference, responses)) in enumerate(RESPONSES.items())
        for at, response in enumerate(responses)
    ]


class Page:
    """A written page, decoded without a browser."""

    def __init__(self, path):
        self.text = path.read_text("utf-8")
        found = re.search(r'<script type="application/json" id="head">(.*?)</script>', self.text)
        self.head = json.loads(found[1])

    def block(self, number):
        found = re.search(rf'<script type="text/plain" id="b{number}">([^<]*)</script>', self.text)
        return gzip.decompress(b64decode(found[1]))

    def column(self, name, at=0):
        columns = {each["name"]: each for each in self.head["sets"][at]["columns"]}
        return np.frombuffer(self.block(columns[name]["block"]), TYPES[columns[name]["type"]])

    def slugs(self, name, at=0):
        columns = {each["name"]: each for each in self.head["sets"][at]["columns"]}
        return [columns[name]["slugs"][place] or None for place in self.column(name, at)]

    def rows(self, at=0):
        blocks = [json.loads(self.block(each["block"])) for each in self.head["sets"][at]["texts"]]
        return [row for block in blocks for group in block for row in group["rows"]]
