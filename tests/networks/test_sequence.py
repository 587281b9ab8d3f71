"""Networks for sequences: positions in time, and sequences of different length in one batch."""

import math

import pytest
import torch

from milbench import Bags, UsageError
from milbench.networks.sequence import (
    SequenceConvolutional,
    SequenceGRU,
    SequenceNetwork,
    pad_frames,
)

F, WIDTH, OUTPUTS = 3, 6, 5
KINDS = [SequenceConvolutional, SequenceGRU]


def made(
    kind: type[SequenceConvolutional | SequenceGRU], stride: int = 4, seed: int = 0
) -> SequenceNetwork:
    return kind(F, OUTPUTS - 1, seed, stride, WIDTH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("frames", "stride", "positions"), [(16, 4, 4), (17, 4, 5), (1, 4, 1), (7, 1, 7), (30, 8, 4)]
)
def test_a_position_for_every_block_of_frames(
    kind: type, frames: int, stride: int, positions: int
) -> None:
    network = made(kind, stride)
    logits = network(torch.randn(2, F, frames))
    assert logits.shape == (2, OUTPUTS, positions)
    ys, xs = network.centres_in(Bags(torch.zeros(2, F, frames), torch.zeros(2, OUTPUTS - 1)))
    assert ys.tolist() == [F / 2]
    assert xs.tolist() == [stride * (k + 0.5) for k in range(positions)]


def test_a_position_is_there_where_one_of_its_frames_is() -> None:
    lengths = torch.tensor([[9], [4], [1], [8]])
    bags = Bags(torch.zeros(4, F, 9), torch.zeros(4, OUTPUTS - 1), torch.arange(9) < lengths)
    mask = made(SequenceConvolutional).mask_of(bags)
    assert mask is not None
    assert mask.sum(dim=1).tolist() == [math.ceil(length / 4) for length in (9, 4, 1, 8)]
    assert mask[:, 0].all()


def test_convolutions_refuse_a_stride_not_a_power_of_two() -> None:
    with pytest.raises(UsageError, match="stride = 6: expected a power of 2, such as 4"):
        made(SequenceConvolutional, stride=6)


def test_a_convolutional_position_sees_frames_around_its_middle() -> None:
    network, frames = made(SequenceConvolutional), torch.randn(1, F, 80, requires_grad=True)
    (grad,) = torch.autograd.grad(network(frames)[0, :, 10].sum(), frames)
    seen = grad[0].abs().sum(dim=0).nonzero().flatten()
    first, last = int(seen.min()), int(seen.max())
    _, xs = network.position_centres(F, 80)
    assert (first + last + 1) / 2 == xs[10] == 42
    assert last - first + 1 == 30


def test_a_gru_is_torch_s_with_the_same_weights() -> None:
    network = made(SequenceGRU)
    theirs = torch.nn.GRU(F * 4, WIDTH, batch_first=True, bidirectional=True)
    state = network.state_dict()
    for unit, suffix in (("forwards", ""), ("backwards", "_reverse")):
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            theirs.get_parameter(name + suffix).data = state[f"{unit}.{name}"]
    a, b = torch.randn(F, 24), torch.randn(F, 12)
    blocks = [frames.unfold(1, 4, 4).transpose(0, 1).flatten(1) for frames in (a, b)]
    packed = torch.nn.utils.rnn.pack_sequence(blocks)
    states, lengths = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    expected = network.head(states).transpose(1, 2)
    logits = network(pad_frames([a, b]))
    for bag, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(logits[bag, :, :length], expected[bag, :, :length])
