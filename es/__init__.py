"""Evolution Strategies: train control policies, and use them from programs of your own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from es.policy import load_policy as load_policy

__all__ = ["load_policy"]


def __getattr__(name: str) -> Any:
    """Import what is heavy when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from es import policy

    return getattr(policy, name)
