"""The nets of Max Woolf's study, as Keras 2.0.5 builds and trains them.

Where Keras and torch differ by default, Keras's choice is written out: Glorot weights and zero biases, uniform
embeddings, forget biases of 1, one bias for each gate, 1e-8 in the optimizers, learning rates that decay by iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

HIDDEN = 128
"""Units of the LSTMs that write text."""
AUXILIARY_WEIGHT = 0.2

BATCH_SIZES = {"mnist-mlp": 128, "mnist-cnn": 128, "lstm-text": 128, "text-generator": 128}
"""The study's; 32 for the others."""
EPOCHS = {
    "mnist-mlp": 20,
    "mnist-cnn": 12,
    "cifar10-cnn": 20,
    "imdb-fasttext": 5,
    "imdb-bilstm": 4,
    "imdb-bilstm-unfused": 4,
    "lstm-text": 10,
    "text-generator": 10,
}
"""The study's."""
NETS = tuple(EPOCHS)


def build(net: str, symbols: int) -> nn.Module:
    """A net of the study, untrained; `symbols` is how many words, bigrams or characters its data know, 0 for images."""
    made = _made(net, symbols)
    for module in made.modules():
        _as_keras(module)
    return made


def loss(said: Any, targets: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy of one output a sample, cross entropy of several, and of two answers both, weighted."""
    if isinstance(said, tuple):
        return functional.cross_entropy(said[0], targets) + AUXILIARY_WEIGHT * functional.cross_entropy(
            said[1], targets
        )
    if said.ndim == 1:
        return functional.binary_cross_entropy_with_logits(said, targets.to(said.dtype))
    return functional.cross_entropy(said, targets)


def classes(said: Any) -> torch.Tensor:
    """The answer as logits `[samples, classes]`; one output a sample is that of the second of two classes."""
    if isinstance(said, tuple):
        said = said[0]
    return functional.pad(said[:, None], (1, 0)) if said.ndim == 1 else said


def optimizer(model: nn.Module, net: str) -> torch.optim.Optimizer:
    """The study's, with its settings."""
    parameters, eps = [each for each in model.parameters() if each.requires_grad], 1e-8
    match net:
        case "mnist-mlp":
            return torch.optim.RMSprop(parameters, 0.001, alpha=0.9, eps=eps)
        case "mnist-cnn":
            return torch.optim.Adadelta(parameters, 1.0, rho=0.95, eps=eps)
        case "cifar10-cnn":
            return _decaying(torch.optim.RMSprop(parameters, 1e-4, alpha=0.9, eps=eps), 1e-6)
        case "lstm-text":
            return torch.optim.RMSprop(parameters, 0.01, alpha=0.9, eps=eps)
        case "text-generator":
            return _decaying(torch.optim.Adam(parameters, 0.001, eps=eps), 1e-4)
    return torch.optim.Adam(parameters, 0.001, eps=eps)


def _decaying(made: torch.optim.Optimizer, decay: float) -> torch.optim.Optimizer:
    """Keras's `decay`: the rate is divided by 1 + decay x iterations."""
    rate, done = made.param_groups[0]["lr"], 0

    def after(each: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal done
        done += 1
        for group in each.param_groups:
            group["lr"] = rate / (1.0 + decay * done)

    made.register_step_post_hook(after)
    return made


def _made(net: str, symbols: int) -> nn.Module:
    match net:
        case "mnist-mlp":
            return nn.Sequential(
                nn.Flatten(),
                *(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2)),
                *(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.2)),
                nn.Linear(512, 10),
            )
        case "mnist-cnn":
            return nn.Sequential(
                *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
                *(nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
            )
        case "cifar10-cnn":
            return nn.Sequential(
                *_pair(3, 32), *_pair(32, 64), nn.Flatten(), nn.Linear(64 * 6 * 6, 512), nn.ReLU(), nn.Dropout(0.5),
                nn.Linear(512, 10),
            )  # fmt: skip
        case "imdb-fasttext":
            return FastText(symbols)
        case "imdb-bilstm":
            return BiLstm(symbols, FusedLstm(128, 64, both_ways=True))
        case "imdb-bilstm-unfused":
            return BiLstm(symbols, UnfusedBiLstm(128, 64))
        case "lstm-text":
            return nn.Sequential(FusedLstm(symbols, HIDDEN), nn.Linear(HIDDEN, symbols))
        case "text-generator":
            return TextGenerator(symbols)
    raise ValueError(f"the study has no net {net}")


def _pair(inputs: int, outputs: int) -> Iterator[nn.Module]:
    """Two convolutions, of which the second loses the border, and a pooling."""
    yield from (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU())
    yield from (nn.MaxPool2d(2), nn.Dropout(0.25))


def _as_keras(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.uniform_(module.weight, -0.05, 0.05)


class FastText(nn.Module):
    """The mean of a review's word and bigram vectors, padding included, and one output."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(symbols, 50)
        self.output = nn.Linear(50, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        said: torch.Tensor = self.output(self.vectors(words).mean(dim=1)).squeeze(1)
        return said


class BiLstm(nn.Module):
    """A review read from both ends; what both readings come to, and one output."""

    def __init__(self, symbols: int, reader: nn.Module) -> None:
        super().__init__()
        self.vectors = nn.Embedding(symbols, 128)
        self.reader = reader
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(128, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        said: torch.Tensor = self.output(self.dropout(self.reader(self.vectors(words)))).squeeze(1)
        return said


class TextGenerator(nn.Module):
    """The next character, said twice: by the LSTM itself, and after two more layers."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(symbols, 300)
        self.reader = FusedLstm(300, HIDDEN)
        self.auxiliary = nn.Linear(HIDDEN, symbols)
        self.main = nn.Sequential(*_normed(HIDDEN, 512), *_normed(512, 256), nn.Linear(256, symbols))

    def forward(self, characters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        read = self.reader(self.vectors(characters))
        return self.main(read), self.auxiliary(read)


def _normed(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs, eps=1e-3, momentum=0.01), nn.ReLU()


class FusedLstm(nn.Module):
    """The state after the last step of torch's LSTM: one call for all steps, as cuDNN's in the study's second edition.

    It squashes its gates with the sigmoid; Keras's own LSTM takes straight pieces (`UnfusedBiLstm`).
    """

    def __init__(self, inputs: int, units: int, both_ways: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, batch_first=True, bidirectional=both_ways)
        for name, values in self.lstm.named_parameters():
            if "weight" in name:
                nn.init.xavier_uniform_(values) if "_ih" in name else nn.init.orthogonal_(values)
            else:
                nn.init.zeros_(values)
                with torch.no_grad():
                    values[units : 2 * units] = float("_ih" in name)
            if "bias_hh" in name:
                values.requires_grad_(False)  # torch adds two biases to each gate, Keras has one

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state: torch.Tensor = self.lstm(inputs)[1][0]
        return torch.cat(tuple(state), dim=1)


class UnfusedBiLstm(nn.Module):
    """Two LSTMs as Keras ran them in the study: products of the inputs for all steps at once, then step by step four
    products and a dozen small operations, each a launch of its own on a GPU."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.forwards, self.backwards = UnfusedLstm(inputs, units), UnfusedLstm(inputs, units)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat((self.forwards(inputs), self.backwards(inputs.flip(1))), dim=1)


class UnfusedLstm(nn.Module):
    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, 4 * units))
        """Of the gates side by side: input, forget, cell, output."""
        self.recurrent = nn.Parameter(torch.empty(units, 4 * units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        nn.init.xavier_uniform_(self.kernel)
        nn.init.orthogonal_(self.recurrent)
        self.bias.data[units : 2 * units] = 1.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The state `[batch, units]` after the last of the steps of `[batch, steps, inputs]`."""
        gates = zip(self.kernel.chunk(4, 1), self.bias.chunk(4), strict=True)
        given = [(inputs @ kernel + bias).unbind(1) for kernel, bias in gates]
        recurrent = self.recurrent.chunk(4, 1)
        state = cell = inputs.new_zeros(len(inputs), len(self.recurrent))
        for step in zip(*given, strict=True):
            enter, forget, new, leave = (x + state @ weights for x, weights in zip(step, recurrent, strict=True))
            cell = _straight(forget) * cell + _straight(enter) * torch.tanh(new)
            state = _straight(leave) * torch.tanh(cell)
        return state


def _straight(x: torch.Tensor) -> torch.Tensor:
    """Keras's hard sigmoid."""
    return (0.2 * x + 0.5).clamp(0.0, 1.0)
