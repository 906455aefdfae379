"""How large the program is, and how many files one has to read to follow it.

python -m benchmarks.size [FOLDER]   FOLDER: a checkout of another commit, to compare with

It counts lines of Python and prose, and runs two short commands under a profiler to count the files
of `es/` whose code they execute: an update of a run in this process, and `--test --video` of its
checkpoint. `lr`: the files that name the learning rate.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

RUN = ("--small-net", "--env-name", "CartPole-v1", "--n", "4", "--workers", "0", "--seed", "1")
PROFILED = """
import sys, threading
root, out, begin, *arguments = sys.argv[1:]
files = set()
def note(frame, event, argument):
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    # What a module does when it is imported is no step of the work.
    if event == "call" and path.startswith(root + "/es/") and name != "<module>":
        files.add(path)
    if event == "call" and name == begin:
        files.clear()
sys.path.insert(0, root)
sys.argv = ["main.py", *arguments]
threading.setprofile(note)
sys.setprofile(note)
from es.cli import main
main(arguments)
sys.setprofile(None)
open(out, "w").write("\\n".join(files))
"""


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    product = [*root.glob("*.py"), *root.glob("es/**/*.py")]
    pages = [*root.glob("docs/*.md")]
    print(f"product code: {_lines(product)} lines, {len(product)} files")
    print(f"tests: {_lines(root.glob('tests/**/*.py'))} lines")
    print(f"benchmarks: {_lines(root.glob('benchmarks/*.py'))} lines of Python")
    print(f"README: {_lines([root / 'README.md'])} lines")
    print(f"docs: {_lines(pages)} lines, {len(pages)} pages")
    named = [path for path in product if re.search(r"\blr\b", path.read_text())]
    print(f"files that name lr: {len(named)}")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        train = (*RUN, "--max-gradient-updates", "2", "--run-dir", run)
        print(f"files of one update: {_executed(root, 'update', *train)}")
        video = ("--test", "--restore", run / "latest.safetensors", "--video", run / "film.mp4")
        print(f"files of --test --video: {_executed(root, '', *video)}")


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _executed(root: Path, begin: str, *arguments: object) -> int:
    """Return how many files of `es/` a command executes, from the first call of `begin` on."""
    with tempfile.NamedTemporaryFile("r") as out:
        words = [sys.executable, "-c", PROFILED, root, out.name, begin, *arguments]
        subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd="/")
        return len(out.read().split())


if __name__ == "__main__":
    main()
