"""Dates and times as types of answers: what is one, what a text mentions, what equals what."""

from __future__ import annotations

import pytest
from each import check_each
from hostile_text import in_linear_time

from rejuice.operators.verifier.answer_types import AnswerRules
from rejuice.operators.verifier.calendar_answers import DATE, TIME

DATES = r"""
2021-03-05 | 2021/3/5 | 05/24/1943 | 24/05/1943 | 24.05.1943 | 02/28/2019 | 5-Mar-2021 | 2024-02
March 5, 2021 | 5 March 2021 | 5th of March, 2021 | Mar. 5 | the 5th of March | March 5^{\text{th}}
Friday, March 5, 2021 | July 20, 1969 | June 2007 | June of 2007 | Thursday | friday | June | Sept 11
1970s | 15th century | fifteenth century | 5th century BC | 44 BC | AD 79 | March 15, 44 B.C.
5. März 2021 | 1er mai 2020 | 5 de marzo de 2021 | May 1 to May 5 | May 1–5, 2020 | May 12 | Feb 29
"""
NOT_DATES = r"""
1912 | May | March | Sat | Mon | Tue | 3/10105 | 10-20 | 1.2.3 | 555-1234 | 192.168.0.1 | 1-2-3 | 3/4
2021-13-45 | Feb 30, 2021 | February 29, 2021 | 1861-1865 | 1861 - 1865 | 1/2/3 | 7-11-13 | 5/2021
June is hot | March on | 5032021 | 12 | Mars | 2021-03-05-07 | 3:30 PM | 3 days | x
"""
TIMES = r"""
3:30 pm | 3:30 p.m. | 15:30 | 3:30 | 9 AM | 9 in the morning | noon | midnight | 6{:}55 | 00:00
8\!:\!05 | 12:00 noon | 12:00\ \text{noon} | 7:05:09 | 3 o'clock | 9 am to 11 am | 9–11 am
3.5 hours | 150 min | 2 hours 45 minutes | 2 hours and 45 minutes | 3 min 20 s | 900 seconds | 250 ms
seven hours | two and a half hours | half an hour | 2h45m | 10 s | 2 h | 1{,}000 years | 1 week
2\frac{1}{2} hours | 10 \text{ seconds} | 3/4 hour | 1 year 3 months | 1.5 million years
5 \times 10^{-3} s | 10-15 minutes | 2,5 Stunden | 2 centuries | 45m30s
"""
NOT_TIMES = r"""
3:4 | 2:1 | 1:20000 | 8:70 | 25:00 | 1030 | 15:30 AM | 13 pm | 2h | 10s | 5 m | 1970s | an hour
60 + 30 minutes | 3 \times 50 minutes | 94/1 hours | 3 m/s
60 km per hour | 3 hours per day | 30 minutes, 45 minutes | 10 or 15 minutes | March 5 | 7 | x
"""
# A reference | answers that equal it | answers that do not
EQUAL_DATES = r"""
2021-03-05 | March 5, 2021; 5 March 2021; 03/05/2021; 05.03.2021; Friday, 2021-03-05 | 2021-05-03
2021-03-05 | 2021–03–05; the 5th of March, 2021 | March 2021; 2021; March 5; Friday; March 5, 2020
03/05/2021 | 3/5/2021; Mar 5, 2021 | 05/03/2021; May 3, 2021
24/05/1943 | 05/24/1943; 24.5.1943; May 24, 1943 | 05/25/1943; May 1943
12/06/2024 | Dec 6, 2024 | 06/12/2024; 4/2/2024; 24/12/2024
June 2007 | Jun 2007; 2007-06; 06/2007 | June 29, 2007; 2007; June; July 2007
June 6, 1944 | Tuesday, June 6, 1944; 6 June 1944 | June 1944; June 6, 1945; 1944
May 12 | 12 May; May 12th; May 12, 1987; Tuesday, May 12 | May 13; May; June 12; May 1987
Tuesday | Tue; Tuesday, March 2, 2021; a Tuesday in 2021 | Thursday; March 2, 2021; Tuesday to Friday
Friday, March 5 | March 5; Friday, March 5, 2021 | Thursday, March 5; Friday
June | Jun; June 2007 | July; June 5
1970s | the 1970's | 1975; 1980s
15th century | the fifteenth century | 14th century; 15th century BC; 1492
44 BC | 44 B.C.E. | 44 AD; 45 BC
May 1-5, 2020 | May 1 to May 5, 2020; May 1, 2020 - May 5, 2020 | May 1, 2020; May 1-6, 2020
5. März 2021 | March 5, 2021; 5 mars 2021; 5 de marzo de 2021 | 5. Mai 2021
"""
EQUAL_TIMES = r"""
3:30 PM | 15:30; 3:30; 3:30 p.m.; 3:30 in the afternoon; 15:30:00 | 3:30 AM; 3:31 PM; 03:30; 3 PM
15:30 | 3:30 pm; 3:30 | 3:30 am; 15:31
08:05 | 8:05; 8:05 AM; 8:05 in the morning | 20:05; 8:05 pm; 8:50
8:05 | 8:05 am; 8.05 p.m.; 8:05 pm; 20:05; 08:05; 8\!:\!05 | 8:06
00:00 | midnight; 12:00 AM; 0:00 | 12:00; noon; 12:00 PM
12:30 AM | 00:30; 12:30 | 12:30 PM; 1:30
12:00 noon | 12:00; noon; 12 noon; 12 PM | 12:00 AM; midnight
9 am to 11 am | 9:00 AM - 11:00 AM; between 9 am and 11 am; 9-11 am | 9 am; 9 am to 10 am
2.5 hours | 2 hours 30 minutes; 150 min; 2 h 30 min; two and a half hours; 9000 s | 2.5; 2:30; 2 hours
90 minutes | 1 hour and 30 minutes; an hour and a half; 3/2 hours; 1h30m | 90 seconds; 1:30; 90-100 minutes; 90/1 minutes
1 week | 7 days; 168 hours; seven full days | 7 weeks; 1 month
1 year | 12 months; one year | 365 days; 1 day
250 ms | 0.25 s; 1/4 second | 250 s
15 minutes | a quarter of an hour; one-fourth of an hour | between 10 and 15 minutes; 10-15 minutes
10-15 minutes | 10 to 15 min | 15 minutes; 10-20 minutes
"""
# A text | what it mentions
MENTIONS = [
    (DATE, "Apollo 11 landed on July 20, 1969.", ["July 20, 1969"]),
    (DATE, "March 5, 2021 is a Friday", ["March 5, 2021 is a Friday"]),
    (DATE, "So it is a **Tuesday**, as 2021 is no leap year", ["Tuesday"]),
    (DATE, "June 6, 1944 or 1945", ["June 6, 1944", "1945"]),
    (DATE, "You may go 12 miles on May 12 or 13 May", ["May 12", "13 May"]),
    (DATE, "It is 2013.", ["2013"]),
    (DATE, "Monday and Tuesday", ["Monday and Tuesday"]),
    (DATE, "Feb 30, 2021 or 2021-13-45, phone 555-1234, 3/4 of 2000%", []),
    (DATE, r"\text{May 12}", ["May 12"]),
    (TIME, "It starts at 9 AM and takes 2 hours and 5 min.", ["9 AM", "2 hours and 5 min"]),
    (TIME, "60 min + 30 min = 90 min", ["90 min"]),
    (TIME, "- 3 hours", ["3 hours"]),
    (TIME, "a ratio of 3:4 in 1030 to 8:70, in a day", []),
]


def cells(table: str) -> list[str]:
    return [cell.strip() for line in table.strip().splitlines() for cell in line.split(" | ")]


@pytest.mark.parametrize(
    ("rules", "taken", "not_taken"), [(DATE, DATES, NOT_DATES), (TIME, TIMES, NOT_TIMES)]
)
def test_a_reference_is_of_the_type_as_a_whole(rules: AnswerRules, taken: str, not_taken: str):
    assert [each for each in cells(taken) if not rules.takes(each)] == []
    assert [each for each in cells(not_taken) if rules.takes(each)] == []


@pytest.mark.parametrize(("rules", "table"), [(DATE, EQUAL_DATES), (TIME, EQUAL_TIMES)])
def test_an_answer_equals_its_reference(rules: AnswerRules, table: str):
    def check(reference: str, right: str, wrong: str) -> None:
        (value,) = {each.value for each in rules.mentions(reference)}

        def equals(answer: str) -> bool:
            values = {each.value for each in rules.mentions(answer)}
            return len(values) == 1 and rules.equal(values.pop(), value)

        assert equals(reference)
        assert [each for each in right.split("; ") if not equals(each)] == []
        assert [each for each in wrong.split("; ") if equals(each)] == []

    lines = [tuple(line.split(" | ")) for line in table.strip().splitlines()]
    check_each(lines, check)


def test_mentions_are_maximal_and_in_order():
    def check(rules: AnswerRules, text: str, expected: list[str]) -> None:
        assert [text[start:end] for _, start, end in rules.mentions(text)] == expected

    check_each(MENTIONS, check)


def test_equal_values_are_equal_mentions():
    assert len({each.value for each in TIME.mentions("1.5 hours = 90 minutes (5400 s)")}) == 1
    assert len({each.value for each in TIME.mentions("3:30 PM (15:30)")}) == 1
    assert len({each.value for each in DATE.mentions("March 5, 2021, or 2021-03-05")}) == 1


@pytest.mark.parametrize("text", ["1" * 8000, "one " * 2000, "1:2" * 3000, "2021 " * 2000])
def test_long_texts_are_read_in_linear_time(text: str):
    for rules in (DATE, TIME):
        in_linear_time(rules.mentions, text)
