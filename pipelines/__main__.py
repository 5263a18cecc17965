"""`python -m rejuice.pipelines` is `rejuice`."""

from .cli import main

if __name__ == "__main__":
    main()
