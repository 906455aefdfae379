import re

import pytest

from es.config import FIELDS, Config, flag
from es.config.sources import differences, parse, read_toml, write_toml
from es.config.validation import validate
from es.errors import UsageError
from tests.conftest import ROOT, run_python

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


def test_later_layers_win(tmp_path):
    (tmp_path / "a.toml").write_text('lr = 2\nuseAdam = true\nenv-name = "A"\nworkers = "auto"')
    layers = {"sigma": 0.5, "lr": 0.3} | read_toml(str(tmp_path / "a.toml"))
    config = parse(["--env-name", "B"], layers)
    assert (config.sigma, config.lr, config.use_adam) == (0.5, 2.0, True)
    assert (config.env_name, config.workers, config.n) == ("B", "auto", 40)
    assert not parse(["--no-useAdam"], layers).use_adam


def test_settings_survive_a_file(tmp_path):
    config = parse(
        ["--env-name", 'quo"ted\\ ü😀\x7f', "--useAdam", "--seed", "3", "--target-return", "1e-7",
         "--workers", "auto", "--max-minutes", "2",
         "--hidden-sizes", "3", "4", "--env-kwargs", "a=1", "b=x y", "--optimizer", "adamw"]
    )  # fmt: skip
    (tmp_path / "a.toml").write_text(write_toml(config.saved()), encoding="utf-8")
    assert parse([], read_toml(str(tmp_path / "a.toml"))) == config


def test_what_a_command_does_once_is_not_saved():
    config = parse(["--test", "--restore", "x", "--episodes", "3", "--no-render", "--override"])
    assert not {"test", "episodes", "no_render", "config"} & set(config.saved())


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
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_one_line_with_flag_and_value(arguments):
    name, _, value = arguments.replace("=", " ").partition(" ")
    with pytest.raises(UsageError) as raised:
        validate(parse(arguments.split(" ") if "=" not in arguments else [arguments]))
    message = str(raised.value)
    assert message.startswith(f"{name} ")
    assert value.lstrip("-").strip() in message
    assert "must" in message
    assert "\n" not in message


def test_test_needs_a_checkpoint():
    with pytest.raises(UsageError, match="--restore"):
        validate(parse(["--test"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--lr fast", "--lr: could not convert string to float: 'fast'; expected --lr FLOAT"),
        ("--seed 1.5", "['1.5']; expected --seed INT"),
        ("--workers many", "['many']; expected --workers INT|{auto}"),
        ("--n 4 --hidden-sizes 64,64", "['64,64']; expected --hidden-sizes [INT [INT ...]]"),
        ("--n", "Missing value for argument '--n'. Expected 1 values; see --help"),
        ("stray --n 2", "Unrecognized options: stray; see --help"),
        ("--no-small-net yes", "Unrecognized options: yes; see --help"),
        ("--sigma-mim 3", "--sigma-mim, 3; perhaps you meant --sigma-min FLOAT"),
        ("--sigm 3", "perhaps you meant --sigma FLOAT or --sigma-decay FLOAT or --sigma-min FLOAT"),
        ("--n 4 --no-test", "Unrecognized options: --no-test; perhaps you meant --test"),
        ("--shaping Raw", "invalid choice 'Raw' for argument '--shaping'. Expected one of ('"),
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = ", "not valid TOML"),
        ("lr-decay = 0.9\nlr_decay = 0.8", "--lr-decay is set twice, as lr-decay and as lr_decay;"),
        ("\xff\xfe", "not valid TOML"),
        ("learning-rate = 1", "unknown setting 'learning-rate'"),
        ('lr = "fast"', "lr = 'fast': must be a valid number"),
        ("lr = true", "lr = True: must be a valid number"),
        ("n = 4.5", "n = 4.5: must be a valid integer"),
        ("small-net = 1", "small-net = 1: must be a valid boolean"),
        ('workers = "many"', "workers = 'many': must be 'auto' or a valid integer"),
        ("workers = true", "workers = True"),
        ("[lr]\na = 1", "lr = {'a': 1}: must be a valid number"),
        (f"lr = 1{'0' * 400}", "must be a valid number"),
        (f"lr{'.a' * 2000} = 1", "must be a valid number"),
        (f"n = 1{'0' * 5000}", "not valid TOML"),
        (f"n = {'[' * 5000}", "not valid TOML"),
        ("hidden-sizes = 64", "hidden-sizes = 64: must be a valid list"),
        ("hidden-sizes = [6.4]", "hidden-sizes = [6.4]: must be a valid integer"),
        ("env-kwargs = [1]", "env-kwargs = [1]: must be a valid string"),
        ("shaping = 'rank'", "shaping = 'rank': must be 'nes', 'centered-rank', "),
        ("test = true", "--test belongs on the command line"),
        ('config = "b.toml"', "--config belongs on the command line"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, words):
    path = tmp_path / "a.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as raised:
        read_toml(str(path))
    assert str(raised.value).startswith(f"--config {path}: ")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_one_line(tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(UsageError, match=r"--config .*cannot be read \([^)]*\)$"):
            read_toml(str(path))
    (tmp_path / "CartPole-v1.toml").touch()
    for wrong in ("CartPole-v1", "CartPole.toml"):
        with pytest.raises(UsageError, match=r"did you mean .*/CartPole-v1\.toml\?$"):
            read_toml(str(tmp_path / wrong))


def test_only_settings_of_the_algorithm_count_as_different():
    config = parse("--lr 0.2 --workers 3 --max-gradient-updates 9 --silent --seed 4".split())
    own = Config(seed=4)
    assert differences(config, own) == ["--lr 0.2 differs from the checkpoint's 0.1"]
    assert differences(config, own, ["env_name"]) == []


def test_settings_that_were_left_at_their_default_count_too():
    own = Config(seed=4)
    for arguments, words in (
        ("--top-directions 3", "--top-directions 3 differs from the checkpoint's None"),
        ("--hidden-sizes 3", "--hidden-sizes 3 differs from the checkpoint's 64 64"),
        ("--optimizer adam", "--optimizer adam differs from the checkpoint's None"),
    ):
        assert differences(parse([*arguments.split(), "--seed", "4"]), own) == [words]
    adam = Config(seed=4, use_adam=True)
    assert differences(parse(["--optimizer", "adam", "--seed", "4"]), adam) == []
    assert differences(parse(["--optimizer", "sgd", "--seed", "4"]), own) == []


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


def test_the_settings_of_the_algorithm_as_cells_of_a_table():
    cells = Config(hidden_sizes=(8, 4), use_adam=True, workers=3).hyperparameters()
    assert (cells["hidden_sizes"], cells["optimizer"], cells["lr"]) == ("8 4", "adam", 0.1)
    assert cells["sigma_min"] is None
    assert not {"workers", "use_adam", "run_dir"} & set(cells)
