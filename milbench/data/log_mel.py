"""Log-mel frames: how much power a waveform has in each band of frequencies, at each time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.errors import UsageError

LEAST_POWER = 1e-10
"""The power that is added in each band, so that the logarithm of silence is finite."""


@dataclass(frozen=True, slots=True)
class LogMel:
    """Computes the log-mel frames of waveforms, by a short-time Fourier transform.

    Each frame has F numbers: the logarithm of the power in each of F triangular bands. The bands
    are evenly spaced in mel, from 0 Hz to half the sample rate.

    Frame t describes the samples from t * hop up to (t + 1) * hop. They are in the middle of its
    Hann window. Before and after the waveform there is silence. The time s in seconds thus falls
    into frame s * sample_rate / hop, rounded down.

    UsageError is raised where a band holds no frequency of the transform.
    """

    sample_rate: int
    """Samples a second."""
    hop: int
    """How many samples it is from one frame to the next."""
    window: int
    """How many samples a window has."""
    bands: int
    """F, the number of bands."""

    def __post_init__(self) -> None:
        has_frequencies = self.filters().any(dim=1)
        if not has_frequencies.all():
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
        """Return (F, window // 2 + 1), the weight of each frequency in each band, from 0 to 1."""
        # mel = 2595 log10(1 + f / 700) (D. O'Shaughnessy, "Speech Communication", 1987)
        highest = self.sample_rate / 2
        top = 2595 * torch.log10(torch.tensor(1 + highest / 700, dtype=torch.float64))
        mels = torch.linspace(0, 1, self.bands + 2, dtype=torch.float64) * top
        corners = (700 * (10 ** (mels / 2595) - 1)).unsqueeze(1)
        # The triangle of a band rises from the middle of the band before to its own middle, and
        # falls to the middle of the band after.
        low = corners[:-2]
        middle = corners[1:-1]
        high = corners[2:]
        frequencies = torch.linspace(0, highest, self.window // 2 + 1, dtype=torch.float64)
        rising = (frequencies - low) / (middle - low)
        falling = (high - frequencies) / (high - middle)
        return torch.minimum(rising, falling).clamp(min=0).float()

    def __call__(self, waveforms: Tensor) -> Tensor:
        """Return the log-mel frames (B, F, T) of waveforms (B, S); T is `count(S)`."""
        samples = waveforms.shape[-1]
        frames = self.count(samples)
        # Silence at both ends puts the first samples into the middle of the first window, and the
        # last samples into the middle of the last window.
        before = (self.window - self.hop) // 2
        after = (frames - 1) * self.hop + self.window - before - samples
        padded = torch.nn.functional.pad(waveforms, (before, after))
        hann = torch.hann_window(self.window, device=waveforms.device)
        spectrum = torch.stft(
            padded, self.window, self.hop, window=hann, center=False, return_complex=True
        )
        # Divided by this sum, white noise of variance 1 has the power 1 at each frequency.
        power = (spectrum.real.square() + spectrum.imag.square()) / hann.square().sum()
        return torch.log(self.filters().to(power) @ power + LEAST_POWER)
