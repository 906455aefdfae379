"""A whole policy as one torch module: an environment's observations in, its actions out."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from es.networks.custom import with_state


class ExportedPolicy(nn.Module):
    """Choose actions, and remember in one vector what has to be remembered.

    view: of `es.exporting.views`. network: called with what the view shows and a state, which are
    tensors in any nesting, and None at first; returns outputs, or outputs and the next state.
    decode: makes actions of outputs. observation: an example. initial_state: (S,) zeros, none if
    nothing is remembered; float32 if that holds all of it, otherwise float64. Raise ValueError if
    the network's state grows or holds other things than tensors, if it changes its buffers, or if
    it gives other outputs each time.
    """

    def __init__(
        self, view: nn.Module, network: nn.Module, decode: nn.Module, observation: Any
    ) -> None:
        super().__init__()
        self._view, self._network, self._decode = view, network, decode
        self.eval().requires_grad_(requires_grad=False)
        before = [buffer.clone() for buffer in network.buffers()]
        seen, shown = view(observation, view.initial)
        first = self._play(seen, None)
        self._leaves, self._tree = tree_flatten((shown, first[1]))
        tensors = [leaf for leaf in self._leaves if leaf is not None]
        if odd := {type(leaf).__name__ for leaf in tensors if not isinstance(leaf, Tensor)}:
            raise ValueError(f"its state must hold tensors alone, not {', '.join(sorted(odd))}")
        self._sizes = [tensor.numel() for tensor in tensors]
        exact = all(tensor.dtype == torch.float32 for tensor in tensors)
        dtype = torch.float32 if exact else torch.float64
        zeros = torch.zeros(sum(self._sizes), dtype=dtype)
        again = self._play(seen, self._unpack(zeros)[1])
        pairs = [
            pair
            for pair in zip(tree_flatten(first)[0], tree_flatten(again)[0], strict=True)
            if pair[0] is not None
        ]
        if any(old.shape != new.shape for old, new in pairs):
            raise ValueError("its state has another shape after each step")
        for old, (name, new) in zip(before, network.named_buffers(), strict=True):
            if not torch.equal(old, new):
                raise ValueError(f"it changes its {name} while it plays; return that as its state")
        once_more = tree_flatten(self._play(seen, None))[0]
        for old, new in zip(tree_flatten(first)[0], once_more, strict=True):
            if old is not None and not torch.allclose(old, new, equal_nan=True):
                raise ValueError("it gives other outputs each time; a file draws nothing at random")
        # Most networks take zeros for None. For others, the vector ends with whether it has begun.
        self._marked = not all(torch.equal(old, new) for old, new in pairs)
        self.initial_state = torch.zeros(zeros.numel() + self._marked, dtype=dtype)

    def forward(self, observation: Any, state: Tensor | None = None) -> Any:
        """Return the action, and the next state if there is one."""
        shown, memory = (None, None) if state is None else self._unpack(state)
        seen, shown = self._view(observation, shown)
        outputs, memory = self._play(seen, memory)
        if self._marked and state is not None:
            begun, first = state[-1] > 0, self._play(seen, None)
            outputs, memory = tree_map(
                lambda later, at_first: None if later is None else later.where(begun, at_first),
                (outputs, memory),
                first,
            )
        action = self._decode(outputs)
        return action if state is None else (action, self._pack(shown, memory))

    def _play(self, seen: Any, memory: Any) -> tuple[Tensor, Any]:
        return with_state(self._network(seen, memory))

    def _pack(self, shown: Any, memory: Any) -> Tensor:
        leaves = [leaf for leaf in tree_flatten((shown, memory))[0] if leaf is not None]
        if self._marked:
            leaves.append(torch.ones(1))
        return torch.cat([leaf.reshape(-1).to(self.initial_state.dtype) for leaf in leaves])

    def _unpack(self, state: Tensor) -> Any:
        parts = iter(state[: sum(self._sizes)].split(self._sizes))
        leaves = [
            None if leaf is None else next(parts).reshape(leaf.shape).to(leaf.dtype)
            for leaf in self._leaves
        ]
        return tree_unflatten(leaves, self._tree)
