"""Networks for sequences: where positions are in time, and batches of different lengths."""

import pytest
import torch

from milbench import Bags, UsageError
from milbench.networks.sequence import (
    SequenceConvolutional,
    SequenceGRU,
    SequenceNetwork,
    pad_frames,
)

# F features in each frame, WIDTH hidden units, and OUTPUTS channels of logits.
F = 3
WIDTH = 6
OUTPUTS = 5
KINDS = [SequenceConvolutional, SequenceGRU]


def made(
    kind: type[SequenceConvolutional | SequenceGRU], stride: int = 4, seed: int = 0
) -> SequenceNetwork:
    return kind(F, OUTPUTS - 1, seed, stride, WIDTH)


SHAPES = [(16, 4, 4), (17, 4, 5), (1, 4, 1), (7, 1, 7), (30, 8, 4)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("frames", "stride", "positions"), SHAPES)
def test_a_position_for_every_block_of_frames(
    kind: type, frames: int, stride: int, positions: int
) -> None:
    logits = made(kind, stride)(torch.randn(2, F, frames))
    assert logits.shape == (2, OUTPUTS, positions)


def bags_of(frames: int, mask: torch.Tensor | None = None) -> Bags:
    size = 2 if mask is None else len(mask)
    return Bags(torch.zeros(size, F, frames), torch.zeros(size, OUTPUTS - 1), mask)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("frames", "stride", "positions"), SHAPES)
def test_a_position_stands_in_the_middle_of_its_block(
    kind: type, frames: int, stride: int, positions: int
) -> None:
    ys, xs = made(kind, stride).centres_in(bags_of(frames))
    assert ys.tolist() == [F / 2]
    assert xs.tolist() == [stride * (k + 0.5) for k in range(positions)]


def test_a_position_is_not_masked_where_one_of_its_frames_is_there() -> None:
    lengths = torch.tensor([[9], [4], [1], [8]])
    has_frame = torch.arange(9) < lengths
    mask = made(SequenceConvolutional, stride=4).mask_of(bags_of(9, has_frame))
    assert mask is not None
    assert mask.tolist() == [
        [True, True, True],
        [True, False, False],
        [True, False, False],
        [True, True, False],
    ]


def test_convolutions_refuse_a_stride_not_a_power_of_two() -> None:
    with pytest.raises(UsageError, match="stride = 6: expected a power of 2, such as 4"):
        made(SequenceConvolutional, stride=6)


def test_a_convolutional_position_sees_frames_around_its_middle() -> None:
    network = made(SequenceConvolutional)
    frames = torch.randn(1, F, 80, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(frames)[0, :, 10].sum(), frames)
    seen = gradient[0].abs().sum(dim=0).nonzero().flatten()
    first = int(seen.min())
    last = int(seen.max())
    # The kernels are 5, 4, 4, 3 and 3 wide, and their inputs are 1, 1, 2, 4 and 4 frames apart:
    # 5 + 3*1 + 3*2 + 2*4 + 2*4 = 30.
    assert last - first + 1 == 30
    # Position 10 stands for the frames 40 to 43.
    assert (first + last + 1) / 2 == 42
    _, xs = network.position_centres(F, 80)
    assert xs[10] == 42


def torch_gru_of(network: SequenceNetwork) -> torch.nn.GRU:
    """Return torch's bidirectional GRU with the weights of a network."""
    gru = torch.nn.GRU(F * 4, WIDTH, batch_first=True, bidirectional=True)
    state = network.state_dict()
    for unit, suffix in (("forwards", ""), ("backwards", "_reverse")):
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            gru.get_parameter(name + suffix).data = state[f"{unit}.{name}"]
    return gru


def test_a_gru_agrees_with_torch_s_gru_of_the_same_weights() -> None:
    network = made(SequenceGRU)
    long = torch.randn(F, 24)
    short = torch.randn(F, 12)
    # The four frames of each block, (K, 4 F).
    blocks = [frames.unfold(1, 4, 4).transpose(0, 1).flatten(1) for frames in (long, short)]
    packed_states, _ = torch_gru_of(network)(torch.nn.utils.rnn.pack_sequence(blocks))
    states, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed_states, batch_first=True)
    expected = network.head(states).transpose(1, 2)
    logits = network(pad_frames([long, short]))
    for bag, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(logits[bag, :, :length], expected[bag, :, :length])
