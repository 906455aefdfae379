import pytest

from es.config import Config
from es.config.sources import (
    combine,
    complete,
    differences,
    read_config,
    read_flags,
    read_toml,
    write_toml,
)
from es.errors import UsageError
from tests.config.lines import parse


def test_later_layers_win(tmp_path):
    (tmp_path / "a.toml").write_text('lr = 2\nuseAdam = true\nenv-name = "A"\nworkers = "auto"')
    lower = read_toml(str(tmp_path / "a.toml")), {"sigma": 0.5, "lr": 0.3}
    config = combine(read_flags(["--env-name", "B"]), *lower)
    assert (config.sigma, config.lr, config.use_adam) == (0.5, 2.0, True)
    assert (config.env_name, config.workers, config.n) == ("B", "auto", 40)
    assert not combine(read_flags(["--no-useAdam"]), *lower).use_adam


CLIPUP = {"optimizer": "clipup", "max_speed": 0.3}


@pytest.mark.parametrize(
    ("flags", "file", "checkpoint", "expected"),
    [
        ("--useAdam", CLIPUP, {}, {"use_adam": True, "optimizer": None, "max_speed": None}),
        ("--optimizer adam", {}, CLIPUP, {"optimizer": "adam", "max_speed": None, "lr": 0.1}),
        ("", {"optimizer": "adam"}, {"use_adam": False, "momentum": 0.9}, {"momentum": 0}),
        ("--workers 0", {}, {"rollout_timeout": 60.0}, {"rollout_timeout": None}),
        ("--ray local", {"workers": 0}, {}, {"workers": None}),
        ("--variable-ep-len", {"training_ep_len": 9}, {}, {"training_ep_len": None}),
        (
            "--sampling gaussian",
            {"sigma_adapt": True, "sigma_lr": 0.2},
            {},
            {"sigma_adapt": False, "sigma_lr": 0.1},
        ),
        ("--hidden-sizes", {"activation": "tanh"}, {}, {"activation": "selu"}),
    ],
)
def test_a_setting_takes_back_what_has_no_use_beside_it_in_lower_layers(
    flags, file, checkpoint, expected
):
    config = combine(read_flags(flags.split()), file, checkpoint)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "file", "words"),
    [
        ("--rollout-timeout 5", {"workers": 0}, "--workers 0 is from --config a"),
        ("--momentum 0.9", CLIPUP, "--optimizer clipup is from --config a"),
        ("--n 10", {"top_directions": 9}, "--top-directions 9 is from --config a"),
        (
            "",
            CLIPUP | {"use_adam": True},
            "--optimizer clipup is from --config a; --useAdam is from --config a",
        ),
    ],
)
def test_a_rule_between_layers_that_is_broken_names_the_layer(flags, file, words):
    with pytest.raises(UsageError) as raised:
        combine(read_flags(["--config", "a", *flags.split()]), file)
    assert str(raised.value).endswith(f"; {words}")


def test_a_missing_checkpoint_may_hold_what_a_flag_needs():
    flags = read_flags(["--restore", "x", "--sigma-min", "0.01"])
    assert combine(flags).sigma_min == 0.01
    with pytest.raises(UsageError, match="is a limit for --sigma-decay"):
        combine(flags, {}, {"sigma_decay": 1.0})


@pytest.mark.parametrize("name", ["B", "A"])
def test_a_files_target_and_directory_hold_for_its_own_task(tmp_path, name):
    file = {"env_name": "A", "target_return": 5.0, "run_dir": "a", "n": 8}
    (tmp_path / "a.toml").write_text(write_toml(file))
    words = ["--config", str(tmp_path / "a.toml"), "--env-name", name]
    kept = {"env_name": "A", "n": 8} if name == "B" else file
    assert read_config(read_flags(words)) == kept
    assert read_config(read_flags(words[:2])) == file


def test_settings_survive_a_file(tmp_path):
    config = parse(
        ["--env-name", 'quo"ted\\ ü😀\x7f', "--useAdam", "--seed", "3", "--target-return", "1e-7",
         "--workers", "auto", "--max-minutes", "2",
         "--hidden-sizes", "3", "4", "--env-kwargs", "a=1", "b=x y", "--optimizer", "adam"]
    )  # fmt: skip
    (tmp_path / "a.toml").write_text(write_toml(config.saved()), encoding="utf-8")
    assert complete(read_toml(str(tmp_path / "a.toml"))) == config


def test_what_a_command_does_once_is_not_saved():
    config = parse(["--test", "--restore", "x", "--episodes", "3", "--no-render", "--override"])
    assert not {"test", "episodes", "no_render", "config"} & set(config.saved())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = ", "not valid TOML"),
        ("lr-decay = 0.9\nlr_decay = 0.8", "--lr-decay is set twice, as lr-decay and as lr_decay;"),
        ("\xff\xfe", "not valid TOML"),
        ("learning-rate = 1", "unknown setting 'learning-rate'; perhaps you meant lr"),
        ('lr = "fast"', "lr = 'fast': must be a valid number"),
        ("lr = true", "lr = True: must be a valid number"),
        ("n = 1", "--n 1: must be from 2"),
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
    with pytest.raises(UsageError, match=r"did you mean CartPole-v1\?$"):  # which is shipped
        read_toml("CartPol-v1")


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


def test_the_settings_of_the_algorithm_as_cells_of_a_table():
    cells = Config(hidden_sizes=(8, 4), use_adam=True, workers=3).hyperparameters()
    assert (cells["hidden_sizes"], cells["optimizer"], cells["lr"]) == ("8 4", "adam", 0.1)
    assert cells["sigma_min"] is None
    assert not {"workers", "use_adam", "run_dir"} & set(cells)
