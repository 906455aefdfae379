"""Virtual batch normalisation in the Convnet-LSTM."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.kernels import convolutions
from es.model import ConvLSTM, initial_theta, layer_shapes, make_module, unflatten
from es.networks import make_actor
from tests.networks.descriptions import convlstm


def virtually_normalized(module, reference, image):
    """The convolutions with every step written out, on a batch: (N, 1, 42, 42)."""
    for number in range(1, 5):
        conv, norm = getattr(module, f"conv{number}"), getattr(module, f"norm{number}")
        reference, image = (
            functional.conv2d(x, conv.weight, None, 2, 1) for x in (reference, image)
        )
        mean = reference.mean(dim=(0, 2, 3), keepdim=True)
        std = ((reference - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True).add(1e-5).sqrt()
        scale, shift = norm.weight[:, None, None], norm.bias[:, None, None]
        reference, image = (
            functional.selu(scale * (x - mean) / std + shift) for x in (reference, image)
        )
    return image


def test_virtual_batch_normalisation_against_its_formula():
    network = convlstm(vbn=True)
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(20, 1, 42, 42)).astype(np.float32)
    theta = initial_theta(network, 0)
    assert "conv1.bias" not in layer_shapes(network)
    theta += 0.1 * rng.normal(size=theta.size).astype(np.float32)
    module = make_module(network).requires_grad_(False)
    module.load_state_dict(unflatten(network, theta))
    assert isinstance(module, ConvLSTM)
    module.refer_to(torch.from_numpy(reference))
    actor = make_actor(network, reference)
    state = None
    for _ in range(2):
        actor.bind(theta)
        actor.reset()
        state = None
        for _ in range(5):
            image = (1 + 2 * rng.normal(size=(1, 42, 42))).astype(np.float32)
            features = virtually_normalized(
                module, *map(torch.from_numpy, (reference, image[None]))
            )
            hidden, _ = module.lstm(features.flatten(1), state)
            logits, state = module(torch.from_numpy(image), state)
            expected = module.actor_linear(hidden)[0]
            torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
            actor.act(image)
            np.testing.assert_allclose(actor.outputs, expected.numpy(), rtol=2e-3, atol=2e-4)
        theta *= np.float32(1.5)  # statistics are those of the parameters that are bound
        module.load_state_dict(unflatten(network, theta))
        module.refer_to(torch.from_numpy(reference))


def test_virtual_batch_normalisation_needs_its_batch():
    with pytest.raises(ValueError, match="without its batch"):
        make_actor(convlstm(vbn=True))


def test_no_layer_is_computed_again_for_the_layers_above(monkeypatch):
    """Twice each: once for the statistics, and once normalised by them for the next layer."""
    convolve = Mock(side_effect=convolutions.convolve_image)
    monkeypatch.setattr(convolutions, "convolve_image", convolve)
    network = convlstm(vbn=True)
    reference = np.random.default_rng(0).normal(size=(5, 1, 42, 42)).astype(np.float32)
    make_actor(network, reference).bind(initial_theta(network, 0))
    assert convolve.call_count == 2 * len(reference)
