"""Made-up arithmetic: worded problems without end, and students who solve them well or badly."""
