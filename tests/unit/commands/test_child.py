"""Signals that are meant for a command, whichever thread of ours they come to."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from support.fakes.driver import wait_for
from support.terminals import PROMPT, shell, usual_signals

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP)

WAITS = """
import signal, sys, threading, time
from whyidle.terminal import child

# As a library's: it was there before, and takes all signals.
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
told = "import os, signal, sys, time\\ncaught = []\\n"
told += "for each in (1, 2, 3, 10, 12, 15, 20): signal.signal(each, lambda number, _: caught.append(int(number)))\\n"
told += "open(sys.argv[1], 'w').close()\\nwhile len(caught) < 7: time.sleep(0.01)\\nprint(sorted(caught)); sys.exit(9)"
with child.Signals() as signals:
    code = child.wait(child.start([sys.executable, "-c", told, sys.argv[1]], {}, signals), signals)
raise SystemExit(code)
"""


def test_a_thread_that_takes_a_signal_keeps_it_not_from_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", WAITS, ready]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=usual_signals)
    wait_for(ready.exists)
    for number in HANDLED:
        process.send_signal(number)
    said, _ = process.communicate()
    assert (process.returncode, said.decode()) == (9, f"{sorted(map(int, HANDLED))}\n")


def test_of_what_watches_a_command_only_the_main_thread_takes_signals(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = f"touch {ready}; read line"
    command = [sys.executable, "-m", "whyidle", "run", "--out", tmp_path / "run", "--", "sh", "-c", waits]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="3")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        wait_for(ready.exists)
        wait_for(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1)
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            if thread.name == str(process.pid):
                continue  # what is waited for is not blocked meanwhile
            status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            # Ignored is what whoever runs these tests has ignored.
            left = int(status["SigBlk"], 16) | int(status["SigIgn"], 16)
            assert all(left >> number - 1 & 1 for number in HANDLED), thread
        process.communicate(b"\n")


STOPS_TWICE = """
import os, signal, sys, time
from whyidle.terminal import child

class FromAShell(child.Signals):
    # Where this process would stand still, a shell has it go on. The first time Ctrl-Z is typed again before the
    # program is looked at.
    stops = 0

    def stop(self):
        self.stops += 1
        print("stop", self.stops, flush=True)
        if self.stops == 1:
            while signal.SIGTSTP not in signal.sigpending():
                time.sleep(0.01)
        else:
            os.kill(program.pid, signal.SIGCONT)

with FromAShell() as signals:
    stops = "import os, signal; os.kill(os.getpid(), signal.SIGTSTP)"
    program = child.start([sys.executable, "-c", stops], {}, signals)
    code = child.wait(program, signals)
print("ended", code, "after", signals.stops)
"""


def test_ctrl_z_typed_as_soon_as_a_program_goes_on_stops_it_again(tmp_path: Path) -> None:
    """The shell's SIGCONT and the new Ctrl-Z lie so close that the program has had both when we look at it."""
    script = tmp_path / "stops.py"
    script.write_text(STOPS_TWICE)
    with shell() as terminal:
        terminal.type((shlex.join([sys.executable, str(script)]) + "\r").encode())
        terminal.until("stop 1")
        terminal.type(b"\x1a")
        terminal.until("ended")
        terminal.until(PROMPT, terminal.raw.index(b"ended"))
        assert "ended 0 after 2" in terminal.raw.decode()
