"""``python -m scoreboard``."""

import sys

from scoreboard.run import main

if __name__ == "__main__":
    sys.exit(main())
