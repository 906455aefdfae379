"""What a script or a notebook defines, for processes that cannot import it."""

from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle


class ByValue:
    """A callable that can be pickled, with the classes and functions of `__main__` that it needs.

    What lies in a module is imported by its name. names: objects that get these names in the
    `__main__` of the process that calls it, where "__main__:Name" is then found. Raise what
    cloudpickle raises if something cannot be pickled.
    """

    def __init__(self, function: Callable[[], Any], names: Mapping[str, Any] | None = None) -> None:
        self._pickled = cloudpickle.dumps((function, names or {}))

    def __call__(self) -> Any:
        """Return what the function returns."""
        import __main__

        function, names = cloudpickle.loads(self._pickled)
        vars(__main__).update(names)
        return function()
