"""Log-mel frames: how much power a waveform has in each frequency band, as time goes on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.errors import UsageError

LEAST_POWER = 1e-10  # power that is added in each band, so that the logarithm of silence is finite; 100 dB below 1


@dataclass(frozen=True, slots=True)
class LogMel:
    """Log-mel frames of waveforms: triangular bands, evenly spaced in mel, of a short-time Fourier transform.

    Frame t is about the samples t * hop up to (t + 1) * hop, which are in the middle of its Hann window of `window`
    samples. Outside the waveform there is silence. So that a time in seconds is a place in frames: seconds *
    sample_rate / hop. The F bands go from 0 Hz to half the sample rate. UsageError: the numbers do not fit together.
    """

    sample_rate: int
    hop: int
    window: int
    bands: int

    def __post_init__(self) -> None:
        if not bool(self.filters().any(dim=1).all()):
            windows = f"windows of {self.window} samples at {self.sample_rate} a second"
            remedy = "some hold no frequency; expected fewer bands or longer windows"
            raise UsageError(f"{self.bands} bands are too many for {windows}: {remedy}")

    @property
    def frames_per_second(self) -> float:
        """The number of frames in a second."""
        return self.sample_rate / self.hop

    def count(self, samples: int) -> int:
        """Return T, the number of frames of a waveform: samples / hop, rounded up."""
        return -(-samples // self.hop)

    def filters(self) -> Tensor:
        """Return (F, window // 2 + 1), the weight of each frequency of the transform in each band, 1 at most."""
        # mel = 2595 log10(1 + f / 700) (D. O'Shaughnessy, "Speech Communication", 1987)
        top = 2595 * torch.log10(torch.tensor(1 + self.sample_rate / 2 / 700, dtype=torch.float64))
        corners = 700 * (
            10 ** (torch.linspace(0, 1, self.bands + 2, dtype=torch.float64) * top / 2595) - 1
        )
        low, middle, high = (corners[i : i + self.bands].unsqueeze(1) for i in range(3))
        frequencies = torch.linspace(
            0, self.sample_rate / 2, self.window // 2 + 1, dtype=torch.float64
        )
        up, down = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
        return torch.minimum(up, down).clamp(min=0).float()

    def __call__(self, waveforms: Tensor) -> Tensor:
        """Return the log-mel frames (B, F, T) of waveforms (B, S), T as `count` says."""
        samples = waveforms.shape[-1]
        frames = self.count(samples)
        before = (self.window - self.hop) // 2
        after = (frames - 1) * self.hop + self.window - before - samples
        shape = torch.hann_window(self.window, device=waveforms.device)
        padded = torch.nn.functional.pad(waveforms, (before, after))
        spectrum = torch.stft(
            padded, self.window, self.hop, window=shape, center=False, return_complex=True
        )
        power = (spectrum.real.square() + spectrum.imag.square()) / shape.square().sum()
        return torch.log(self.filters().to(power) @ power + LEAST_POWER)
