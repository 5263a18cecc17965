"""`python -m rejuice.pipelines.cli` is `rejuice`."""

from .training import main

if __name__ == "__main__":
    main()
