"""Values, and combinations of them."""

import math

import pytest

from es.config import FIELDS, TYPES, flag
from es.config.option import Check
from es.config.validation import require, validate
from es.errors import UsageError
from tests.config.lines import parse


def check_of(name: str) -> Check:
    return FIELDS[name].metadata["check"] or Check(bool, "")


@pytest.mark.parametrize(
    "arguments",
    [
        "--n 7", "--n 0", "--n -2", "--lr 0", "--lr -1", "--lr nan", "--lr inf", "--lr-decay 0",
        "--lr-decay -0.5", "--lr 1e+300", "--sigma 1e-300", "--lr-decay 1e+200", "--sigma 0",
        "--sigma nan", "--max-episode-length 0", "--workers 99999999999999999999",
        "--max-gradient-updates 0", "--max-gradient-updates -3", "--max-frames 0",
        "--max-minutes 0", "--max-minutes inf", "--target-return nan", "--eval-episodes 0",
        "--eval-every 0", "--save-every -1", "--seed -1", "--workers -1", "--episodes 0",
        "--env-name=", "--env-name= ", "--run-dir=", "--frame-skip 0", "--noop-max -1",
        "--sticky-actions 1.5", "--reward-shift 1e+300", "--hidden-sizes 0",
        "--hidden-sizes 64 -3", "--action-bins 1", "--action-noise -1.0", "--sigma-decay 1.5",
        "--sigma-decay 0.0", "--sigma-min 0.0", "--momentum 1.0", "--momentum -0.5",
        "--weight-decay -1.0", "--top-directions 0", "--episodes-per-perturbation 0",
        "--param-fraction 0.0", "--param-fraction 1.5", "--env-kwargs g",
        "--env-wrapper a.b.C", "--env-wrapper a:b c", "--env-wrapper a:b:c",
        "--max-episode-length 9007199254740993", "--target-return -1e+300",
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_one_line_with_flag_and_value(arguments):
    name, _, value = arguments.replace("=", " ").partition(" ")
    with pytest.raises(UsageError) as raised:
        validate(parse(arguments.split(" ") if "=" not in arguments else [arguments]))
    message = str(raised.value)
    assert len(message) < 300
    assert message.startswith(f"{name} ")
    assert value.lstrip("-").strip() in message
    assert "must" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", [name for name in FIELDS if check_of(name).bounds])
def test_a_range_includes_its_ends_and_nothing_beyond(name):
    check, whole = check_of(name), TYPES[name] in (int, int | None)
    assert check.bounds
    for bound, side in zip(check.bounds, (-1, 1), strict=True):
        beyond = bound + side if whole else math.nextafter(bound, side * math.inf)
        require(flag(name), bound, check)
        with pytest.raises(UsageError):
            require(flag(name), beyond, check)


def test_whole_numbers_have_bounds():
    """Those of a file have 64 bits, and TensorBoard's have 53."""
    unbounded = [
        name
        for name, kind in TYPES.items()
        if kind in (int, int | None) and not check_of(name).bounds
    ]
    assert unbounded == []


def test_test_needs_a_checkpoint():
    with pytest.raises(UsageError, match="--restore"):
        validate(parse(["--test"]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--n 7", "--n 7"),
        ("--useAdam --optimizer sgd", "--useAdam contradicts --optimizer sgd"),
        ("--optimizer adam --momentum 0.9", "--momentum 0.9"),
        ("--sampling gaussian --top-directions 2", "--top-directions 2"),
        ("--n 10 --top-directions 6", "--top-directions 6: must be at most half of --n 10"),
        ("--sigma-min 0.01", "--sigma-min 0.01: is a limit for --sigma-decay"),
        ("--sigma-min 1 --sigma-decay 0.9", "--sigma-min 1.0: must be at most --sigma 0.05"),
        ("--variable-ep-len --adaptive-ep-len", "give one"),
        ("--training-ep-len 9 --adaptive-ep-len", "give one"),
        ("--hidden-sizes --activation tanh", "--activation tanh"),
        ("--episodes 3", "--episodes 3: is for --test"),
        ("--no-render", "--no-render: is for --test"),
    ],
)
def test_settings_that_do_not_go_together(arguments, words):
    with pytest.raises(UsageError) as raised:
        validate(parse(arguments.split()))
    assert words in str(raised.value)


def test_settings_that_go_together():
    for arguments in (
        "--n 7 --sampling gaussian", "--useAdam --optimizer adam", "--n 10 --top-directions 5",
        "--sigma-min 0.01 --sigma-decay 0.9", "--optimizer sgd --momentum 0.9", "--hidden-sizes",
    ):  # fmt: skip
        validate(parse(arguments.split()))
