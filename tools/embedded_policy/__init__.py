"""How the embedded policies that come with rejuice were made: for developers, from a checkout.

python -m tools.embedded_policy DIR [--policy embedded_flow] [--seed N] [--overwrite]
"""
