"""Denied answers that the verifier pays, and affirmed ones that it does not, by language.

    python benchmarks/bench_denials.py [--count 10000] [--part open] [--gsm8k FOLDER]

Prints a table for docs/verifier.md, then templates with errors. Responses are drawn from
`tests/support/denials`, half of them denials. The part "apart" was not looked at while the rules
were written. With `--gsm8k`, also the share of the closing sentences of real solutions that is paid.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from closing_sentences import closing_sentences
from denial_grammar import KINDS, LANGUAGES, PARTS, DrawnResponse, drawn

from rejuice.operators.verifier import verify_batch


def wrong(responses: list[DrawnResponse], kind: str) -> list[DrawnResponse]:
    """Those that are paid, of denials, or not paid, of affirmations."""
    verdicts = verify_batch([r.response for r in responses], [r.answer for r in responses])
    graded = zip(responses, verdicts, strict=True)
    return [
        each for each, verdict in graded if (verdict.verdict == "correct") == (kind == "denial")
    ]


def main() -> None:
    """Draw, grade and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="responses of each kind and part")
    parser.add_argument("--part", choices=PARTS, help="one of the two; both without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gsm8k", type=Path, help="the folder of train.jsonl and test.jsonl")
    wanted = parser.parse_args()
    parts = [wanted.part] if wanted.part else PARTS
    errors = Counter[str]()
    print(f"| part | denials paid | affirmations not paid | {' | '.join(LANGUAGES)} |")
    print("|" + "---|" * (3 + len(LANGUAGES)))
    for part in parts:
        found = {}
        for kind in KINDS:
            found[kind] = wrong(drawn(part, kind, wanted.count, wanted.seed), kind)
            errors.update(each.template for each in found[kind])
        shares = [f"{len(found[kind]) / wanted.count:.2%}" for kind in KINDS]
        counts = [Counter(each.language for each in found[kind]) for kind in KINDS]
        share = len(LANGUAGES) / wanted.count
        shares += [" and ".join(f"{c[name] * share:.1%}" for c in counts) for name in LANGUAGES]
        print(f"| {part} | {' | '.join(shares)} |")
    if wanted.gsm8k:
        files = (wanted.gsm8k / f"{name}.jsonl" for name in ("train", "test"))
        sentences = [each for file in files for each in closing_sentences(file)]
        texts, answers = zip(*sentences, strict=True)
        paid = sum(v.verdict == "correct" for v in verify_batch(texts, answers))
        print(f"\nclosing sentences: {paid:,} of {len(texts):,} are paid")
    print("\nErrors by template:", *(f"{n:5} {name}" for name, n in errors.most_common()), sep="\n")


if __name__ == "__main__":
    main()
