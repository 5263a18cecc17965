"""Grades programs by running their tests, confined.

    Suite.of(cells)  ──>  grade(submissions)  ──>  a verdict for each test

With `stdin`, this process compares what the program has printed. With `assert`, the tests run in a
process of their own and the program in another one: a test that calls `f(3)` gets a stand-in for
`f`, the program is asked for `f(3)`, and its answer goes back as plain data. So a program never
shares a process with a test, an expected value or a comparison, and has nothing to patch, to read
or to leave early.

`plain_data.py`, `program.py` and `judge.py` are what runs in these processes; `assert_style.py`
starts them.
"""
