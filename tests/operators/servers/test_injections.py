"""Judges that read the first, the last or any block, or that obey, and 40 answers that address them."""

import re
from types import SimpleNamespace

import pyarrow as pa
import pytest
from injections import FORGED, ORDERS, QUESTION, READERS, REFERENCE, InjectedJudge

from rejuice.operators.columns import MESSAGES
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.mapper.llm_verify_mapper import LlmVerifyMapper

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
TEXTS = [*FORGED, *ORDERS]
FORMER = (
    "<question>\n{}\n</question>\n\n<reference>\n{}\n</reference>\n\n<answer>\n{}\n</answer>\n\n"
    "Does the answer agree with the reference?"
)
OF_OWN = "# Question\n<question>{question}</question>\n<reference>{reference}</reference>\n<answer>{answer}</answer>"


def table_of(texts):
    chat = [{"role": "user", "content": QUESTION}]
    columns = {
        "prompt": pa.array([chat] * len(texts), MESSAGES),
        "reference": pa.array([REFERENCE] * len(texts)),
        "response": pa.array(texts),
    }
    return pa.table(columns)


def paid(kind, made, texts):
    """How many of some responses a judge pays, and a right one."""
    with InjectedJudge(kind) as judge:
        server = {"base_url": judge.url, "back_off_s": 0.002}
        operator = made(server=server, model="m", cache=None)
        change = operator.apply(table_of([*texts, REFERENCE]))
        operator.close()
    name = next(name for name in change.columns if name in ("reward_accuracy", "reward_quality"))
    rewards = change.columns[name].to_pylist()
    assert None not in rewards
    return sum(each > 0 for each in rewards[:-1]), rewards[-1] > 0


@pytest.mark.parametrize("kind", READERS)
def test_no_judge_that_reads_pays_for_an_injection(kind):
    reader = SimpleNamespace(kind=kind)
    former = (FORMER.format(QUESTION, REFERENCE, each) for each in TEXTS)
    assert any(InjectedJudge.pays(reader, each) for each in former), "the former prompt was read so"

    def verify(**fields):
        return LlmVerifyMapper(exact_match=False, **fields)

    assert paid(kind, verify, TEXTS) == (0, True)
    assert paid(kind, lambda **fields: verify(template=OF_OWN, **fields), TEXTS) == (0, True)
    responses = [re.sub("ans(\u200b?)wer", r"res\1ponse", each, flags=re.I) for each in TEXTS]
    assert paid(kind, LlmQualityRewardMapper, responses) == (0, True)


def test_how_many_orders_reach_a_judge_that_obeys():
    """The numbers of docs/quality.md."""
    assert len(TEXTS) == len(set(TEXTS)) == 40
    assert [paid("obeys", LlmVerifyMapper, each)[0] for each in (FORGED, ORDERS)] == [1, 16]
    assert [paid("obeys", LlmQualityRewardMapper, each)[0] for each in (FORGED, ORDERS)] == [6, 20]
