"""Whether averaged copies train: a small network that tells three interleaved spirals apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sched_lab.hadar.fork import Weights, consolidate, divide_steps
from sched_lab.lab.arrays import Floats, Integers

__all__ = ["training_curve"]


class Task(NamedTuple):
    """A classification task: points in a plane on interleaved spirals.

    Parameters
    ----------
    x, label : (points, 2) and (points,) to train on
    test_x, test_label : the same, to test on
    """

    x: Floats
    label: Integers
    test_x: Floats
    test_label: Integers


def spiral_task(rng: np.random.Generator, *, num_points: int = 2000, num_classes: int = 3,
                noise: float = 0.3) -> Task:
    """Draw a task; half of the points are for testing.

    Parameters
    ----------
    noise : standard deviation of the angle
    """
    label = rng.integers(num_classes, size=num_points)
    radius = rng.uniform(0.1, 1.0, num_points)
    angle = 4 * radius + 2 * np.pi / num_classes * label + rng.normal(0, noise, num_points)
    x = 2 * np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    half = num_points // 2
    return Task(x[:half], label[:half], x[half:], label[half:])


def first_weights(rng: np.random.Generator, *, num_inputs: int = 2, num_hidden: int = 32,
                  num_classes: int = 3) -> Weights:
    """A network with one hidden layer, drawn at random: weights and biases of two layers.

    Parameters
    ----------
    num_inputs, num_hidden, num_classes : size of each layer
    """
    first = rng.normal(0, np.sqrt(2 / num_inputs), (num_inputs, num_hidden))
    second = rng.normal(0, np.sqrt(2 / num_hidden), (num_hidden, num_classes))
    return first, np.zeros(num_hidden), second, np.zeros(num_classes)


def chances(weights: Weights, x: Floats) -> tuple[Floats, Floats]:
    """Hidden activations and (points, classes) probabilities."""
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    score = hidden @ weights[2] + weights[3]
    odds = np.exp(score - score.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def train(weights: Weights, task: Task, num_steps: int, rng: np.random.Generator, *,
          batch: int = 32, step_size: float = 0.2) -> Weights:
    """Stochastic gradient descent on the cross-entropy.

    Parameters
    ----------
    num_steps : to do from `weights` on
    batch, step_size : examples of a step, and how far it goes
    """
    first, first_bias, second, second_bias = (layer.copy() for layer in weights)
    for _ in range(num_steps):
        pick = rng.integers(len(task.x), size=batch)
        x = task.x[pick]
        label = task.label[pick]
        hidden, error = chances((first, first_bias, second, second_bias), x)
        error[np.arange(batch), label] -= 1
        error *= step_size / batch
        back = (error @ second.T) * (hidden > 0)
        second -= hidden.T @ error
        second_bias -= error.sum(axis=0)
        first -= x.T @ back
        first_bias -= back.sum(axis=0)
    return first, first_bias, second, second_bias


def _test_row(weights: Weights, task: Task) -> dict[str, float]:
    """Loss and accuracy on the test half."""
    _, chance = chances(weights, task.test_x)
    likelihood = chance[np.arange(len(chance)), task.test_label]
    return {"loss": float(-np.log(np.maximum(likelihood, 1e-300)).mean()),
            "accuracy": float((chance.argmax(axis=1) == task.test_label).mean())}


def training_curve(seed: int, rates: Sequence[float], *, num_steps: int = 2000,
                   steps_per_round: int = 100, equal: bool = False) -> pd.DataFrame:
    """Train in copies on nodes of these rates; loss and accuracy on the test half after each round.

    Parameters
    ----------
    rates : one for each copy; a single one is training without forking
    num_steps : of all copies together
    steps_per_round : of all copies together, divided as HadarE does
    equal : average the copies equally, not by steps

    Returns
    -------
    columns seed, copies, steps, loss, accuracy; one row per round
    """
    rng = np.random.default_rng([seed, 0])
    task = spiral_task(rng)
    weights = first_weights(rng)
    stream = [np.random.default_rng([seed, copy]) for copy in range(1, len(rates) + 1)]
    rows = []
    left = num_steps
    while left > 0:
        share = divide_steps(min(steps_per_round, left), rates)
        trained = [train(weights, task, steps, rng)
                   for steps, rng in zip(share.tolist(), stream, strict=True)]
        weights = consolidate(trained, share, equal=equal)
        left -= int(share.sum())
        rows.append({"seed": seed, "copies": len(rates), "steps": num_steps - left,
                     **_test_row(weights, task)})
    return pd.DataFrame(rows)
