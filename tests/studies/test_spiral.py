"""The network of the spirals: its gradients."""
import numpy as np
import pytest

from studies.spiral import chances, first_weights, spiral_task, train


def test_gradients_are_those_of_finite_differences():
    task = spiral_task(np.random.default_rng(0), num_points=40)
    weights = first_weights(np.random.default_rng(1))
    step_size = 1e-3
    tiny = 1e-6
    pick = np.random.default_rng(2).integers(len(task.x), size=32)

    def loss(layers: tuple[np.ndarray, ...]) -> float:
        return float(-np.log(chances(layers, task.x[pick])[1][np.arange(32), task.label[pick]]).mean())

    after = train(weights, task, 1, np.random.default_rng(2), step_size=step_size)
    for layer, at in ((0, (1, 3)), (1, (5,)), (2, (7, 2)), (3, (0,))):
        shifted = []
        for sign in (1, -1):
            layers = [part.copy() for part in weights]
            layers[layer][at] += sign * tiny
            shifted.append(loss(tuple(layers)))
        slope = (shifted[0] - shifted[1]) / (2 * tiny)
        assert (weights[layer][at] - after[layer][at]) / step_size == pytest.approx(slope, abs=1e-6)
