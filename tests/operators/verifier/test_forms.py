"""More forms, one pair a line: reference, `==` or `!=`, response (`¶` stands for a new line)."""

from __future__ import annotations

import pytest
from graded_cases import Case, check_verdicts

BARE = r"""
1 \bmod 5 != 1 \bmod 7
17 \bmod 5 == 2
\frac{7}{3}x == 2\frac{1}{3}x
\frac{2}{3}x != 2\frac{1}{3}x
\frac{7\pi}{3} == 2\frac13\pi
cat != act
NNW != WNN
\frac{1}{2} == \dfrac{1}{2}
\frac{1}{2} == \left(\frac{1}{2}\right)
x \in \mathbb{R} == \mathbb{R}
(-\infty,\infty) == \mathbb{R}
\text{all real numbers} == (-\infty,\infty)
2x+1 != 2x+1=0
3 != \{3, 4\}
\{3\} == x=3
12 == 12 \text{ cm}
12\text{ cm} == 12
\frac{3}{4}\pi == \frac{3\pi}{4}
\sin x \cos x == \frac{1}{2}\sin 2x
\sin(2x) == 2\sin x\cos x
\tan x == \frac{\sin x}{\cos x}
\log_{10} 100 == 2
\log 1000 == 3
\ln e^3 == 3
\ln(x^2) == 2\ln x
e^{x+y} == e^x e^y
a^{-1} == \frac{1}{a}
\sqrt{x^2+1} != x+1
\sqrt{12} == 2\sqrt{3}
\sqrt{12} != 3\sqrt{2}
1+\sqrt{2} != \sqrt{3}
\sqrt{2}+\sqrt{3} == \sqrt{5+2\sqrt{6}}
0.\overline{3} == \frac{1}{3}
0.1\overline{6} == 1/6
0.\overline{12} == \frac{4}{33}
x=\frac{-1\pm\sqrt{5}}{2} == \frac{-1+\sqrt{5}}{2}, \frac{-1-\sqrt{5}}{2}
x=2,-3 == -3,2
x=2,-3 == x=2 \text{ or } x=-3
x_1=2, x_2=3 == 2,3
x_1=2, x_2=3 == 3,2
(2,3) == x=2, y=3
x=2, y=3 == (2, 3)
\left(\frac{1}{2},-\frac{3}{4}\right) == (0.5,-0.75)
(3,\frac{\pi}{2}) == \left( 3, \frac{\pi}{2} \right)
[2,3] != (2,3)
(1,3) == 1<x<3
(1,3) != 1\le x<3
x<1 \text{ or } x>3 == (-\infty,1)\cup(3,\infty)
x \neq 2 == x \ne 2
x \neq 2 != x=2
x \neq 2 != 2
(-\infty,2)\cup(2,\infty) == x \neq 2
x\ge 1 == [1,\infty)
-5<x == x>-5
2x>6 == x>3
-x<2 == x>-2
x^2<4 != x<4
y=x^2 != x=y^2
y=x^2 == x^2
y=x^2 == y - x^2 = 0
x+y=5 == y=5-x
x+y=5 != x-y=5
x+2y=4 != x+2y=5
f(x)=x^2 == y=x^2
g(x)=x^2 != f(x)=x^3
10 \text{ meters} == 10 m
10 \text{ meters} != 10 cm
10 \text{ meters per second} == 10 m/s
10 \text{ m/s} == 10 meters per second
10 \text{ m/s} != 10 m/s^2
50 \text{ cm}^3 == 50 cubic centimeters
100 \text{ km} == 100 kilometres
6 \text{ hours} == 6 hrs
6 \text{ hours} != 6 days
\$10.50 == 10.5
\$10.50 == $10.50
\$10 != €10
10\% == 0.1
10\% == 10
10 \text{ percent} == 10%
3.5\% != 0.35
0.05 == 5%
0.05 != 0.05%
\frac{1}{3} == 33.3333333%
\frac{1}{3} != 33%
1,234,567 == 1234567
1234567 != 1,234,56
10^6 == 1,000,000
10^6 == 1 million
2^{10} == 1024
2^{10} != 1000
2^{100} == 1267650600228229401496703205376
2^{100} != 1267650600228229401496703205377
1.0e-10 != 1.1e-10
1.0e-10 == 0.0000000001
10^{-10} != 0
\frac{1}{10^{30}} != \frac{1}{10^{31}}
1+10^{-50} != 1
3.14 != \pi
\pi^2 != 9.87
3+4i == 4i+3
3+4i != 3-4i
3+4i != 5
i^2 == -1
\begin{pmatrix}1&2\end{pmatrix} != \begin{pmatrix}2&1\end{pmatrix}
\begin{pmatrix}1&2\end{pmatrix} != \begin{pmatrix}1\\2\end{pmatrix}
\begin{vmatrix}1&2\\3&4\end{vmatrix} == -2
\begin{bmatrix}\frac12&0\\0&1\end{bmatrix} == \begin{pmatrix}0.5&0\\0&1\end{pmatrix}
\text{(C)} == C
C == \text{C}
(C) == C
C != D
C == C. 12
\text{east} == East
\text{even} != odd
\text{Monday} == monday
2:1 == 2:1
2:1 != 1:2
1:2 == 2:4
1:2:3 == 1:2:3
1:2:3 != 3:2:1
7:45 == 7:45
7:45 != 7:54
7:45 \text{ a.m.} == 7:45 AM
7:45 \text{ p.m.} != 7:45 AM
1011_2 != 11
1011_2 == 1011_{2}
1011_2 != 1101_2
2A_{16} != 42
\lfloor 3.7 \rfloor == 3
\lceil 3.2 \rceil == 4
|-5| == 5
\left|-5\right| == 5
4! == 24
4! != 4
\binom{5}{2} == 10
\frac{5!}{3!} == 20
\sum_{k=1}^{10} k == 55
\sum_{k=1}^{10} k != 54
\int_0^1 x^2 dx == \frac{1}{3}
\infty == \infty
\infty != -\infty
\text{undefined} == undefined
\text{DNE} == does not exist
5 != 5, 6
5 != 5 and 6
5 != either 5 or 6
5 != 5 (or 6)
5 != 5/6
5 != 5 ... 6
5 != ~6
5 == ~5
5 == 5 (five)
5 == five (5)
5 == approximately 5
5 == about 5
5 == \approx 5
5 == exactly 5
-\frac{1}{2} == -0.5
-\frac{1}{2} == -\left(\frac{1}{2}\right)
-\frac{1}{2} != 0.5
3 == +3
-3 == -(3)
3 == -(-3)
3 == $3$ apples
3 == 3\text{ apples}
3 == 3\,\text{m}
3 == \mathbf{3}
3 == \mathrm{3}
3 == \textit{3}
3 == \underline{3}
3 == \color{red}{3}
3 == \boldsymbol{3}
3 == $$3$$
3 == ***3***
3 == __3__
3 == "3"
3 == 3;
3 == 3 \\
3 == \displaystyle 3
3 == {3}
3 == 3。
12 == 12 cookies in total
12 == 12 more cookies
12 == 12 students
12 == twelve students
100 == one hundred
100 == a hundred
1000 == a thousand
2.5 == 2 and a half
2.5 == two and one half
0.25 == a quarter
0.25 == one fourth
0.25 == one quarter
1.5 == one and a half
1500 == 1.5 thousand
1500 == 15 hundred
48 == 4 dozen
5 == 5 PM
x^2+1 == x^2 + 1
x^2+1 == 1+x^{2}
x^2+1 != x^2-1
x^3-1 == (x-1)(x^2+x+1)
(x+1)^3 == x^3+3x^2+3x+1
\frac{x^2-4}{x-2} == x+2
\frac{1}{x}+\frac{1}{y} == \frac{x+y}{xy}
\frac{a}{b} != \frac{b}{a}
3x != 3
3x != x
3x == 3 \cdot x
3x == 3*x
x^{10} != x^10 + 1
x^{10} == x^10
2\sqrt{5} == \sqrt{20}
2\sqrt{5} == 2 \sqrt 5
2\sqrt{5} == 2*\sqrt{5}
2\sqrt{5} == 2sqrt(5)
2\sqrt{5} == 4.472135955
2\sqrt{5} != 4.47
\frac{\sqrt{2}}{2} == \frac{1}{\sqrt2}
\frac{\sqrt{2}}{2} == \sin 45^\circ
\frac{\sqrt{2}}{2} == \cos(\pi/4)
30^\circ == \frac{\pi}{6}
30^\circ == 30 degrees
\frac{\pi}{6} == 30^\circ
\frac{\pi}{6} != 30
360^\circ == 2\pi
5\pi == 15.70796327
5\pi != 15.7
\{1,2\} == \{2,1\}
\{1,2\} != \{1,3\}
\{1,2\} != (1,2)
\{1,2\} == 1 and 2
\{1,2\} == \{1, 2, 2\}
\{x | x>2\} == (2,\infty)
\{x : x \ge 0\} == [0,\infty)
\{a,b\} == \{b,a\}
\{a,b\} != \{a,c\}
(a,b) != (b,a)
\langle 1,2,3\rangle == \langle 1, 2, 3 \rangle
\langle 1,2,3\rangle != \langle 3,2,1 \rangle
1, 2, 3 != 1, 2
1, 2, 3 == 1,2,3.
1, 2, 3 == x = 1, 2, 3
1, 2, 3 == 1, 2, or 3
1, 2, 3 == $1$, $2$, $3$
0, 1 != 0.1
1,000 != 1
1,000 != 1,0
10,000 != 1000
1000 == 1000.
3.0 == 3
3.10 == 3.1
3.01 != 3.1
0.5 == .5
123456789 != 123456788
123456789123456789 != 123456789123456788
1/3 == 0.333333333
1/3 != 0.3333
1/3 == \frac{2}{6}
\frac{10}{3} == 3\frac{1}{3}
\frac{10}{3} == 3 1/3
\frac{10}{3} != 3.33
7/2 == 3 \frac{1}{2}
7/2 != 3 \cdot \frac{1}{2}
-7/2 == -3\frac{1}{2}
-7/2 == -3 1/2
(x+1)(x-1)=0 == x^2-1=0
x=y == y=x
A=\pi r^2 == \pi r^2
r=5 == 5
r=5 == radius = 5
5 == The radius = 5
V = 12 == V=12
V = 12 != V=13
m=2, b=3 == b=3, m=2
2 == m = 2
x=5 \text{ and } y=6 == (5,6)
\text{yes} != no
Paris == paris
Paris != London
"""
RESPONSES = r"""
42 == Let me compute.¶6*7=42¶¶So the result is **42**.
42 == Step 1: 40¶Step 2: add 2¶Final: 42
42 == The final answer is: $\boxed{42}$
42 == **Answer**: 42
42 == **Answer: 42**
42 == Answer:¶42
42 == Answer:¶¶$$42$$
42 == The answer is **42**.
42 == The answer is $42$ dollars.
42 == The answer is \$42.
42 == The answer is $42.
42 == The answer is $42.00.
42 == The answer is: 42 (forty-two).
42 == the answer is 42, since 6*7 = 42
42 == The answer is therefore 42.
42 == Thus, the answer is x = 42.
42 == Final answer: 42
42 == final answer is 42
42 == So the final answer is 42 apples, not 43.
42 == There are 42 students in the class.
42 == \[¶\boxed{42}¶\]
42 == $$\boxed{42}$$
42 == Therefore, $x = \boxed{42}$.
42 == The answer is $\boxed{42}$
42 == <answer>The answer is 42</answer>
42 == <answer>$42$</answer>
42 == <think>hmm</think><answer>42</answer>
42 == <think>¶long¶</think>¶¶The answer is 42.
42 == <ANSWER>42</ANSWER>
42 == \boxed{42\text{ cm}}
42 == \boxed{\$42}
42 == \boxed{42.0}
42 == \boxed{\mathbf{42}}
42 == \boxed{42}.
42 == #### 42.00
42 == #### $42
42 == ####42
42 == A: 42
42 == bla¶#### 42¶
42 != He has 43 left.
42 == \boxed{43} ¶ The answer is 42
42 != The answer is 42.5
42 != The answer is -42.
42 != The answer is 4 2
42 != The answer is 42%0
42 != The answer is either 42 or 43.
42 != It is 42 or 43
43 != It is 42 or 43
43 != either 42 or 43
43 != The answer could be 42, or 43.
43 != The answer is 42 or possibly 43.
43 != \boxed{42/43}
42 != \boxed{42} and \boxed{43}
43 != \boxed{42}, \boxed{43}
43 != 42, 43
42 != not 42
42 != The answer is not 42.
42 != It isn't 42
42 != <think>42</think>
42 != <think></think>
42 != <think>The answer is 42
x+1 == The answer is $x+1$.
x+1 == so we get $f(x) = x+1$.
\frac{1}{2} == The probability is $\frac{1}{2}$.
\frac{1}{2} == The probability is \(\frac{1}{2}\).
\frac{1}{2} == The probability is 1/2.
\frac{1}{2} == The answer is \frac{1}{2}.
\frac{1}{2} == so the answer is 0.5
\frac{1}{2} == Answer: 1/2
\frac{1}{2} != The probability is $\frac{1}{3}$.
2\sqrt{3} == The length is $2\sqrt{3}$.
2\sqrt{3} == Answer: $2\sqrt{3}$
2\sqrt{3} == The side is $\sqrt{12} = 2\sqrt{3}$ cm.
2\sqrt{3} != The length is $3\sqrt{2}$.
2\sqrt{3} != the length is 3
B == The answer is B.
B == The correct answer is (B).
B == Answer: B
B == **B**
B == The answer is (B) 42.
B == The answer is \textbf{(B)}.
B == \boxed{B}
B == \boxed{\text{B}}
B == \boxed{\textbf{(B) }42}
B != The answer is C.
B != Answer: A or B
-5 == The answer is -5.
-5 == x = -5
-5 == It drops to -5 degrees.
-5 == $-5$
-5 != It drops by 5 degrees.
1,000 == The answer is 1,000.
1,000 == She pays $1,000.
1000 == one thousand
x=1,x=2 == The solutions are $x=1$ and $x=2$.
1,2 == The solutions are 1 and 2.
(2,3) == The point is (2,3).
[0,1] == \boxed{[0,1]}
80 == That is 80%.
80 == 80 percent
12:30 == 12:30
yes == Yes
no == The answer is no.
No == No.
Yes == The answer is yes.
True == \boxed{\text{True}}
3 != 3 < x
3 != x > 3
3 != 3x = 9
3 != 3^2
3 != 3 \cdot 2
3 != 3 - 1
3 != 3 + i
3 != 3e
3 != 3e5
3 != 3\%5
3 != 3\sqrt{1.1}
3 != 3 \pmod{5}
3 != 3 million
3 != 3 thousandths
3 != 3 tenths
3 != 3 quarters
3 != 3 squared
3 != \sqrt[3]{9}
3 != \log 3
3 != \frac{3}{x}
3 != 3!
3 != 33
3 != \overline{33}
3 != three hundred
3 != three fifths
3 != \{3,3,4\}
3 != (3,3)
3 != [3,3]
3 != \{\}
3 != x
3 != ???
3 != 3?4
3 != 3.14
3 != 3 1/7
3 != 3/1.5
3 != \frac{9}{2}
3 != 0x3f
3 != 3_4x
3 != 3:00 PM
3 != March 3
3 != 3 PM of 4 AM
3 != 3 to 5
3 != 3-5
3 != 3–5
3 != 3~5
3 != \text{3 or 5}
3 != 3\text{ or }5
3 != 3 \lor 5
3 != 3|5
3 != 3||5
3 != 3;5
3 != 3 & 5
3 != 3 and/or 5
3 != 3 \text{ and } 5
3 != 3\quad 5
3 != 3 \\ 5
3 != 3¶5
3 != $3$ $5$
3 != 3 5
3 != 3, or 5
3 != 3 (5)
3 != 3 [or 5]
3 != 3 = 5
3 != 5 = 3
3 != 3 \to 5
3 != 3 \approx 5
3 != 3 \ne 5
3 != \ne 3
3 != \neq 3
3 != <3
3 != >3
3 != \ge 3
3 != more than 3
3 != less than 3
3 != x \equiv 3
3 != -3 or 3
3 != \pm 3
3 != |3|x
3 != 3^{\circ}5
3 != 3'5
3 != 3 feet 5 inches
3 != 3 hours 5 minutes
3 != 3 hours and 5 minutes
3 != 3 dollars and 5 cents
3 != 3 R 5
3 != 3 remainder 5
3 != 3r5
3 != $3 - $5
3 != 3 apples or 5 apples
3 != 3 apples and 5 oranges
100 != 100.0000001
100 != 99.9999999999999
0.1 != 0.10000001
\pi != 3.1415
\pi != 3.141
\pi != \frac{355}{113}
e != 2.71828
\sqrt{2} != \frac{99}{70}
\sqrt{2} == 1.4142136
\frac{1}{3} != \frac{333}{1000}
\frac{1}{3} != \frac{3333333}{10000000}
2^{50} != 2^{51}
\frac{1}{2^{50}} != 0
10^{100} != 10^{101}
10^{100} == 10^{100}
10^{100}+1 != 10^{100}
x^{2}+10^{-30} != x^{2}
\sin x != x
\sin x != \sin(-x)
\cos x == \cos(-x)
\sqrt{x} != x
\sqrt{x}\sqrt{x} == x
\frac{x}{y} != \frac{y}{x}
xy == yx
x^y != y^x
a+b != a-b
a+b != b-a
AB != A+B
\ln x != \log_{2} x
\log x != \ln x
x=2 != x=3
x=2 != y=2
x=2 != 2x
x=2 != x>2
y=2x != x=2y
y=2x == y = 2 \cdot x
y=2x == 2x = y
(x-1)^2+(y-2)^2=9 == (y-2)^2+(x-1)^2=9
(x-1)^2+(y-2)^2=9 != (x-1)^2+(y-2)^2=3
(x-1)^2+(y-2)^2=9 != (x+1)^2+(y+2)^2=9
x^2+y^2=1 == x^2+y^2-1=0
x^2=4 != x=2
xy=0 != x=0
1 != x^2+y^2=1
"""


def pairs(table: str) -> list[Case]:
    found = []
    for line in table.strip().splitlines():
        equal = " == " in line
        reference, response = line.split(" == " if equal else " != ", 1)
        found.append((reference, response.replace("¶", "\n"), equal))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("table", [BARE, RESPONSES], ids=["bare", "responses"])
def test_form(table: str) -> None:
    check_verdicts(pairs(table))


def test_bare_forms_are_symmetric() -> None:
    check_verdicts(
        (response, reference, equal)
        for reference, response, equal in pairs(BARE)
        if reference != "C" and not (equal and " " in response)
    )
