"""Made-up arithmetic: worded problems without end, and students who solve them well or badly."""

from .problems import LEVELS, Problem, Split, Step, parse_levels, problem, problems
from .recorded import write_prompts, write_recorded
from .students import STUDENTS, Response, respond, student_of

__all__ = [
    "LEVELS",
    "STUDENTS",
    "Problem",
    "Response",
    "Split",
    "Step",
    "parse_levels",
    "problem",
    "problems",
    "respond",
    "student_of",
    "write_prompts",
    "write_recorded",
]
