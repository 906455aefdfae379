"""What a user types wrongly, through the command line."""

import json
import os
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from es.config import FIELDS, TYPES, flag

LONG = 300 * "a"  # too long for the name of a file


def unreadable(program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    Path("videos").mkdir()
    Path("empty.safetensors").write_bytes(b"")
    Path("bad.toml").write_text("lr = 'fast'")
    Path("file").write_text("")
    os.mkfifo("pipe.toml")
    Path("large.toml").write_text("#" * 2**20 + "\nlr = 0.5")


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
        ("--env-name Pendulum-v1 --env-kwargs g=1e999", "--env-name Pendulum-v1"),
        ("--env-name CartPole-v1 --hidden-sizes 65536 65536", "4295491586 parameters"),
        ("--env-name CartPole-v1 --vbn", "--vbn"),
        ("--env-name CartPole-v1 --action-bins 3", "--action-bins 3"),
        ("--env-name CartPole-v1 --action-noise 0.1", "--action-noise 0.1"),
        ("--env-name CartPole-v1 --noop-max 3", "--noop-max 3"),
        ("--env-name CartPole-v1 --sticky-actions 0.25", "--sticky-actions 0.25"),
        ("--env-name PongDeterministic-v4 --obs-norm", "--obs-norm"),
        ("--env-name PongDeterministic-v4 --action-bins 3", "--action-bins 3"),
        ("--restore run/latest.safetensors --obs-norm", "--obs-norm True differs"),
        ("--restore run/latest.safetensors --vbn --override --max-gradient-updates 9", "--vbn"),
        ("--test --restore run/latest.safetensors --hidden-sizes 3", "--hidden-sizes 3 differs"),
        ("--env-name PongDeterministic-v4 --small-net", "--small-net"),
        ("--restore missing.safetensors", "missing.safetensors"),
        ("--restore empty.safetensors", "empty.safetensors"),
        ("--restore videos", "--restore videos: holds no latest.safetensors"),
        ("--test --restore videos", "--restore videos: holds no checkpoint"),
        ("--restore run/latest.safetensors --env-name Acrobot-v1", "--env-name Acrobot-v1 differs"),
        (
            "--restore run/latest.safetensors --env-name Acrobot-v1 --override "
            "--max-gradient-updates 9",
            "does not fit",
        ),
        ("--restore run/latest.safetensors --seed 2", "--seed 2 differs"),
        ("--test", "--restore"),
        ("--test --restore run/latest.safetensors --wandb", "--wandb: is for training"),
        ("--test --restore run/latest.safetensors --env-name Acrobot-v1", "--env-name Acrobot-v1"),
        ("--config missing.toml", "missing.toml"),
        ("--config bad.toml", "lr = 'fast'"),
        ("--config large.toml", "large.toml: cannot be read (it is larger than 1 MiB)"),
        ("--config pipe.toml", "pipe.toml: cannot be read (it is not an ordinary file)"),
        ("--config /dev/zero", "/dev/zero: cannot be read (it is not an ordinary file)"),
        ("--small-net --env-name CartPole-v1 --workers 0 --run-dir file/run", "--run-dir file/run"),
        (f"--env-name {LONG}", f"--env-name {LONG}"),
        (f"--env-name {LONG}:Env-v0", f"--env-name {LONG}:Env-v0"),
        (f"--small-net --env-name CartPole-v1 --run-dir {LONG}", f"--run-dir {LONG}"),
        (f"--config {LONG}", f"--config {LONG}"),
        (f"--restore {LONG}", f"--restore {LONG}"),
        (f"--test --restore {LONG}", f"--restore {LONG}"),
        (f"--test --restore run/latest.safetensors --video {LONG}.mp4", f"--video {LONG}"),
    ],
    ids=lambda text: text.replace(LONG, "LONG"),
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


def below(name: str) -> list[Any]:
    """Numbers that a setting is too small for, where it has a least one."""
    check = FIELDS[name].metadata["check"]
    return [number for number in (-1, -0.5, 0, -(10**40)) if check and not check.passes(number)]


NUMBERS = [
    name for name, kind in TYPES.items()
    if {int, float} & {kind, *typing.get_args(kind)} and typing.get_origin(kind) is not tuple
]  # fmt: skip
WHOLE = [name for name in NUMBERS if float not in (TYPES[name], *typing.get_args(TYPES[name]))]
CHOICES = [name for name, kind in TYPES.items() if typing.get_origin(kind) is Literal]
words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1).filter(
    lambda text: not any(map(str.isdigit, text)) and text not in ("None", "auto", "inf", "nan")
)


@st.composite
def bad_settings(draw) -> tuple[str, Any]:
    """A setting, by its flag without the hyphens, and a value that it cannot have."""
    kind = draw(st.sampled_from(["word", "fraction", "below", "choice", "unknown", "endless"]))
    if kind == "unknown":
        known = {flag(name)[2:] for name in FIELDS} | {*FIELDS}
        name = draw(st.from_regex(r"[a-z][a-z-]{2,12}[a-z]", fullmatch=True))
        return ("un" + name if name in known else name), draw(st.integers(0, 9))
    if kind == "choice":
        name = draw(st.sampled_from(CHOICES))
        return flag(name)[2:], draw(words.filter(lambda w: w not in typing.get_args(TYPES[name])))
    if kind == "word":
        return flag(draw(st.sampled_from(NUMBERS)))[2:], draw(words)
    if kind == "fraction":
        return flag(draw(st.sampled_from(WHOLE)))[2:], draw(st.sampled_from([0.5, 1.5, 1e300]))
    if kind == "endless":
        names = [name for name in NUMBERS if name not in WHOLE]
        return flag(draw(st.sampled_from(names)))[2:], float(draw(st.sampled_from(["nan", "inf"])))
    name = draw(st.sampled_from([name for name in NUMBERS if below(name)]))
    return flag(name)[2:], draw(st.sampled_from(below(name)))


@pytest.mark.parametrize("source", ["command line", "file"])
@settings(
    max_examples=60, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(bad=bad_settings())
def test_a_bad_setting_is_one_line_and_touches_nothing(program, source, bad):
    name, value = bad
    if not Path("run").exists():
        program.train("--max-gradient-updates", 1, "--run-dir", "run")
    number = isinstance(value, float)  # TOML and JSON differ in how they spell nan and inf
    toml = str(value) if number else json.dumps(value, ensure_ascii=False)
    Path("bad.toml").write_text(f"{name} = {toml}")
    given = ("--config", "bad.toml") if source == "file" else (f"--{name}", value)
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    status, out, err = program("--small-net", "--env-name", "CartPole-v1", *given)
    assert (status, out) == (2, ""), err
    assert err.startswith("error: ")
    assert name in err
    assert err.count("\n") == 1
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


@settings(
    max_examples=40, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_file_given_as_settings_is_one_line(program, content):
    Path("bad.toml").write_bytes(b"lr = \n" + content)
    status, out, err = program("--config", "bad.toml")
    assert (status, out) == (2, "")
    assert err.startswith("error: --config bad.toml: is not valid TOML")
    assert err.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["bad.toml"]
