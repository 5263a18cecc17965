"""`python -m rejuice.trainer` is `rejuice`."""

from .cli import main

if __name__ == "__main__":
    main()
