"""Command lines."""

import re
import subprocess
import sys

import pytest

from es.config import FIELDS, Config, flag
from es.config.elsewhere import NAMES, OURS
from es.config.validation import validate
from es.errors import UsageError
from tests.config.lines import parse
from tests.processes import ROOT, run_python

REFERENCE_DEFAULTS = {
    "--env-name": "PongDeterministic-v4",
    "--lr": 0.1,
    "--lr-decay": 1.0,
    "--sigma": 0.05,
    "--useAdam": False,
    "--n": 40,
    "--max-episode-length": 100_000,
    "--max-gradient-updates": 100_000,
    "--restore": "",
    "--small-net": False,
    "--variable-ep-len": False,
    "--silent": False,
    "--test": False,
}


def test_names_and_defaults_are_those_of_pytorch_es():
    ours = {flag(name): getattr(Config(), name) for name in FIELDS}
    assert {name: ours[name] for name in REFERENCE_DEFAULTS} == REFERENCE_DEFAULTS


def test_flags_are_read():
    config = parse(
        (
            "--env-name CartPole-v1 --small-net --useAdam --n 10 --lr 0.01 --workers auto --seed 7 "
            "--target-return -5.5 --run-dir here --no-variable-ep-len"
        ).split()
    )
    assert (config.env_name, config.small_net, config.use_adam) == ("CartPole-v1", True, True)
    assert (config.n, config.lr, config.workers, config.seed) == (10, 0.01, "auto", 7)
    assert (config.target_return, config.run_dir) == (-5.5, "here")
    assert parse(["--workers", "3"]).workers == 3


def test_flags_whose_words_come_bit_by_bit_may_be_repeated():
    config = parse(
        [
            "--env-wrapper", "a.b:C", "d=1", "--env-kwargs", "x=1", "--lr", "0.5", "--env_wrapper",
            "e:F", "--env-kwargs=y=--z",
        ]
    )  # fmt: skip
    assert config.env_wrapper == ("a.b:C", "d=1", "e:F")
    assert (config.env_kwargs, config.lr) == (("x=1", "y=--z"), 0.5)
    with pytest.raises(UsageError, match=r"--env-wrapper x=1: must be MODULE:CALLABLE"):
        validate(parse(["--env-wrapper", "x=1"]))


def test_an_error_is_one_line_where_boxes_cannot_be_drawn(monkeypatch):
    monkeypatch.setattr("tyro._fmtlib._should_use_utf8_drawing_chars", lambda: False)
    for arguments, message in (
        ("--sigma-mim 3", "Unrecognized options: --sigma-mim, 3; perhaps you meant --sigma-min"),
        ("--lr fast", "--lr: 'fast' is not a number; expected --lr FLOAT"),
    ):
        with pytest.raises(UsageError) as raised:
            parse(arguments.split())
        assert str(raised.value).startswith(message)


def test_flags_of_other_trainers_are_none_of_ours():
    ours = {*map(flag, FIELDS)}
    assert ours.issuperset(NAMES)
    assert not ours & OURS.keys()
    assert len(OURS) == sum(len(names.split()) for names in NAMES.values())


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ("/usr/bin/es", "es"),
        (str(ROOT / "main.py"), "main.py"),
        ("/x/es/__main__.py", "python -m es"),
        ("/of/a/user/main.py", "python -m es"),
        ("/usr/bin/pytest", "python -m es"),
    ],
)
def test_the_help_text_calls_the_program_as_it_was_started(started, name, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", [started])
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert f"usage: {name} " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--lr fast", "--lr: 'fast' is not a number; expected --lr FLOAT"),
        ("--seed 1.5", "'1.5' does not fit; expected --seed INT"),
        ("--workers many", "--workers: 'many' does not fit; expected --workers INT|{auto}"),
        (
            "--n 4 --hidden-sizes 64,64",
            "'64,64' does not fit; expected --hidden-sizes [INT [INT ...]]",
        ),
        ("--n", "--n needs a value: it must be from 2 to 1,000,000; see --help"),
        ("--ray", "--ray needs a value: it must be 'auto', 'local' or HOST:PORT of a cluster"),
        ("--lr-schedule", "--lr-schedule needs a value: one of constant, linear, cosine; see"),
        ("--config", "--config needs a value; see --help"),
        ("stray --n 2", "Unrecognized options: stray; see --help"),
        ("--no-small-net yes", "Unrecognized options: yes; see --help"),
        ("--sigma-mim 3", "--sigma-mim, 3; perhaps you meant --sigma-min FLOAT"),
        ("--env X", "Unrecognized options: --env, X; perhaps you meant --env-name"),
        ("--learning_rate=3", "perhaps you meant --lr"),
        ("--popsize 3 --logdir x --n 4", "perhaps you meant --n or --run-dir"),
        (
            "--sigm 3",
            "perhaps you meant --sigma FLOAT or --sigma-adapt, --no-sigma-adapt or",
        ),
        ("--n 4 --no-test", "Unrecognized options: --no-test; perhaps you meant --test"),
        (
            "--shaping Raw",
            "invalid choice 'Raw' for argument '--shaping'. Expected one of ('centered-rank', ",
        ),
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_line_that_cannot_be_read_is_one_line(
    arguments, message, terminal, monkeypatch, capfd
):
    monkeypatch.setenv("TERM", "xterm")  # for which tyro adds colours
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    with pytest.raises(UsageError) as raised:
        parse(arguments.split())
    assert message in str(raised.value)
    assert re.search(r"[\n\x1b│]", str(raised.value)) is None
    assert capfd.readouterr() == ("", "")


def test_help_is_grouped_complete_and_light():
    """It imports neither torch nor gymnasium, and so answers at once."""
    program = (
        "import sys; from main import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )
    result = run_python(program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("[]\n")
    for name in FIELDS:
        assert flag(name) in result.stdout
    assert "  python -m es --config CartPole-v1\n" in result.stdout
    for group in ("task", "algorithm", "ending", "evaluation", "run", "watching"):
        assert f"{group} options" in result.stdout


def test_every_flag_is_documented_with_its_default():
    text = (ROOT / "docs" / "flags.md").read_text()
    told = dict(re.findall(r"^\| `(--[\w-]+)` \| (.+?) \|", text, re.MULTILINE))
    assert set(told) == {flag(name) for name in FIELDS}
    for name, field in FIELDS.items():
        value = field.default
        if isinstance(value, bool):
            assert told[flag(name)] == "off"
        elif isinstance(value, int | float):
            assert float(told[flag(name)]) == value
        elif isinstance(value, str) and value:
            assert told[flag(name)] == f"`{value}`"


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
