"""Real processes on a terminal: what it shows, and what its end does."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios

from tests.checkpoints import RUN, read, rows
from tests.conftest import ENDLESS
from tests.processes import ROOT
from tests.reports.test_outputs import LIMITED


def on_a_terminal(*arguments, columns=100, interrupt=b"", **variables):
    """Status and what a terminal was sent; it is interrupted once it has shown `interrupt`."""
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (30, columns))
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), *map(str, arguments)],
        stdout=terminal,
        stderr=terminal,
        env=os.environ
        | {"TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": f"{columns}", "LINES": "30"}
        | variables,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the program has closed the terminal
            break
        if interrupt and interrupt in shown:
            process.send_signal(signal.SIGINT)
            interrupt = b""
    os.close(master)
    return process.wait(), shown.decode()


def on_screen(text):
    """The lines that are there in the end, of a terminal of any height."""
    lines, at = [""], 0
    for part in re.split(r"(\n|\x1b\[1A|\x1b\[2K)", re.sub(r"\x1b\[[\d;?]*[mhl]|\r", "", text)):
        if part == "\n":
            at += 1
            lines += [""] * (at == len(lines))
        elif part == "\x1b[1A":
            at -= 1
        elif part == "\x1b[2K":
            lines[at] = ""
        else:
            lines[at] += part
    return lines


def test_a_terminal_shows_a_live_view_that_stays_in_place():
    status, text = on_a_terminal(
        *ENDLESS, "--max-gradient-updates", 9, "--eval-every", 5, "--eval-episodes", 3
    )
    assert status == 1
    assert "of 41 episodes" in text
    assert "Unperturbed rank" not in text
    lines = on_screen(text)
    assert lines[0] == "Training CartPole-v1 (MLP, workers: 41): starting ..."
    assert [line for line in lines if line.startswith("Num params in network: ")]
    (top,) = (at for at, line in enumerate(lines) if line.startswith("CartPole-v1  checkpoints"))
    assert [line for line in lines[:top] if "3 fresh episodes" in line]
    goal, cap, batch, figures, *curve = lines[top + 1 : top + 7]
    assert re.match("goal [━╸╺]{40} .* of 501.00 *$", goal)
    assert re.match("cap  ━{40} 100% 9 of 9 updates, 0:00:00 left *$", cap)
    assert re.match("update 9: 41 of 41 episodes  [0-9,]+ steps/s  elapsed .*$", batch)
    last = rows()[-1]
    assert f"return {float(last['return_mean']):.2f} ± {float(last['return_std']):.2f} " in figures
    assert f"rank {last['unperturbed_rank']} of 41" in figures
    assert all(re.fullmatch(r"[ ▁▂▃▄▅▆▇█]+ [\d.]+ *", line) for line in curve)
    closing = [line.split()[0] for line in lines[top + 7 :] if line]
    assert [word for word in closing if word[0].isupper()] == ["Restore", "Watch", "Target"]
    assert "Target not reached" in text.rstrip().splitlines()[-1]


def test_a_narrow_terminal_without_colours_or_unicode_is_served():
    status, text = on_a_terminal(
        *LIMITED, columns=40, interrupt=b"unperturbed ", LC_ALL="C", NO_COLOR="1"
    )
    assert status == 130
    assert text.isascii()
    assert not re.search(r"\x1b\[[\d;]*3\dm", text)
    lines = on_screen(text)
    assert len([line for line in lines if line.startswith("CartPole-v1 ")]) == 1
    longer = ("Training", "Interr", "  ", "Run")
    assert all(len(line) <= 40 for line in lines if not line.startswith(longer))
    watch, _, end, _ = [line for line in lines if line][-4:]
    assert watch == "Watch it:"
    assert end.startswith("Interrupted after ")


CLOSES_ITS_TERMINAL = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while not os.path.exists("checkpoints/CartPole-v1/latest.safetensors"):
    os.read(terminal, 65536)
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_terminal_that_is_closed_ends_the_run_as_a_signal_does():
    command = [str(ROOT / "main.py"), *map(str, ENDLESS)]
    done = subprocess.run(
        [sys.executable, "-c", CLOSES_ITS_TERMINAL, *command], check=False,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGHUP
    assert read(RUN / "latest.safetensors").counters.update == len(rows())
