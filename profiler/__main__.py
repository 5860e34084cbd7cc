"""The console script, and `python -m whyidle`."""

import signal
import sys

HANDLED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGWINCH", "SIGCONT")
"""What `run` passes on, or acts on."""


def main() -> int:
    """As `commands.main.main`; Ctrl-C while that is being imported is no reason for a traceback either."""
    try:
        # Threads that libraries start when they are imported take no signal: all are for the main thread.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.Signals[name] for name in HANDLED})
        try:
            from .commands.main import main as run
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
