"""Real processes whose disk is full, or whose terminal or reader is gone."""

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import termios
import time

import pytest

from es.reports.append_only import Place
from es.reports.tensorboard import EVENTS, EventFile
from tests.checkpoints import RUN, has_rows, read, rows
from tests.conftest import ENDLESS
from tests.processes import ROOT, wait_until

LIMITED = ("--small-net", "--env-name", "CartPole-v1", "--n", 4, "--seed", 1, "--workers", 0)


@pytest.mark.picture
def test_a_run_outlives_a_full_disk_and_lacks_nothing_afterwards(start):
    """A limit on the size of files, which can be lifted again, stands for the disk."""
    process = start(*LIMITED, "--silent")
    wait_until(lambda: has_rows(RUN, 50))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    assert process.stderr is not None
    assert "cannot be written (File too large)" in process.stderr.readline()
    full = (RUN / "latest.safetensors").read_bytes()
    time.sleep(0.5)
    assert (RUN / "latest.safetensors").read_bytes() == full
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, endless)
    assert "is written now" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    updates = [int(row["update"]) for row in rows()]
    assert updates == list(range(1, read(RUN / "latest.safetensors").counters.update + 1))
    assert not list(RUN.glob("*.tmp"))


def test_a_run_whose_directory_was_moved_does_not_write_into_another(start, program):
    process = start(*LIMITED, "--silent")
    wait_until(lambda: has_rows(RUN, 20))
    away = RUN.rename(RUN.with_name("away"))
    assert process.stderr is not None
    assert "cannot be written" in process.stderr.readline()
    program.train("--max-gradient-updates", 2)
    time.sleep(0.3)
    assert read(RUN / "latest.safetensors").counters.update == len(rows()) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "latest.safetensors" in err.splitlines()[-1]
    assert "progress.csv" in err.splitlines()[-1]
    assert read(away / "latest.safetensors").counters.update <= len(rows(away))


def test_a_last_checkpoint_that_cannot_be_written_is_an_error(start):
    process = start(*LIMITED, "--max-gradient-updates", 20_000)
    wait_until(lambda: has_rows(RUN, 5))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.startswith("error: --run-dir checkpoints/CartPole-v1: after ")
    assert "latest.safetensors" in err
    assert "could not be written (File too large)" in err
    assert err.count("\n") == 1
    assert "--restore checkpoints/CartPole-v1/latest.safetensors" in err
    assert "Watch it" not in out
    assert 0 < read(RUN / "latest.safetensors").counters.update < int(err.split()[4])


@pytest.mark.parametrize("output", [">&-", ">/dev/full", ">/dev/full 2>&1", "2>&-", "<&- >&- 2>&-"])
def test_a_missing_or_full_output_loses_nothing_but_words(output):
    command = [sys.executable, str(ROOT / "main.py"), *map(str, LIMITED)]
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {output}', "sh", *command, "--max-gradient-updates", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0
    assert read(RUN / "latest.safetensors").counters.update == 1
    if output == ">/dev/full":
        warning, last_line = result.stderr.splitlines()
        assert warning == "warning: standard output cannot be written (No space left on device)"
        assert last_line.startswith("Finished: 1 update, ")
    else:
        assert result.stderr == ""


def test_a_mistake_has_its_status_whoever_reads_of_it():
    command = [sys.executable, str(ROOT / "main.py"), "--lr", "nope"]
    for output in ("2>/dev/full", "2>&-", ">&-"):
        shell = ["sh", "-c", f'exec "$@" {output}', "sh", *command]
        assert subprocess.run(shell, capture_output=True, check=False).returncode == 2


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
    assert re.match("cap  ━{40} 100% 9 of 9 updates *$", cap)
    assert re.match("update 9: 41 of 41 episodes  [0-9,]+ steps/s  elapsed .*  left 0:00", batch)
    last = rows()[-1]
    assert f"return {float(last['return_mean']):.2f} ± {float(last['return_std']):.2f} " in figures
    assert f"rank {last['unperturbed_rank']} of 41" in figures
    assert all(re.fullmatch(r"[ ▁▂▃▄▅▆▇█]+ [\d.]+ *", line) for line in curve)
    closing = [line.split()[0] for line in lines[top + 7 :] if line]
    assert closing == ["So", "Watch", "Target"]
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
    longer = ("Training", "Interr", "Watch", "Run")
    assert all(len(line) <= 40 for line in lines if not line.startswith(longer))
    assert lines[-2].startswith("Interrupted after ")
    assert lines[-3].startswith("Watch it: ")


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


def test_a_reader_that_leaves_ends_the_run_as_a_signal_does(start):
    process = start(*ENDLESS, "--workers", 0)
    assert process.stdout is not None
    next(line for line in process.stdout if line.startswith("Steps per second"))
    process.stdout.close()
    process.wait(60)
    assert process.returncode == 128 + signal.SIGPIPE
    assert process.stderr is not None
    (line,) = process.stderr.read().splitlines()
    assert line.startswith(f"Interrupted after {len(rows())} update")
    assert "Carry on: " in line


COMPLETES = """
source <("$1" "$2" --tyro-print-completion bash)
COMP_WORDS=(main.py --max-) COMP_CWORD=1; _tyro_main_py; echo "${COMPREPLY[@]}"
COMP_WORDS=(main.py --shaping "") COMP_CWORD=2; _tyro_main_py; echo "${COMPREPLY[@]}"
"""


def test_a_shell_completes_flags_and_their_values():
    command = ["bash", "-c", COMPLETES, "bash", sys.executable, str(ROOT / "main.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    flags, values = done.stdout.splitlines()
    assert {"--max-frames", "--max-minutes"} <= {*flags.split()}
    assert {"nes", "centered-rank"} <= {*values.split()}


def test_a_clock_that_is_set_back_keeps_the_order_of_event_files(tmp_path, monkeypatch):
    """TensorBoard would read what purges older events before them."""
    later = tmp_path / f"{EVENTS}.{time.time_ns()}.host.1"
    for path in (later, tmp_path / f"{EVENTS}.of.somebody.else"):
        path.touch()
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    EventFile(Place(tmp_path), purge_step=3).close()
    made = {path.name for path in tmp_path.glob(f"{EVENTS}.1*")} - {later.name}
    assert len(made) == 1
    assert min(made) > later.name
