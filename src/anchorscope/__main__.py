"""`python -m anchorscope` is the command `anchorscope`."""

from __future__ import annotations

from anchorscope.cli import main

if __name__ == "__main__":
    main()
