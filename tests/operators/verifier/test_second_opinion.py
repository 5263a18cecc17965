"""Pairs by a second author, who wrote them before reading the verifier's code.

Each answer is graded as a whole response, against the reference that comes first.
"""

from __future__ import annotations

import pytest
from graded_cases import check_verdicts

# category -> [(reference, answers that equal it, answers that do not)]
# fmt: off
PAIRS: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "fraction": [
    (r"\frac{5}{8}", ["0.625", r"\dfrac{5}{8}", r"\tfrac58", r"\cfrac{5}{8}", "5/8", "5 / 8", "10/16"], [r"\frac{8}{5}", "0.63", "5:8"]),
    ("0.2", [r"\frac{1}{5}", ".2", "0.20000"], ["0.02"]),
    (r"-\frac{7}{9}", [r"\frac{7}{-9}", "-7/9"], [r"\frac{-7}{-9}"]),
    (r"\frac{-7}{-9}", [r"\frac{7}{9}"], []),
    (r"\frac{2}{3}", ["0.6666667", "0.66666666667", r"\frac{2}{3}\text{ of the cake}"], ["0.67", "66.67%"]),
    (r"\frac{22}{7}", ["3.142857"], ["3.1415927"]),
    ("6", [r"\frac{42}{7}", "42/7"], ["42/8"]),
    (r"\frac{1}{3}", ["1/3"], [r"\frac{1}{3}y"]),
    (r"\frac13", [r"\frac{1}{3}"], []),
    (r"\frac 1 3", [r"\frac{1}{3}"], []),
    ("0", [r"\frac{0}{5}"], [r"\frac{5}{0}"]),
    (r"\frac{11}{13}", [r"\left(\frac{11}{13}\right)"], []),
    ("1", [], ["1.0000001"]),
    (r"\frac{100}{3}", [r"33\frac{1}{3}"], ["33"]),
    ],
    "extract": [
    ("17", [r"Therefore $\boxed{17}$.", r"Hence \boxed{ 17 }", r"\boxed{17 \text{ apples}}", r"First I get \boxed{15}. Wait, I forgot two: \boxed{17}", "The answer is 17.", "The answer is: **17**", '### Final Answer\n17', "Final Answer: The final answer is $17$. I hope it is correct.", "<think>17 or 18?</think> The answer is 17", "<think>x</think><answer>17</answer>", "<answer>17", '10 + 7 = 17 dollars\n#### 17', "####17", "He has 20 - 3 = 17 apples left.", "She bought 17 eggs", "17", "Answer: $17$ cm", r"**Final Answer:** \(17\)", r"\[ \boxed{17} \]", r"$$\boxed{17}$$", r"\boxed{x = 17}", r"\boxed{\text{17}}", "So the final answer is 17 (apples).", "A: 17", r"Thus the value is $\boxed{\dfrac{34}{2}}$.", r"Final answer: \boxed{17}. Thanks for asking, question 3 done!"], [r"First I get \boxed{17}. Wait: \boxed{15}", "<think>I believe it is 17", '10 + 7 = 17 dollars\n#### 18', "10 + 7 = 18", "", "I do not know.", r"\boxed{17", r"\boxed{}", r"\boxed{1}, \boxed{17}", "The answer could be 16, 17, or 18.", "The answer is not 17.", "The change is -17 metres."]),
    ("1,17", [r"\boxed{1}, \boxed{17}"], []),
    (r"\frac{a}{b}", [r"So the result is $\boxed{\frac{a}{b}}$"], []),
    ("-17", ["The change is -17 metres."], []),
    ("17.5", ["Each pays $17.50."], []),
    ],
    "sets": [
    ("2,5", ["5,2", "2 and 5", "2 or 5", "x = 2 or x = 5", r"x \in \{2,5\}"], ["25", "2.5", "2", "2,5,7"]),
    (r"\{2,5\}", [r"\left\{5, 2\right\}", "{2, 5}"], ["[2,5]"]),
    ("(2,5)", ["(2, 5)", r"\left( 2, 5 \right)", "x=2, y=5", "(2.0, 10/2)"], ["(5,2)", "(2,5,0)", "[2,5)"]),
    (r"\emptyset", [r"\varnothing"], [r"\{0\}", r"\{\emptyset\}"]),
    (r"\{1,2,2\}", [r"\{2,1\}"], []),
    ("1,2,3,4", ["1, 2, 3, and 4", "1;2;3;4"], ["1234", "1,2,3,5"]),
    ("(1,2),(3,4)", ["(3,4),(1,2)", r"(1,2) \text{ and } (3,4)"], ["(1,3),(2,4)"]),
    (r"\{(1,2),(3,4)\}", ["(1,2), (3,4)"], []),
    (r"\{\sqrt2,-\sqrt2\}", [r"\pm\sqrt{2}"], []),
    (r"\{a,b\}", [r"\{b,a\}"], [r"\{a,c\}"]),
    (r"(\frac12, -3)", ["(0.5, -3)"], ["(0.5, 3)"]),
    ("x=1,x=2", [], ["x=1"]),
    ],
    "radical": [
    (r"3\sqrt{5}", [r"\sqrt{45}", r"\sqrt{5}\cdot 3", r"3\sqrt5", "3√5", "3*sqrt(5)", "3sqrt(5)", "6.7082039"], ["6.71", r"5\sqrt{3}", "15", r"\sqrt[3]{5}"]),
    (r"\sqrt[3]{54}", [r"3\sqrt[3]{2}", "54^{1/3}"], []),
    (r"\frac{3}{\sqrt{3}}", [r"\sqrt{3}"], []),
    (r"\frac{1}{1+\sqrt{2}}", [r"\sqrt{2}-1"], [r"1-\sqrt{2}"]),
    (r"\sqrt{6+2\sqrt5}", [r"1+\sqrt5"], [r"1-\sqrt5"]),
    (r"4\pi", [r"4\times\pi", "4π", "4 pi", "12.56637061"], ["12.57", "4", r"\frac{88}{7}"]),
    ("e^3", [r"\exp(3)"], ["3^e"]),
    ("6!", ["720"], ["36"]),
    (r"\log_2 8", ["3"], []),
    (r"\ln e", ["1"], []),
    (r"\binom{5}{2}", ["10"], []),
    ("2^{10}", ["1024"], ["20"]),
    (r"\sqrt{25}", ["5"], [r"\pm 5"]),
    (r"\sin 30^\circ", [r"\frac12"], []),
    (r"\cos\frac{\pi}{3}", ["0.5"], []),
    ],
    "assign": [
    ("n=7", ["7", "n=7.0"], ["m=7", "n=-7"]),
    ("7", ["n = 7", "n = 3 + 4 = 7", r"\text{Perimeter} = 7", r"\text{Perimeter} = 7\text{ cm}", "f(3) = 7", "a_5 = 7", r"x \approx 7"], ["n = 3 + 5 = 8", r"x \neq 7", "x > 7", "2n = 7"]),
    ("8", [], ["n = 3 + 5 = 7"]),
    ("3", [], ["f(3) = 7"]),
    ("21", [r"3 \cdot 7 = 21", "3 x 7 = 21"], []),
    ("x=1, y=2", ["y=2, x=1"], ["x=2, y=1"]),
    ("y=3x+2", ["3x+2"], []),
    ("3x+2", ["f(x)=3x+2"], ["f(x)=3x-2"]),
    ],
    "units": [
    ("12", ["12 oranges", "12 km/h", r"12\text{ cm}", r"12\,\mathrm{cm}", r"12\text{ cm}^2", r"12\ \text{square units}", "12 kilometers per hour", "12cm", "twelve"], ["120 oranges", "13 oranges", "thirteen"]),
    ("24", ["two dozen"], []),
    ("12 cm", ["12", "12 cm", "120 mm"], ["12 m", "12 kg"]),
    (r"60^\circ", ["60", "60 degrees", "60°", r"\frac{\pi}{3}", r"60^{\circ}"], [r"\frac{\pi}{6}"]),
    ("60", [r"60^\circ\text{C}"], []),
    ("7", ["7 bags of 6"], []),
    ("6", [], ["7 bags of 6"]),
    ("45", ["45 minutes", "45 mins."], []),
    ("0.75", [], ["45 minutes"]),
    ("21", ["twenty-one"], []),
    ("100", ["one hundred", "a hundred"], []),
    ],
    "sign": [
    (r"\pm 3", ["3, -3", "3 and -3", "±3", r"x = \pm 3"], ["3", "-3"]),
    (r"\mp 3", [r"\pm 3"], []),
    ("3, -3", [r"\pm 3"], []),
    ("-8", ["−8", "- 8", "(−8)", "negative 8", "minus 8"], ["8"]),
    ("8", ["+8", "-(-8)", "|{-8}|"], []),
    ("0", ["-0", "0.0"], ["0.0001"]),
    (r"1\pm\sqrt2", [r"1+\sqrt2, 1-\sqrt2"], [r"1+\sqrt2"]),
    (r"\frac{-b}{a}", [r"-\frac{b}{a}"], []),
    ],
    "punct": [
    ("36", ["36.", "36,", "36;", "`36`", "***36***", "_36_", "$$36$$", r"\[36\]", r"\textbf{36}", r"\mathrm{36}", "{36}", r"\displaystyle 36", '  36\n', r"36\,", r"36 \quad", "\"36\"", r"$\mathbf{36}$."], ["36!", "36 or 37", "36?", "N/A", "nan", "3 6", "36/"]),
    ],
    "algebra": [
    ("x^2-4", ["(x-2)(x+2)", "-4+x^2", "x*x-4", "x**2 - 4"], ["(x-2)^2"]),
    ("2x", ["x+x"], ["x^2", "2y"]),
    ("ab+c", ["c+ba"], []),
    (r"\frac{x^2-9}{x-3}", ["x+3"], []),
    (r"\frac{a}{b}+\frac{c}{d}", [r"\frac{ad+bc}{bd}"], [r"\frac{a+c}{b+d}"]),
    (r"2\sin x\cos x", [r"\sin 2x"], [r"\sin x"]),
    (r"\tan x", [r"\frac{\sin x}{\cos x}"], []),
    ("y=3x-4", ["3x-y-4=0", "y-3x=-4"], ["y=3x+4"]),
    ("x^2+y^2=4", ["2x^2+2y^2=8"], ["x^2+y^2=2"]),
    (r"\frac{x^2}{9}+\frac{y^2}{4}=1", ["4x^2+9y^2=36"], ["9x^2+4y^2=36"]),
    (r"\frac{1}{3^{50}}", ["3^{-50}"], ["3^{-51}", "0"]),
    ("10^{-12}", [], ["0"]),
    ("e^{x+y}", ["e^x e^y"], []),
    (r"\ln(ab)", [r"\ln a + \ln b"], []),
    (r"\sqrt{x^2}", [], ["x"]),
    (r"\cos^2 x", [r"1-\sin^2 x"], []),
    ("n(n+1)/2", [r"\frac{n^2+n}{2}"], []),
    ("x_1+x_2", ["x_2+x_1"], ["x_1+x_3"]),
    ("x^2+C", [], ["x^2"]),
    ],
    "interval": [
    ("(3,7]", [r"\left(3,7\right]", r"3 < x \le 7", r"3<x\leq7", "x in (3, 7]", r"x \in (3,7]"], ["[3,7)", "[3,7]", "(3,8]"]),
    (r"x\le 5", [r"(-\infty,5]", "x<=5", "5 >= x", r"x \leqslant 5"], [r"(-\infty,5)", r"x \ge 5"]),
    (r"(-\infty, \infty)", [r"\mathbb{R}"], []),
    (r"(-\infty,-1)\cup(1,\infty)", [r"x<-1 \text{ or } x>1", r"(1,\infty)\cup(-\infty,-1)"], [r"(-\infty,-1]\cup[1,\infty)"]),
    (r"[0, \frac{3}{4}]", ["[0, 0.75]"], []),
    (r"(0,\infty)", ["x>0"], [r"x \ge 0"]),
    ("5", [], [r"x \le 5"]),
    ],
    "misc": [
    ("4:5", ["4 : 5", "4 to 5", "8:10"], ["5:4"]),
    (r"\infty", [r"+\infty", "infinity"], ["0"]),
    (r"-\infty", [r"-\infty"], []),
    ("110_2", ["110_{2}"], ["6", "110", "110_3"]),
    ("B", [r"\text{B}", "(B)", r"\textbf{(B)}", "The answer is B."], ["D", "A and B"]),
    (r"\text{Yes}", ["yes"], ["No"]),
    ("Monday", ["monday"], ["Tuesday"]),
    ("2+3i", ["3i+2"], ["2-3i", "5i"]),
    (r"\text{true}", [], ["false"]),
    ],
    "sci": [
    ("0.00042", [r"4.2\times10^{-4}", r"4.2\cdot 10^{-4}", "4.2e-4", "4.2E-04", "4.2 x 10^-4", "4.2 * 10^-4", "4.2×10⁻⁴"], [r"4.2\times10^{4}", "4.2e-5"]),
    ("3e-9", [], ["4e-9"]),
    (r"3\times10^8", ["300000000", "300,000,000", r"3\times10^8\text{ m/s}"], [r"3\times10^9"]),
    (r"6.022\times 10^{23}", ["6.022e23"], []),
    ("10^6", ["1,000,000", "one million"], []),
    ],
    "currency": [
    ("7.50", ["7.5", "$7.50", r"\$7.50", r"\$7.5\text{ per hour}"], ["$75.0", "$7.05"]),
    ("45", ["45 dollars", "£45", "45 USD", "USD 45"], ["$450", "-$45"]),
    ("$45", ["45"], ["€45"]),
    ("3400", ["$3,400.00"], ["$3.400"]),
    ("-45", ["-$45", "$-45"], []),
    ],
    "bignum": [
    ("987654321987654321987654321", ["987654321987654321987654321"], ["987654321987654321987654322", "9.87654321987654e26"]),
    ("9007199254740993", [], ["9007199254740992"]),
    ("18014398509481985", ["18,014,398,509,481,985"], []),
    ("3.75", ["3.750"], ["3.7500001"]),
    ("50", ["49.99999999999999999"], ["49.9999999"]),
    ("0.7", ["0.7000000000000001"], []),
    ("1.1", ["1.1000000000000001"], []),
    ("2^{100}", ["1267650600228229401496703205376"], ["1267650600228229401496703205377"]),
    ("0007", ["7"], []),
    ("7", ["007"], []),
    ],
    "mixed": [
    (r"\frac{11}{4}", ["2.75", r"2\frac{3}{4}", r"2\frac34", "2 3/4", "2¾"], ["2-3/4", "23/4"]),
    (r"2\frac{3}{4}", [r"2 + \frac{3}{4}", r"2 \frac{3}{4}"], [r"\frac{6}{4}"]),
    (r"-3\frac{1}{5}", ["-3.2"], ["-2.8"]),
    ("1.5", ["one and a half", "1½ cups"], []),
    ("0.5", ["half"], []),
    ],
    "percent": [
    ("25%", ["0.25", r"25\%", "25 percent", r"\frac14"], ["2.5%", "0.025", "75%", "2500"]),
    ("0.25", ["25%"], []),
    ("25", ["25%", "25 per cent"], []),
    ("120%", ["1.2", r"\frac{6}{5}"], []),
    ("0.4%", ["0.004"], ["0.4"]),
    ("12.5%", [r"12.5\%", r"\frac{1}{8}"], []),
    ],
    "matrix": [
    (r"\begin{pmatrix}5&6\\7&8\end{pmatrix}", [r"\begin{bmatrix}5&6\\7&8\end{bmatrix}", r"\begin{pmatrix} 5 & 6 \\ 7 & 8 \end{pmatrix}", r"\left(\begin{array}{cc}5&6\\7&8\end{array}\right)", r"\begin{pmatrix}5&6\\7&8\\\end{pmatrix}"], [r"\begin{pmatrix}5&7\\6&8\end{pmatrix}", r"\begin{vmatrix}5&6\\7&8\end{vmatrix}", r"\begin{pmatrix}5&6\\7&9\end{pmatrix}"]),
    (r"\begin{pmatrix}1/2\\3\end{pmatrix}", [r"\begin{pmatrix}\frac12\\3.0\end{pmatrix}"], []),
    (r"\begin{pmatrix}1\\3\end{pmatrix}", [], [r"\begin{pmatrix}1&3\end{pmatrix}", "(1,3)"]),
    (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", [], [r"\begin{pmatrix}0&1\\1&0\end{pmatrix}"]),
    (r"\begin{pmatrix}x&y\\0&1\end{pmatrix}", [r"\begin{Bmatrix}x&y\\0&1\end{Bmatrix}"], []),
    ],
    "thousands": [
    ("7654", ["7,654", "7{,}654", r"7\,654", "7 654", "7\xa0654", "7\u2009654", "7'654"], ["7,655", "76,54", "7,65", "7.654", "7, 654"]),
    ("7,654", ["7654.00", "7,654.0"], []),
    ("2500000", ["2.5 million", "2,500,000"], ["25,000,00", "2.5 billion", "250,000"]),
    ("3000", ["3 thousand"], []),
    ("12,345.67", ["12345.67"], ["12,345.76"]),
    ("1,000,000", ["1000000", "10^6"], []),
    ],
    "shape": [
    ("12", ["12 (units)", "12 [cm]"], []),
    ("3/4", ["three quarters", "three-fourths"], []),
    ("0.75", ["3/4 cup"], []),
    ("2", ["2nd"], [r"The answer is $\frac{17}{2}$"]),
    ("10", ["ten (10)", "10 (ten)"], ["10 (eleven)"]),
    ("48", ["forty-eight", "forty eight clips"], ["fourty-eight"]),
    ("5", ["{5}", r"\{5\}", "(5)"], ["x=5 or x=6", "x=5, y=6", "5 and 6", "5/6", "5, 6", "[5]", "3 through 5", "from 3 to 5", "The answer is from 3 to 5", "3-5", "3 to 5", "somewhere between 3 and 5"]),
    ("1,2", [], ["(1,2)"]),
    ("(1,2)", [], ["1,2"]),
    (r"\{1,2\}", [], ["(1,2)"]),
    ("1/2,3", ["3, 0.5"], []),
    ("1.5,2.5", ["1.5 and 2.5"], []),
    ("x^2+1", ["x^2 + 1", "1+x^{2}", "x^(2)+1"], ["x2+1", "y^2+1", "X^2+1"]),
    ("2^{n}", ["2^n"], []),
    ("2^n", [], ["n^2"]),
    ("2^{n+1}", [r"2\cdot 2^n"], ["2^n+1"]),
    (r"\frac{1}{x}", ["x^{-1}", "1/x"], []),
    (r"\frac{1}{x+1}", ["1/(x+1)"], ["1/x+1"]),
    (r"\sqrt{3}/2", [r"\frac{\sqrt3}{2}"], []),
    (r"\frac{\sqrt3}{2}", [r"\sqrt{\frac34}"], ["0.866", r"\sqrt{\frac{3}{2}}"]),
    (r"\frac{3\pi}{4}", [r"135^\circ"], ["135"]),
    (r"135^\circ", [], ["2.356"]),
    (r"\log_{10} 100", ["2"], []),
    (r"\ln 2", ["0.6931472"], []),
    ("0.5", [r"\sin(\pi/6)"], ["0.5%"]),
    ("0", [r"\sin \pi"], []),
    ("1", ["e^{0}"], []),
    ("-1", [r"e^{i\pi}"], []),
    ("6", ["3!"], ["3!!"]),
    ("120", ["5!"], []),
    (r"\text{(A)}", ["A"], []),
    ("A", ["A)", "A.", "Answer: A", "A) 5", "a"], ["AB"]),
    ("C", ["The correct option is C", r"\boxed{\textbf{C}}"], ["B, not C", "A or C"]),
    ("True", ["true"], []),
    ("yes", ["Yes.", "Yes, it is."], ["No, it is not."]),
    ("no", ["No"], []),
    ("8:30", ["8:30 AM", "8:30 PM"], []),
    ("8:30 AM", [], ["8:30 PM"]),
    ("11_3", [], ["4"]),
    ("4", [], ["11_3"]),
    ("11", [], ["11_3"]),
    ("2A_{16}", ["2a_{16}"], ["42"]),
    ("0x2A", [], ["42"]),
    ("1e3", ["1000"], []),
    ("1000", ["1e3", "1.0e3", "10^3"], ["1k"]),
    ("0.001", ["10^{-3}"], []),
    ("$1.5 million", ["1500000"], []),
    ("1.5 million", ["$1,500,000"], []),
    ("1500000", [], ["1.5M"]),
    ("20%", [r"20\%", "0.2", "20", "1/5", "20.0 percent"], ["2"]),
    ("20", ["20 percent"], ["0.2"]),
    ("0.2", [], ["20"]),
    ("5%", [], ["0.5"]),
    ("3x+2y=6", ["6=3x+2y", "6x+4y=12", "3x+2y-6=0"], ["3x+2y=12", "3x+2y"]),
    ("y=x", ["x=y"], []),
    ("y=2x", [], ["x=2y"]),
    ("(x-1)^2+(y-2)^2=9", ["(y-2)^2+(x-1)^2=9"], ["(x-1)^2+(y-2)^2=3", "(x+1)^2+(y+2)^2=9"]),
    (r"[2,5)\cup(7,9]", [r"(7,9]\cup[2,5)"], [r"[2,5)\cap(7,9]"]),
    ("x<3", ["3>x", r"(-\infty,3)"], ["x>3", "y<3"]),
    ("1<x<3", ["(1,3)"], []),
    (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", [r"\begin{bmatrix}1\\2\\3\end{bmatrix}"], [r"\langle 1,2,3\rangle"]),
    ("17", ["**17**.", r"\boxed{17}.", r"$\boxed{17}$ cm", r"\boxed{17}\text{ cm}", "ANSWER: 17", "answer = 17", "= 17", ": 17", '\n\n17\n\n', '16\n17', "So, $17.", "17/1", "Answer:17", r"answer is: $\boxed{17}$", "The answer is 17%", "The answer is 17!"], [r"\boxed{-17}", r"$-\boxed{17}$", "Therefore, Tom has 17 dollars left after 3 days.", '17\n18', "The answer is 17 and 18", "The answer is 17 or 18", "The answer is either 17 or 18.", "The answer is 1 7", "The answer is 17x", r"The answer is $\frac{17}{2}$", "The answer is 17/2.", "The answer is 17.5.", "The answer is 17,000.", "The answer is 17 thousand.", "The answer is 17^2."]),
    ("18", [], ["The result is 17, not 18"]),
    ("3", [], ["no more than 3", "more than or equal to 3", "3 or greater", "3 and above", "below 3", "The answer is no more than 3 apples.", "The answer is at least $3$.", "from 3 to 5", "3 through 5", "a number greater than 3", "x is at least 3", "x is less than 3", "x must be more than 3", "max 3", "min. 3"]),
    ],
    "prose": [
    ("3", ["It takes at least 3 hours. The answer is 3", "She needs at least 3 buses.", "So she needs to buy at least 3 boxes.", "about 3", "approximately 3", r"\approx 3", "roughly 3", "The answer is approximately 3", "The maximum is 3", "The minimum value is 3.", "minimum value: 3", "3..", "3rd"], ["at least 3 is the answer", "A: at least 3", 'I add.\n#### at least 3', 'Think.\nAt least 3', "**at least 3**", "<answer>at least 3</answer>", "at least $3$", r"\text{at least } 3", "at least three", "at least 3 hours", r"The final answer is $\geq 3$", "almost 3", "just under 3", "nearly 3", r"Bob gets \frac{2}{3} of the cake.", r"Bob gets $\frac{2}{3}$ of the cake.", r"The area of it is then $2\sqrt{3}$ in total", "3 miles at least", "3 mod 5", "maximum 3", "between 2 and 4", "$3$ or $4$", "3 (or 4)", "3/4 or 3", "3^2", r"\boxed{3}\text{ or }\boxed{4}", "-(3)", r"\sim 3", "3~4", "3-4", "3...5", "<3", "3<x", "3 <", "Three or four", "the third"]),
    (r"\frac23", [r"Bob gets \frac{2}{3} of the cake.", r"Bob gets $\frac{2}{3}$ of the cake."], []),
    (r"2\sqrt3", [r"The area of it is then $2\sqrt{3}$ in total", r"The area of it is then 2\sqrt{3} in total"], []),
    ("8", ["10 minus 2 is 8", "She pays $5, then $6, then $7, then $8 now"], ["negative 8", "The answer is minus 8", "The temperature is negative 8 degrees"]),
    ("-8", ["The answer is minus 8", "The answer is negative 8.", "The temperature is minus 8 degrees"], []),
    ("2", [], ["10 minus 2", "It is $3^{2}$ in all"]),
    ("10^{12}", ["10¹²"], []),
    ("x_{12}", ["x₁₂"], []),
    ("7.50", ["$7.5 per hour"], []),
    ("$7.50 per hour", ["7.5 dollars per hour"], []),
    ("17", ["17 (apples)"], []),
    ("2/3", ["2/3 of the cake"], []),
    ("1/2", [], ["1/2 of 10"]),
    ("5", ["5 more", "5 fewer apples", "5 less", "Over 3 years, he gets 5", "5%", "5°", "5, 5", "5^1", "|5|", "+5", "5/1", "5 + 0", r"5\pm 0"], ["5x(3)", "5 dozen", "5k", "5e", "5i", "0x5", "5 5", "55", "5.0.0", "1.5", "5,0", "5 to 6", "5:6", "5+", "5++", "5/0", "5 = 6", "5 ≠ 5", "5?", "¬5", "!5", "5 not", "5 is wrong", "5 plus or minus 1", r"5\pm 1"]),
    ("5 more", ["5 more"], []),
    ("x>3", [], ["more than 3"]),
    ("9", ["It is $3^{2}$ in all"], []),
    ("-1", ["3-4"], []),
    ("60", ["5 dozen"], []),
    ("50", [], ["5,0"]),
    ],
    "third round": [
    ("4", ["The answer is 2^2", "2 + 2", "|4|", "4%", "400%", "4e0", r"\sqrt{16}", r"\lfloor 4.5 \rfloor", r"\{4\}", r"4\%", r"<think>5</think>\boxed{4}", r"\boxed{5}</think>\boxed{4}", r"\boxed{4}%", r"=> \boxed{4}", r"- \boxed{4}", r"Why not? \boxed{4}", r"$x \geq \boxed{4}$", r"<answer>\boxed{5}</answer> \boxed{4}", "#### 5\nThe answer is 4"], ["2+2=5", "4'", "4 = 2 + 3", "4=4=5", "x=4 or x=-4", "±4", "4!", "4i", "4x", "4^2", "4_2", "(4,4)", "4/4", "4:1", r"4\frac{1}{2}", "4½", "4 1/2", "4.4", "44", "-4", "0.04", "4e1", r"4\pi", r"\sqrt{4}", "4,000", "4 million", "four hundred", "forty", "fourteen", "fourth", "a quarter", "1/4", "4 out of 5", "4 of 5", "4 in 5", "4 halves", "4 squared", "4 times 2", "4 plus 1", "4 less than 10", "4 dozen", "sqrt 4", "4 choose 2", "log 4", "x^4", "x_4", "f(4)", r"\frac{4}{x}", "4 - x", r"4\cdot 10^3", "10^4", "4 or none", "!4", "¬4", r"\neg 4", r"\overline{4}", r"\bar{4}", r"4\ldots", "4, ...", "4, 5, 6, ...", "0.4", r"\not 4", r"4 \text{ or } 5", r"\boxed{4}\boxed{5}", "Either 4 or 5.", "The answer is 4 or maybe 5.", "I think it's between 3 and 4.", "The answer is roughly 4 to 5.", "The answers are 4 and 5", "It's definitely not 4.", "The answer isn't 4", "4 is not the answer.", "The answer is 5, not 4.", "The answer is 4x + 2", r"\boxed{4}<think>5</think>", "<answer>5</answer> 4", "<answer>4</answer><answer>5</answer>", '#### 4\n#### 5', '\\boxed{4} \n\n Actually no: \\boxed{5}', r"\boxed{4\text{ or }5}", r"\boxed{4 \quad 5}", r"\boxed{4\\5}", r"The answer is not \boxed{4}", r"The answer is $\pm\boxed{4}$", r"not $\boxed{4}$"]),
    ("5", ["The answer is 5, not 4."], ["The answer is roughly 4 to 5.", "The answer is 4-5.", "It is 4-5 apples", r"\boxed{5}</think>\boxed{4}", "Add 20 + 5", "Jan 3 - 5 apples"]),
    ("2", [], ["The answer is 4x + 2", "So it's 4x + 2", "y = 4x + 2", "So the line is y = 4x + 2"]),
    ("4x+2", ["So the line is y = 4x + 2"], []),
    ("(1,2)", ["(1 , 2)", "x=1,y=2", "(x,y)=(1,2)", "A=(1,2)", "1<x<2"], ["(1,2),(3,4)", "{1,2}", "1,2", "x=2,y=1", "(y,x)=(1,2)", "[1,2)"]),
    ("x^2", ["x²", "(-x)^2", "x^2+0", "x^{2.0}"], ["-x^2", "2^x"]),
    ("x+y", ["y+x"], []),
    ("x-y", [], ["y-x"]),
    (r"\frac{x}{y}", [], [r"\frac{y}{x}"]),
    (r"\sqrt{x}", ["x^{1/2}"], [r"\sqrt[3]{x}"]),
    ("|x|", [r"\sqrt{x^2}"], ["x"]),
    (r"\ln x", [], [r"\log x"]),
    (r"\sin x", [], [r"\cos x", r"\sin y"]),
    (r"\sin^2 x", [r"(\sin x)^2"], [r"\sin x^2"]),
    (r"\sin^{-1} x", [r"\arcsin x"], []),
    (r"\arctan x", [r"\tan^{-1} x"], []),
    ("e^x", [r"\exp x"], ["x^e"]),
    ("a", ["A"], ["B"]),
    ("ab", ["ba"], []),
    (r"2\pi r", [], [r"2\pi R"]),
    (r"\pi r^2", [r"\pi r^{2}"], []),
    (r"\pi", ["3.14159265"], ["3.14", "22/7", r"\Pi"]),
    ("-4", [r"x = -\boxed{4}"], []),
    (r"\pm4", [r"x = \pm\boxed{4}"], []),
    (r"\delta", [], [r"\Delta"]),
    (r"\Delta+2", [r"2+\Delta"], []),
    ],
}

# A second author would have judged these otherwise, or not at all; the verifier's rule decides.
CONVENTIONS: list[tuple[str, str, str, bool]] = [
    (r"\frac{2}{3}", "0.6666666", "seven digits cut off count like seven digits rounded", True),
    ("-8", "—8", "any dash is a minus", True),
    ("5", "5'", "a stray mark", False),
    ("5", "~5", "a tie of LaTeX, not an approximation", True),
    ("5", "5 (wrong)", "it is denied", False),
    ("4", "all but 4", "the last number counts", True),
    ("4", r"2\boxed{4}", "a box that is a factor is not the answer", False),
    ("4", r"\frac{\boxed{4}}{2}", "the same", False),
    ("(1,2)", "(1;2)", "a semicolon separates as a comma does", True),
    ("5", "not sure, maybe 5", "a guess is an answer", True),
    (r"\log 100", "2", "log is to base 10, ln to base e", True),
    (r"\ln 2", r"\log 2", "the same", False),
    ("B", "b", "an option in any case", True),
    ("0.45", "45 cents", "a bare reference takes the figure, not the dollars", False),
    ("17", "The result is 17, not 18", "the denial of another number", True),
    (r"(-\infty,-1)\cup(1,\infty)", "|x|>1", "the same set", True),
    ("1<x<3", "x>1 and x<3", "the same set", True),
    ("2,5", "x in {2,5}", "bare braces are no set after a name", False),
    ("17", "seventeen (17) dollars", "written twice", True),
]

BOUNDS = (
    "at least", "at most", "more than", "less than", "under", "over", "up to", "fewer than",
    "no more than", "not more than", "no less than", "greater than", "a minimum of",
    "a maximum of", "between 2 and", "just under", "almost", "nearly", "close to",
    "x is at least", "min", "max",
)
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("category", PAIRS)
def test_second_opinion(category: str) -> None:
    check_verdicts(
        (reference, answer, is_equal)
        for reference, equal, unequal in PAIRS[category]
        for is_equal, answers in ((True, equal), (False, unequal))
        for answer in answers
    )


def test_conventions() -> None:
    check_verdicts((reference, answer, equal) for reference, answer, _, equal in CONVENTIONS)


def test_a_bound_is_no_value() -> None:
    forms = [
        "{} 3", "**{} 3**", "{} $3$ hours", r"\boxed{{{} 3}}", r"\boxed{{\text{{{} }}3}}",
        "The answer is {} 3.", "Answer: {} 3", "A: {} 3", "I added 1 and 2.\n#### {} 3",
        "I added 1 and 2.\n{} 3", "<answer>{} 3</answer>", "{} 3 is the answer.",
    ]  # fmt: skip
    check_verdicts(("3", form.format(bound), False) for form in forms for bound in BOUNDS)


def test_neither_is_one_after_the_number_or_in_signs() -> None:
    cases = ["3 or more", "3 at least", "3 miles at most", "3+", ">3", r"\ge 3", "≥3", "3 to 20"]
    check_verdicts(("3", form, "wrong_answer") for form in cases)


def test_a_bound_within_a_sentence_and_an_approximation_are_values() -> None:
    cases = [
        "It takes at least 3 hours. The answer is 3", "So she needs to buy at least 3 boxes.",
        "Over 2 years, he grows 3 inches.", "minimum value: 3",
        "The maximum is 3.", "about 3", "approximately 3", r"\approx 3", "The answer is about 3.",
    ]  # fmt: skip
    check_verdicts(("3", response, "correct") for response in cases)


def test_an_approximation_is_compared_like_any_number() -> None:
    for answer in [r"\approx 3.46", "about 3.46"]:
        check_verdicts([(r"2\sqrt{3}", answer, "wrong_answer"), ("3.46", answer, "correct")])
