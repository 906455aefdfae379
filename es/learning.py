"""learn: train from a script or a notebook, as the command line does."""

import inspect
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from es.config import FIELDS, TYPES, Config
from es.errors import Interrupted, UsageError
from es.host import COMMAND_LINE, Host, HostInterrupts, HostState
from es.kernels import TELL
from es.noise import DoubleArray
from es.reports import NO_CURVE, one_shot
from es.rollouts.processes import PRELOAD, modules_for_workers, search_last
from es.rollouts.remote import ByValue, RemotePool
from es.rollouts.tasks import Pool, Recipe
from es.settings import KEYWORDS, errors_in_keywords, from_keywords, read_config, resolve

if TYPE_CHECKING:  # torch and rich are imported while the pool's processes import theirs
    from es.checkpoint import Checkpoint
    from es.loading import Policy
    from es.reports.record import Record
    from es.train import Trainer

Callback = Callable[["Record", "Policy"], Any]
_starting = threading.RLock()  # parameters are drawn with torch's shared generator


@dataclass(frozen=True)
class LearnedRun:
    """What a training came to.

    solved: whether the policy has reached `target_return`. path: the run's directory. history: the
    columns of its progress.csv, by name, with one number for each update.
    """

    solved: bool
    path: Path
    history: dict[str, DoubleArray] = field(repr=False)
    _checkpoint: "Checkpoint" = field(repr=False)

    @cached_property
    def policy(self) -> "Policy":
        """Return the last policy; `load_policy(run.path / "best.safetensors")` is the best one."""
        from es.loading import make_policy

        assert self._checkpoint.config is not None
        return make_policy(self._checkpoint.config, self._checkpoint)


def learn(*, callback: Callback | None = None, **settings: Any) -> LearnedRun:
    """Train until an ending condition is met, as `python main.py` does with these flags.

    settings: `env_name="CartPole-v1"`, `target_return=475`, and so on: every flag but those that
    play a policy, with underscores. `env_name` may be an environment that this program has
    registered, or its class or function, and what a flag names as MODULE:NAME may be the object
    itself; all this is handed to the worker processes. `env_kwargs` may be a dict.
    callback: called after each update with its figures (the columns of progress.csv as attributes)
    and the policy, which is the same object each time; the run ends if it returns False.

    Raise UsageError for settings that do not fit, before anything on the disk has changed, and
    RunError for what goes wrong later. Ctrl-C saves the run and raises KeyboardInterrupt. No
    process or thread is left behind, except wandb's own, which end with the program.
    """
    with errors_in_keywords(), HostState() as host, ExitStack() as stack:
        _check_callback(callback)
        if callable(settings.get("env_name")):
            from es.environments.handed import register_creator

            settings["env_name"] = register_creator(settings["env_name"])
        given, objects = from_keywords(settings)
        config, checkpoint = resolve(given, read_config(given))
        if config.user_modules:
            search_last()
        process = _start_process(config, stack)
        if not os.environ.get(NO_CURVE):
            stack.callback(one_shot.discard)
            with suppress(OSError):  # then the picture is drawn later
                one_shot.prepare("matplotlib.figure", "matplotlib.backends.backend_agg")
        host.libraries()
        from es import train
        from es.reports.host_terminal import HostTerminal

        starting = stack.enter_context(ExitStack())
        starting.enter_context(_starting)

        def started(make: Callable[..., Pool], recipe: Recipe, **settings: Any) -> Pool:
            starting.close()
            recipe = _by_value(recipe, config.env_name, objects)
            return (process.open if process else COMMAND_LINE.open_pool)(make, recipe, **settings)

        try:
            with HostInterrupts() as interrupts:
                chosen = Host(HostTerminal, started, _Follower(callback))
                outcome = train.train(config, checkpoint, interrupts, chosen)
        except Interrupted as error:
            raise KeyboardInterrupt from error
        if outcome.status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if outcome.status > 128:
            raise BrokenPipeError("nobody reads the output")
        history = _read_history(outcome.path)
    return LearnedRun(outcome.solved, outcome.path, history, outcome.checkpoint)


class _Follower:
    """Calls the callback with the policy after each update."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self._policy: Policy | None = None

    def __call__(self, record: "Record", trainer: "Trainer") -> Any:
        if self._callback is None:
            return None
        if self._policy is None:
            from es.loading import make_policy

            self._policy = make_policy(trainer.config, trainer.saved)
        normalizer = trainer.normalizer
        statistics = normalizer.statistics() if normalizer else None
        self._policy.bind(trainer.strategy.theta.copy(), statistics, trainer.counters)
        answer = self._callback(record, self._policy)
        return bool(answer) if isinstance(answer, np.bool_) else answer


def _check_callback(callback: Any) -> None:
    """Raise UsageError for what cannot be called with two arguments, before minutes of training."""
    try:
        if callback is not None:
            inspect.signature(callback).bind("row", "policy")
    except ValueError:  # a builtin
        pass
    except TypeError as error:
        raise UsageError(
            f"callback={callback!r}: must be a function of an update's row and the policy ({error})"
        ) from error


def _start_process(config: Config, stack: ExitStack) -> RemotePool | None:
    """Start the pool's process, which `stack` ends. Return None if it is not this machine's pool.

    It imports the simulator and other modules for workers while this process does other things.
    """
    if config.workers == 0 or config.ray:
        return None
    variables = {PRELOAD: config.env_name, TELL: "" if config.silent else "1"}
    process = RemotePool(modules_for_workers(config.net), variables)
    stack.callback(process.close)
    return process


def _by_value(recipe: Recipe, env_name: str, objects: Mapping[str, Any]) -> Recipe:
    """Return a recipe that can be pickled, with the objects that this program has defined."""
    import gymnasium

    from es.environments.handed import make_registered

    make_env: Callable[[], Any] = recipe.make_env
    with suppress(gymnasium.error.Error):  # a name that `es.envs` translates, or in a module
        make_env = partial(make_registered, gymnasium.spec(env_name), make_env)
    try:
        return recipe._replace(
            make_env=ByValue(make_env, objects), make_actor=ByValue(recipe.make_actor, objects)
        )
    except Exception as error:  # cloudpickle raises many kinds
        raise UsageError(
            f"env_name={env_name}: cannot be handed to worker processes ({error}); define it in a "
            "module of its own, or use workers=0"
        ) from error


def _read_history(path: Path) -> dict[str, DoubleArray]:
    import numpy as np

    from es.reports.record import COLUMNS
    from es.reports.tables import TableReader
    from es.runs.directory import PROGRESS

    rows: list[dict[str, float]] = []
    with suppress(FileNotFoundError):  # a checkpoint that lies alone
        rows += TableReader(path / PROGRESS, COLUMNS).new_rows()
    return {name: np.array([row[name] for row in rows]) for name in COLUMNS}


learn.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (
            ("callback", None, Callback | None),
            *((name, FIELDS[name].default, TYPES[name]) for name in KEYWORDS),
        )
    ],
    return_annotation=LearnedRun,
)
