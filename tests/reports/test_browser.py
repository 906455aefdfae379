"""What a user sees: TensorBoard's page of a run, in a browser without a window."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.checkpoints import rows
from tests.processes import wait_until

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LINES = """
    [...document.querySelectorAll('[title="returns/return_mean"]')].length
    ? [...document.querySelectorAll('line-chart svg path')].map(path => path.getAttribute('d')) : []
"""


@contextlib.contextmanager
def running(command, **options):
    """A process that does not outlive its use, nor do those that it starts."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def board(logdir):
    """The address of a TensorBoard."""
    command = (sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--port", "0")
    with (
        open("board.txt", "w+") as log,
        running((*command, "--host", "127.0.0.1", "--load_fast", "false"), stdout=log, stderr=log),
    ):

        def address():
            log.seek(0)
            return re.search(r"http://127\.0\.0\.1:\d+/", log.read())

        wait_until(address)
        yield address()[0]


@contextlib.contextmanager
def page(address):
    """A function that evaluates JavaScript on a page, through the browser's debugging pipe."""
    ours, theirs = os.pipe(), os.pipe()
    # Without 3D, TensorBoard draws lines as SVG, which can be looked at.
    command = (
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-3d-apis",
        f"--user-data-dir={os.getcwd()}/user", "--window-size=1200,1000",
        "--remote-debugging-pipe", address,
    )  # fmt: skip
    # The browser reads what is asked from its descriptor 3, and answers on 4.
    start = f"import os, sys; os.dup2({ours[0]}, 3); os.dup2({theirs[1]}, 4); " + (
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    numbers = itertools.count()

    def ask(method, **message):
        number = next(numbers)
        sent = json.dumps({"id": number, "method": method, **message})
        write.write(sent.encode() + b"\0")
        write.flush()
        answer = b""
        while True:
            piece = read.read(1)
            assert piece, "the browser has ended"
            if piece != b"\0":
                answer += piece
                continue
            if json.loads(answer).get("id") == number:
                return json.loads(answer)["result"]
            answer = b""

    with (
        open(theirs[0], "rb") as read,
        open(ours[1], "wb") as write,
        running(
            (sys.executable, "-c", start, *command),
            pass_fds=(ours[0], theirs[1]),
            stderr=subprocess.DEVNULL,
        ),
    ):
        os.close(ours[0])
        os.close(theirs[1])

        def tabs():
            found = ask("Target.getTargets")["targetInfos"]
            return [each["targetId"] for each in found if each["type"] == "page"]

        wait_until(tabs)
        target = {"targetId": tabs()[0], "flatten": True}
        session = ask("Target.attachToTarget", params=target)["sessionId"]

        def evaluate(expression):
            settings = {"expression": expression, "returnByValue": True}
            found = ask("Runtime.evaluate", sessionId=session, params=settings)
            return found["result"].get("value")

        yield evaluate


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed (apt-get install chromium)")
def test_tensorboard_shows_the_return_curve_in_a_browser(program):
    program.train("--max-gradient-updates", 30, "--lr", 0.5)
    returns = [float(row["return_mean"]) for row in rows()]
    with (
        board("checkpoints") as address,
        page(f"{address}?tagFilter=returns/return_mean#timeseries") as evaluate,
    ):

        def drawn():
            """Whether one of the lines is that of the returns, upside down and to some scale."""
            lines = [re.findall(r"[ML][-.\d]+,([-.\d]+)", line) for line in evaluate(LINES) or []]
            heights = [np.array(line, float) for line in lines if len(line) == len(returns)]
            return any(np.corrcoef(line, returns)[0, 1] < -0.999999 for line in heights)

        wait_until(drawn)
