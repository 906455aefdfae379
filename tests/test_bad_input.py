"""What a user types wrongly, through the command line."""

from pathlib import Path

import pytest


def unreadable(program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    Path("empty.pth").write_bytes(b"")
    Path("bad.toml").write_text("lr = 'fast'")
    Path("file").write_text("")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--n 7", "--n 7"),
        ("--lr nan", "--lr nan"),
        ("--env-name Pnog-v5", "--env-name Pnog-v5"),
        (
            "--env-name CartPole-v1 --env-kwargs nonsense=1",
            "--env-kwargs nonsense=1: cannot be made",
        ),
        ("--env-name CartPole-v1 --hidden-sizes 65536 65536", "4295491586 parameters"),
        ("--env-name CartPole-v1 --vbn", "--vbn"),
        ("--env-name CartPole-v1 --action-bins 3", "--action-bins 3"),
        ("--env-name CartPole-v1 --action-noise 0.1", "--action-noise 0.1"),
        ("--env-name CartPole-v1 --noop-max 3", "--noop-max 3"),
        ("--env-name CartPole-v1 --sticky-actions 0.25", "--sticky-actions 0.25"),
        ("--env-name PongDeterministic-v4 --obs-norm", "--obs-norm"),
        ("--env-name PongDeterministic-v4 --action-bins 3", "--action-bins 3"),
        ("--restore run/latest.pth --obs-norm", "--obs-norm True differs"),
        ("--restore run/latest.pth --vbn --override --max-gradient-updates 9", "--vbn"),
        ("--test --restore run/latest.pth --hidden-sizes 3", "--hidden-sizes 3 differs"),
        ("--env-name PongDeterministic-v4 --small-net", "--small-net"),
        ("--restore missing.pth", "missing.pth"),
        ("--restore empty.pth", "empty.pth"),
        ("--restore run", "--restore run"),
        ("--restore run/latest.pth --env-name Acrobot-v1", "--env-name Acrobot-v1 differs"),
        (
            "--restore run/latest.pth --env-name Acrobot-v1 --override --max-gradient-updates 9",
            "does not fit",
        ),
        ("--restore run/latest.pth --seed 2", "--seed 2 differs"),
        ("--test", "--restore"),
        ("--test --restore run/latest.pth --env-name Acrobot-v1", "--env-name Acrobot-v1"),
        ("--config missing.toml", "missing.toml"),
        ("--config bad.toml", "lr = 'fast'"),
        ("--small-net --env-name CartPole-v1 --workers 0 --run-dir file/run", "--run-dir file/run"),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(program, arguments, words):
    unreadable(program)
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    status, out, err = program("--max-gradient-updates", 1, "--workers", 0, *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before
