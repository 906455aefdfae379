"""learn: train from a script or a notebook, as the command line does.

The trainer runs in a child process, unchanged. The callback and the output stay in the caller's
process. One pipe joins both: the child sends its settings, calls of the console and, for a
callback, rows, and in the end `Done` or an error. The caller answers the settings with what its
program defines, and a row with whether the run goes on.

This module is not called `learn`, since its import would then replace the function `es.learn`.
"""

import inspect
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from es import cli
from es.algorithm.noise import DoubleArray, FloatArray
from es.checkpoint import Counters
from es.config import FIELDS, Config
from es.errors import Interrupts, RunError, UsageError, naming_limits
from es.rollouts.processes import connect_to_starter, leave, limit_threads, start_interpreter
from es.settings import KEYWORDS, errors_in_keywords, from_keywords, read_config, resolve

if TYPE_CHECKING:  # torch and rich, which the caller may not need
    from es.policy import LoadedPolicy
    from es.reports.console import Console
    from es.reports.log import Record
    from es.rollouts.tasks import Recipe
    from es.train import Trainer

Callback = Callable[["Record", "LoadedPolicy"], Any]
CHILD = (  # no traceback if Ctrl-C comes during the imports
    "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "from es.learning import child; child()"
)
CLOSE_SECONDS = 10.0
_in_child = threading.Event()  # set in the process of a training


# ---- what the child sends, beside Config and RunError ----


class Shown(NamedTuple):
    """A call of the console."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


class Row(NamedTuple):
    """An update, for the callback.

    theta: (P,) float32. statistics: as a `Snapshot` has them. checkpoint: pickled, in the first row
    of a phase.
    """

    record: "Record"
    counters: Counters
    theta: FloatArray
    statistics: DoubleArray | None
    checkpoint: bytes | None


class Done(NamedTuple):
    """The end of the training. checkpoint: pickled."""

    status: int
    path: Path
    solved: bool
    checkpoint: bytes


Message = Config | Shown | Row | Done | RunError
Follow = Callable[[Row], bool]


# ---- the caller ----


@dataclass(frozen=True)
class LearnedRun:
    """The result of a training.

    solved: whether the policy has reached `target_return`. path: the run's directory. history: the
    columns of its progress.csv, by name, with one number for each update.
    """

    solved: bool
    path: Path
    history: dict[str, DoubleArray] = field(repr=False)
    _checkpoint: bytes = field(repr=False)

    @cached_property
    def policy(self) -> "LoadedPolicy":
        """Return the last policy; `load_policy(run.path / "best.safetensors")` is the best one."""
        return _load_policy(self._checkpoint)


def _with_signature(function: Callable[..., LearnedRun]) -> Callable[..., LearnedRun]:
    """Give `learn` the signature that `help` and completion show."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (
            ("callback", None, Callback | None),
            *((name, FIELDS[name].default, FIELDS[name].type) for name in KEYWORDS),
        )
    ]
    signature = inspect.Signature(parameters, return_annotation=LearnedRun)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


@_with_signature
def learn(*, callback: Callback | None = None, **settings: Any) -> LearnedRun:
    """Train until an ending condition is met, as `python main.py` does with these flags.

    settings: `env_name="CartPole-v1"`, `target_return=475`, and so on: every flag but those that
    play a policy, with underscores. `env_name` may be an environment that this program has
    registered, or its class or function, and what a flag names as MODULE:NAME may be the object
    itself. All this is sent to the worker processes. `env_kwargs` may be a dict.
    callback: called after each update with its figures (the columns of progress.csv as attributes)
    and the policy, which is the same object throughout a phase. The run ends if it returns False.

    The training runs in a process of its own. With `workers=0` everything runs in this process
    instead, for debuggers: it then changes generators, environment variables and log levels here.

    Raise UsageError for settings that do not fit, before anything on the disk has changed, and
    RunError for what goes wrong later. Ctrl-C saves the run and raises KeyboardInterrupt.
    """
    if _in_child.is_set():  # or each child would start the next one
        raise UsageError(
            "learn() was called by a module that a training imports. Put the call under "
            "if __name__ == '__main__':"
        )
    with errors_in_keywords():
        if callable(settings.get("env_name")):
            from es.envs import register_creator

            settings["env_name"] = register_creator(settings["env_name"])
        given = from_keywords(settings)
        follow = _following(callback) if callback else None
        here = given.get("workers") == 0
        if here:  # Ctrl-C raises KeyboardInterrupt, as a debugger expects
            done = _train(given, Interrupts(), follow, _make_console)
        else:
            done = _Child(given, follow).run()
    if done.status > 128:
        raise KeyboardInterrupt
    return LearnedRun(done.solved, done.path, _read_history(done.path), done.checkpoint)


def _make_console(config: Config) -> "Console":
    from es.reports.console import Console

    return Console(silent=config.silent, log_every=config.log_every, in_program=True)


def _following(callback: Callback) -> Follow:
    """Return what calls the callback with a row's policy, and returns whether the run goes on."""
    policy: LoadedPolicy | None = None

    def follow(row: Row) -> bool:
        nonlocal policy
        if row.checkpoint is not None:
            policy = _load_policy(row.checkpoint)
        assert policy is not None
        policy.bind(row.theta, row.statistics, row.counters)
        answer = callback(row.record, policy)
        return not isinstance(answer, bool | np.bool_) or bool(answer)

    return follow


class _Child:
    """The child process of a training."""

    def __init__(self, given: dict[str, Any], follow: Follow | None) -> None:
        self._given, self._follow = given, follow
        self._console: Console | None = None

    def run(self) -> Done:
        """Train; return the end. Raise RunError, and what the callback or Ctrl-C raises."""
        self._process, self._link = start_interpreter(CHILD)
        try:
            return self._serve()
        except BaseException:
            self._interrupt()
            raise
        finally:
            self._end()

    def _serve(self) -> Done:
        """Answer the child until it is done; raise its RunError, or one if it dies."""
        self._answer((self._given, self._follow is not None))
        while message := self._receive():
            if isinstance(message, Done):
                return message
            if isinstance(message, RunError):
                raise message
            if isinstance(message, Shown):
                self._show(message)
            elif isinstance(message, Config):
                self._answer(_pickle_definitions(message))
                self._console = _make_console(message)
            else:
                assert self._follow
                self._answer(self._follow(message))
        code = self._process.wait()
        raise RunError(
            f"the training process died (exit code {code}). Continue from its run directory: "
            "learn(restore=DIRECTORY)"
        )

    def _receive(self) -> Message | None:
        """Return the next message, or None if the child has died."""
        with suppress(EOFError, OSError):  # in the middle of a message, too
            return self._link.recv()
        return None

    def _answer(self, answer: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `_receive` notices
            self._link.send(answer)

    def _show(self, call: Shown) -> None:
        getattr(self._console, call.method)(*call.arguments, **call.keywords)

    def _interrupt(self) -> None:
        """Have the child save the run and end; show its last lines."""
        self._process.send_signal(signal.SIGINT)
        try:
            while (message := self._receive()) and not isinstance(message, Done | RunError):
                if isinstance(message, Shown):
                    with suppress(OSError):
                        self._show(message)
        except KeyboardInterrupt:  # again
            self._process.kill()

    def _end(self) -> None:
        if self._console:
            with suppress(OSError):
                self._console.stop()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers then end by themselves
            self._process.wait()
        self._link.close()


def _pickle_definitions(config: Config) -> bytes:
    """Return the named objects of `__main__` and the environment's registration, by value."""
    import cloudpickle

    gymnasium = sys.modules.get("gymnasium")  # or this program has registered nothing
    spec = gymnasium.registry.get(config.env_name) if gymnasium else None
    creator = spec and spec.entry_point
    words = [word for each in config.user_modules.values() for word in each]
    words.append(creator if isinstance(creator, str) else getattr(creator, "__module__", ""))
    names = [word.removeprefix("__main__:") for word in words if word.startswith("__main__:")]
    main = vars(sys.modules["__main__"])
    found = {name: main[name] for name in names if name in main}
    if any(word.startswith("__mp_main__") for word in words):
        raise UsageError(
            f"env_name={config.env_name}: in a process that multiprocessing has started, what the "
            "script itself defines cannot be sent on. Define it in a module"
        )
    try:
        return cloudpickle.dumps((found, spec))
    except Exception as error:  # cloudpickle raises many kinds
        raise UsageError(
            f"env_name={config.env_name} cannot be sent to another process ({error}). Define it in "
            "a module, or give workers=0"
        ) from error


def _load_policy(checkpoint: bytes) -> "LoadedPolicy":
    from es.policy import LoadedPolicy, make_policy

    restored = pickle.loads(checkpoint)  # noqa: S301 (from our child)
    return LoadedPolicy(make_policy(restored.config, restored), restored)


def _read_history(path: Path) -> dict[str, DoubleArray]:
    from es.reports import PROGRESS
    from es.reports.log import COLUMNS
    from es.reports.plot import read_table

    with suppress(FileNotFoundError):  # a checkpoint that lies alone
        return read_table(path / PROGRESS)
    return {name: np.empty(0) for name in COLUMNS}


# ---- the child ----


def child() -> None:
    """Train for the program that has started this process by `start_interpreter`."""
    _in_child.set()
    lock = threading.Lock()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(message: Message) -> None:
        with lock:  # warnings come from other threads
            link.send(message)

    def follow(row: Row) -> bool:
        send(row)
        with interrupts.allowed():
            return answers.get()

    def make_console(config: Config) -> ConsoleOfCaller:
        send(config)
        return ConsoleOfCaller(send, silent=config.silent)

    with suppress(EOFError, OSError), Interrupts() as interrupts:  # the caller may end
        link = connect_to_starter()
        given, follows = link.recv()
        try:
            with naming_limits():
                threading.Thread(target=_queue_answers, args=(link, answers), daemon=True).start()
                end: Done | RunError = _train(
                    given, interrupts, follow if follows else None, make_console, answers.get
                )
        except RunError as error:
            end = error
        except Exception as error:
            end = RunError(f"the training failed ({error!r})", traceback.format_exc())
        send(end)
    leave(0)


def _queue_answers(link: Connection, answers: "queue.SimpleQueue[Any]") -> None:
    """Queue the caller's answers; when the caller has ended, end the run with its work saved."""
    with suppress(OSError, EOFError):
        while True:
            answers.put(link.recv())
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _install(pickled: bytes) -> "Callable[[Recipe], Recipe] | None":
    """Define here what the caller's program defines; return what adds it to a recipe, or None."""
    import cloudpickle
    import gymnasium

    import __main__
    from es.envs import make_registered
    from es.rollouts.tasks import ByValue

    names, spec = cloudpickle.loads(pickled)
    vars(__main__).update(names)
    if spec is None and not names:
        return None
    if spec is not None:
        gymnasium.registry[spec.id] = spec

    def adapt_recipe(recipe: "Recipe") -> "Recipe":
        make_env: Callable[[], Any] = recipe.make_env
        if spec is not None:
            make_env = partial(make_registered, spec, make_env)
        return recipe._replace(
            make_env=ByValue(make_env, names), make_actor=ByValue(recipe.make_actor, names)
        )

    return adapt_recipe


class ConsoleOfCaller:
    """A console whose calls are made on the caller's. When silent, only warnings are sent."""

    def __init__(self, send: Callable[[Message], None], *, silent: bool) -> None:
        self._send, self._silent = send, silent

    def __getattr__(self, method: str) -> Callable[..., None]:
        return partial(self._call, method)

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> None:
        if not self._silent or method == "warn":
            with suppress(OSError):  # the caller has ended, and `_queue_answers` ends the run
                self._send(Shown(method, arguments, keywords))


# ---- both ----


def _train(
    given: dict[str, Any],
    interrupts: Interrupts,
    follow: Follow | None,
    make_console: Callable[[Config], Any],
    definitions: Callable[[], bytes] | None = None,
) -> Done:
    """Train in this process. definitions: returns what the caller's program defines, pickled."""
    limit_threads()  # before a checkpoint imports torch
    config, checkpoint = resolve(given, read_config(given))
    cli.prepare(config)
    console = make_console(config)
    from es.train import train  # this takes long: meanwhile the caller answers

    described: Trainer | None = None  # the trainer of a phase, whose policy was sent

    def after_update(record: "Record", trainer: "Trainer") -> bool:
        nonlocal described
        assert follow
        checkpoint = None if trainer is described else pickle.dumps(trainer.saved)
        described = trainer
        theta, statistics = trainer.strategy.theta.copy(), trainer.policy.statistics
        return follow(Row(record, trainer.counters, theta, statistics, checkpoint))

    outcome = train(
        config, checkpoint, interrupts,
        console=console, after_update=after_update if follow else None,
        adapt_recipe=_install(definitions()) if definitions else None,
    )  # fmt: skip
    return Done(outcome.status, outcome.path, outcome.solved, pickle.dumps(outcome.checkpoint))
