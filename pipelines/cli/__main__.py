"""`python -m rejuice.pipelines.cli` is `rejuice`."""

from .main import main

if __name__ == "__main__":
    main()
