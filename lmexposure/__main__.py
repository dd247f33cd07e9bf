"""`python -m lmexposure` is the installed command."""

from lmexposure.cli.entry import main

if __name__ == "__main__":
    main()
