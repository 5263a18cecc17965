"""Tolerances for two computations in float32 that sum in another order.

Packed rows, other batches and other processors change the last bits. A log-probability of -20 has
steps of 2e-6, and over a few hundred tokens the largest difference between two correct passes was
1.05e-5, on one processor of several. What is wrong (an adapter that is left out, a shifted token,
another temperature) moves log-probabilities by 0.01 and more.
"""

LOG_PROBS = 1e-4  # absolute
SUMS = 1e-5  # of losses and norms, relative to the sum of the sizes of their terms
