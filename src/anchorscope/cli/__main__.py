"""`python -m anchorscope.cli` is the command `anchorscope`."""

from anchorscope.cli import main

if __name__ == "__main__":
    main()
