"""Rematerialisation: keep little of the forward pass and recompute the rest during the backward pass.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost": the net is cut into segments; only values passed from
one segment to a later one are kept, and a segment's activations are recomputed when its gradients are needed. The cuts
are derived from the functional graph, so models need no annotations.
"""
import contextlib
import contextvars
import itertools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models.core import layers

_UNKNOWN = 64  # assumed length of axes known only with a batch; the number of rows scales all sizes alike
_LIMITS = 32  # sizes of the largest segment tried
_repeating = contextvars.ContextVar('repeating', default=False)  # one value per replica, since replicas are threads


class Step(NamedTuple):
    """An operation of a functional graph.

    Attributes:
      layer: the layer that computes it.
      takes, makes: its KerasTensors; the net's own inputs are among the first.
      size: numbers in its output.
      held: approximate numbers a backward pass needs from it: a nested layer outputs this much in each of its layers.
      last: number of the last step that uses its output; the number of all steps for the net's outputs.
      repeatable: whether it may be called again; batch normalisation would update its averages twice.
    """
    layer: keras.layers.Layer
    takes: list
    makes: list
    size: int
    held: int
    last: int
    repeatable: bool


class Rematerialised:
    """Run a functional net in segments; values and gradients equal the net's own.

    The last segment is kept whole, since its gradients come first. So is batch normalisation, whose averages a second
    call would update twice.

    Args:
      net: as returned by a model module's `build`.
    """

    def __init__(self, net: keras.Model):
        self._net, self._segments = net, []
        steps = graph(net)
        for start, stop in pieces(steps, cuts(steps)):
            segment = steps[start:stop]
            made = {id(tensor) for step in segment for tensor in step.makes}
            takes = list({id(tensor): tensor for step in segment for tensor in step.takes
                          if id(tensor) not in made}.values())
            gives = [tensor for step in segment for tensor in step.makes if step.last >= stop]
            again = stop < len(steps) and all(step.repeatable for step in segment)
            self._segments.append((takes, gives, layers.of_any_size(keras.Model(takes, gives)), again))

    def __call__(self, inputs, training: bool):
        """Call it like the net itself, with a list of inputs or a dict by name."""
        net = self._net
        values = [inputs[name] for name in net.input_names] if isinstance(inputs, dict) else tf.nest.flatten(inputs)
        known = {id(tensor): value for tensor, value in zip(net.inputs, values)}
        for takes, gives, segment, again in self._segments:
            found = _call(segment, [known[id(tensor)] for tensor in takes], training, again)
            known |= {id(tensor): value for tensor, value in zip(gives, found)}
        return tf.nest.pack_sequence_as(net.output, [known[id(tensor)] for tensor in net.outputs])


def repeating() -> bool:
    """Return whether the current call repeats one of this step, so that power iterations must not advance."""
    return _repeating.get()


@contextlib.contextmanager
def repeat(again: bool):
    """Mark calls in this context as repetitions within a step, if `again`.

    They are for other rows of the batch, or compute values before they compute gradients.
    """
    before = _repeating.set(again or _repeating.get())
    try:
        yield
    finally:
        _repeating.reset(before)


def _call(segment: keras.Model, values: list, training: bool, again: bool) -> list:
    """Return a segment's outputs; if `again`, nothing else of it is kept."""
    outputs, calls = segment.outputs, 0
    learned, given = ([n for n, each in enumerate(some) if each.dtype.is_floating] for some in (values, outputs))

    def call(values, repeated):
        with repeat(repeated):
            return tf.nest.flatten(segment(values, training=training))
    if not (again and given):
        return call(values, False)

    def run(*some):
        nonlocal calls
        known, calls = dict(enumerate(values)) | dict(zip(learned, some)), calls + 1
        found = call([known[n] for n in range(len(values))], repeated=calls > 1)  # once forward, once for the gradients
        return tuple(found[n] for n in given)
    found = dict(zip(given, tf.recompute_grad(run)(*(values[n] for n in learned))))
    if len(given) < len(outputs):  # masks, positions and shapes; the graph drops the operations of the others
        found = dict(enumerate(call(values, repeated=True))) | found
    return [found[n] for n in range(len(outputs))]


def graph(net: keras.Model) -> list[Step]:
    """Return the operations of a functional net in the order Keras runs them."""
    depths = net._nodes_by_depth  # noqa: SLF001 (Keras has no public access)
    nodes = [node for depth in sorted(depths, reverse=True) for node in depths[depth] if not node.is_input]
    last = {id(tensor): n for n, node in enumerate(nodes) for tensor in node.keras_inputs}
    last |= {id(tensor): len(nodes) for tensor in net.outputs}
    steps = []
    for n, node in enumerate(nodes):
        makes, inside = tf.nest.flatten(node.outputs), [node.layer, *node.layer.submodules]
        size = sum(_size(tensor.shape) for tensor in makes)
        steps.append(Step(node.layer, list(node.keras_inputs), makes, size, size * len(inside),
                          max(last.get(id(tensor), n) for tensor in makes),
                          not any(isinstance(layer, keras.layers.BatchNormalization) for layer in inside)))
    return steps


def cuts(steps: list[Step]) -> list[int]:
    """Return the steps to cut before, minimising the kept values plus the largest segment."""
    found = []
    for limit in np.geomspace(max(step.held for step in steps), sum(step.held for step in steps), _LIMITS):
        kept, bounds = _kept(steps, limit)
        largest = max(sum(step.held for step in steps[start:stop]) for start, stop in pieces(steps, bounds))
        found.append((kept + largest, bounds))
    return min(found)[1]


def pieces(steps: list[Step], bounds: list[int]) -> list[tuple[int, int]]:
    """Return where each segment starts and stops."""
    return list(itertools.pairwise([0, *bounds, len(steps)]))


def _kept(steps: list[Step], limit: float) -> tuple[float, list[int]]:
    """Return the fewest values to keep if no segment holds more than `limit`, and the cuts for it."""
    best: list[tuple[float, list[int]]] = [(0, [])]  # up to each step
    for stop in range(1, len(steps) + 1):
        options, held, kept = [], 0, 0
        for start in reversed(range(stop)):
            step = steps[start]
            held += step.held
            if start < stop - 1 and (held > limit or not (step.repeatable and steps[stop - 1].repeatable)):
                break
            if not step.repeatable:
                kept += step.held
            elif step.last >= stop:  # a value that leaves a segment is kept once
                kept += step.size
            before, bounds = best[start]
            options.append((before + kept, len(bounds), start))
        least, _, start = min(options)
        best.append((least, best[start][1] + ([start] if start else [])))
    return best[-1]


def _size(shape: tf.TensorShape) -> int:
    return math.prod(axis or _UNKNOWN for axis in shape)
