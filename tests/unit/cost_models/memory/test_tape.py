"""The tape's rules, on tapes small enough to follow by hand."""

import numpy as np

from cost_models.memory import operators as op
from cost_models.memory.tape import WHOLE, Tape, Value, width

SIZE = width(10, WHOLE)


def start() -> tuple[Tape, Value]:
    tape = Tape(part="mlp")
    return tape, tape.new(SIZE, 2.0)


def kept(tape: Tape) -> float:
    return float(sum(storage.size.sum() for storage in tape.saved()))


def peak(tape: Tape, out: Value) -> float:
    return max(float(alive.size.sum()) for alive in tape.backward(out))


def test_equal_storages_count_once() -> None:
    tape, x = start()
    first = op.product(tape, x, "a", SIZE, trained=True)
    second = op.product(tape, op.view(tape, x), "b", SIZE, trained=True)
    op.add(tape, first, second)
    assert kept(tape) == 20


def test_a_view_keeps_the_whole_storage() -> None:
    tape, x = start()
    joined = op.product(tape, x, "qkv", 3 * SIZE, trained=False)
    _, _, value = op.split(tape, joined, [SIZE] * 3)
    op.pointwise(tape, value, keeps="input")
    assert kept(tape) == 60


def test_a_product_backward_holds_both_gradients_and_its_input() -> None:
    tape, x = start()
    out = op.product(tape, x, "w", SIZE, trained=True)
    moments = tape.backward(out)
    assert max(float(m.size.sum()) for m in moments) == 60
    assert any(m.weights == ("w",) for m in moments)


def test_gradients_that_meet_are_added_out_of_place() -> None:
    tape, x = start()
    twice = op.add(tape, x, op.scale(tape, x))
    assert peak(tape, twice) == 60  # the stream's own, the branch's and their sum


def test_the_derivative_of_a_square_holds_two_temporaries() -> None:
    tape, x = start()
    out = op.square(tape, x)
    assert kept(tape) == 20
    assert peak(tape, out) == 20 + 20 + 3 * 20


def test_frozen_weights_keep_no_input() -> None:
    tape, x = start()
    op.product(tape, x, "w", SIZE, trained=False)
    assert kept(tape) == 0


def test_nothing_is_kept_below_what_wants_no_gradient() -> None:
    tape = Tape()
    x = tape.new(SIZE, 2.0, wanted=False)
    out = op.weighted(tape, op.square(tape, x), trained=False)
    assert not tape.nodes
    assert not out.wanted


def test_moments_are_those_that_no_other_contains() -> None:
    tape, x = start()
    hidden = op.pointwise(tape, op.product(tape, x, "up", 4 * SIZE, trained=True), keeps="input")
    moments = tape.backward(op.product(tape, hidden, "down", SIZE, trained=True))
    for one in moments:
        others = [m for m in moments if m is not one]
        assert not any(bool(np.all(m.size >= one.size)) and set(one.weights) <= set(m.weights) for m in others)
