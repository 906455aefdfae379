"""Evolution Strategies: train control policies, and use them from programs of your own."""

TYPE_CHECKING = False  # `python -m es` searches the current folder until it has run this file

if TYPE_CHECKING:
    from es.learning import learn as learn
    from es.networks.custom import count_outputs as count_outputs
    from es.policy import load_policy as load_policy

__version__ = "0.3.0"  # which pyproject.toml reads
__all__ = ["count_outputs", "learn", "load_policy"]
_MODULES = {
    "count_outputs": "es.networks.custom",  # in workers, which do without the rest
    "learn": "es.learning",
    "load_policy": "es.policy",
}


def __getattr__(name: str) -> object:
    """Import what is heavy when it is first asked for."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
