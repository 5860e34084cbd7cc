"""Signals that are meant for a command, whichever thread of ours they come to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.fakes.driver import wait_for
from support.terminals import usual_signals

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


STARTS_A_THREAD = """
import signal, sys, threading

def look():
    print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))

class Library:
    def find_spec(self, name, path=None, target=None):
        if name == "whyidle.commands.main":
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

sys.meta_path.insert(0, Library())
sys.argv = ["whyidle", "--version"]
from whyidle.__main__ import main
try:
    main()
finally:
    look()
"""


def test_threads_that_libraries_start_when_they_are_imported_leave_signals_to_the_main_one() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS_A_THREAD], capture_output=True, text=True)
    theirs, _, main = done.stdout.splitlines()
    assert set(HANDLED) <= set(json.loads(theirs))
    assert json.loads(main) == []


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
