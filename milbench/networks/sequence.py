"""Networks for sequences: from frames to logits by position, where a position is a block of frames.

A batch of sequences is (B, F, T): F features in each of T frames. Where a sequence is shorter than
T, its last frames are NaN. A network that does not leave them out is then found at once, as its
logits are not finite.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from milbench.contracts.bags import Bags
from milbench.contracts.network import Network
from milbench.errors import UsageError
from milbench.networks.initialisation import SLOPE, initialise

Count = Annotated[int, Field(ge=1)]
PADDING = float("nan")
"""The value of frames after the end of a sequence."""


def pad_frames(sequences: Sequence[Tensor]) -> Tensor:
    """Return sequences (F, T_i) as one batch (B, F, T), where T is the largest T_i."""
    have_one_shape = len({frames.shape for frames in sequences}) == 1
    if have_one_shape:
        # `stack` is quicker than padding.
        return torch.stack(list(sequences))
    time_first = [frames.T for frames in sequences]
    padded = pad_sequence(time_first, batch_first=True, padding_value=PADDING)
    return padded.transpose(1, 2)


class SequenceNetwork(Network):
    """Base class of networks from sequences (B, F, T) to logits (B, C+1, K), background last.

    A position stands for a block of `stride` frames, so that K is T / `stride` rounded up. The
    logits of a sequence do not depend on the length of other sequences in its batch. Logits after
    the end of a sequence are finite and have no meaning.
    """

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, frames: Tensor) -> Tensor:
        # Frames are added up to a whole number of blocks.
        missing = -frames.shape[2] % self.stride
        frames = nn.functional.pad(frames, (0, missing), value=PADDING)
        present = ~frames[:, :1].isnan()
        return self.logits(frames.masked_fill(~present, 0), present)

    def mask_of(self, bags: Bags) -> Tensor | None:
        """Return (B, K) bool, True at blocks that have a frame of the sequence.

        It is made from the mask (B, T) of frames; None where bags have none.
        """
        if bags.mask is None:
            return None
        missing = -bags.mask.shape[1] % self.stride
        padded = nn.functional.pad(bags.mask, (0, missing))
        present: Tensor = padded.unflatten(1, (-1, self.stride)).any(dim=2)
        return present

    @abstractmethod
    def logits(self, frames: Tensor, present: Tensor) -> Tensor:
        """Return the logits (B, C+1, K) of frames (B, F, T), where T is a multiple of the stride.

        `present` (B, 1, T) is False after the end of a sequence, where frames are 0.
        """

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return where the centres of positions are, on the scale of `Truth.boxes`, in float64.

        A sequence has F = `height` features and T = `width` frames. Its positions are one row, with
        y (1,) in features and x (K,) in frames. The last block may not be full; its centre is that
        of a full block.

        Examples:
            >>> network = SequenceGRU(inputs=32, num_classes=2, seed=0, stride=4)
            >>> network.position_centres(height=32, width=10)
            (tensor([16.], dtype=torch.float64), tensor([ 2.,  6., 10.], dtype=torch.float64))
        """
        row = torch.tensor([height / 2], dtype=torch.float64)
        blocks = math.ceil(width / self.stride)
        return row, self.stride * (torch.arange(blocks).double() + 0.5)

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor]:
        height, width = bags.instances.shape[-2:]
        return self.position_centres(height, width)


class SequenceConvolutional(SequenceNetwork):
    """Convolutions in time with leaky ReLUs between them.

    The first convolution is over 5 frames. Then there is one over 4 frames with stride 2 for each
    factor of 2 in the stride, and two over 3 positions. At a stride of 4 a position depends on 30
    frames. After the end of a sequence, the outputs of each layer are set to 0, like the padding at
    the edges.

    Args:
        stride: the number of frames of a position, a power of 2.
        width: the number of channels between the layers.
    """

    head: nn.Conv1d

    def __init__(
        self, inputs: int, num_classes: int, seed: int, stride: Count = 4, width: Count = 48
    ) -> None:
        super().__init__(stride)
        halvings = stride.bit_length() - 1
        power_of_two = 2**halvings
        if stride != power_of_two:
            raise UsageError(f"stride = {stride}: expected a power of 2, such as {power_of_two}")
        first = nn.Conv1d(inputs, width, 5, padding=2)
        halving = [nn.Conv1d(width, width, 4, stride=2, padding=1) for _ in range(halvings)]
        last = nn.Conv1d(width, width, 3, padding=1)
        self.body = nn.ModuleList([first, *halving, last])
        self.head = nn.Conv1d(width, num_classes + 1, 3, padding=1)
        initialise(self, seed)

    def logits(self, frames: Tensor, present: Tensor) -> Tensor:
        for layer in self.body:
            frames = nn.functional.leaky_relu(layer(frames), SLOPE)
            is_halved = frames.shape[2] < present.shape[2]
            if is_halved:
                present = present.unflatten(2, (-1, 2)).any(dim=3)
            frames = frames.masked_fill(~present, 0)
        logits: Tensor = self.head(frames)
        return logits


class SequenceGRU(SequenceNetwork):
    """Two gated recurrent units over blocks of frames, one forwards and one backwards in time.

    The backward unit begins with the last block of each sequence. On a GPU torch cannot compute
    second derivatives of this network, which the optimiser psgd needs.

    Source: K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation", EMNLP 2014; blocks of frames as in H. Sak et al., "Fast and
    Accurate Recurrent Neural Network Acoustic Models for Speech Recognition", Interspeech 2015.

    Args:
        stride: the number of frames of a position.
        width: the size of the state of each unit.
    """

    head: nn.Linear

    def __init__(
        self, inputs: int, num_classes: int, seed: int, stride: Count = 4, width: Count = 48
    ) -> None:
        super().__init__(stride)
        self.forwards = nn.GRU(inputs * stride, width, batch_first=True)
        self.backwards = nn.GRU(inputs * stride, width, batch_first=True)
        self.head = nn.Linear(2 * width, num_classes + 1)
        initialise(self, seed)

    def logits(self, frames: Tensor, present: Tensor) -> Tensor:
        # (B, K, F * stride), the frames of each block side by side.
        blocks = frames.unflatten(2, (-1, self.stride)).permute(0, 2, 1, 3).flatten(2)
        # A block is present if its first frame is, as only frames at the end may be missing.
        is_present = present[:, 0, :: self.stride]
        number = torch.arange(is_present.shape[1], device=present.device)
        last = is_present.sum(dim=1, keepdim=True) - 1
        # The index of each block when the blocks of a sequence are reversed. Blocks after the end
        # of the sequence stay where they are.
        reverse = torch.where(is_present, last - number, number).unsqueeze(2)

        ahead, _ = self.forwards(blocks)
        reversed_blocks = blocks.gather(1, reverse.expand_as(blocks))
        back, _ = self.backwards(reversed_blocks)
        # The same index restores the order.
        back = back.gather(1, reverse.expand_as(back))
        logits: Tensor = self.head(torch.cat([ahead, back], dim=2))
        return logits.transpose(1, 2)
