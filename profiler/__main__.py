"""The console script, and `python -m whyidle`."""

import sys


def main() -> int:
    """As `commands.main.main`; Ctrl-C while that is being imported is no reason for a traceback either."""
    try:
        from .commands.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
