"""Log-mel frames: how much power a waveform has in each frequency band, as time goes on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.errors import UsageError

LEAST_POWER = 1e-10
"""Power that is added in each band, 100 dB below 1, so that the logarithm of silence is finite."""


@dataclass(frozen=True, slots=True)
class LogMel:
    """Log-mel frames of waveforms: triangular bands, evenly spaced in mel, of a short-time Fourier transform.

    Frame t is about the samples t * hop up to (t + 1) * hop, which are in the middle of its Hann
    window of `window` samples. Outside the waveform there is silence. A time in seconds is thus the
    place seconds * sample_rate / hop in frames. The F bands go from 0 Hz to half the sample rate.
    Raises UsageError where a band holds no frequency.
    """

    sample_rate: int
    hop: int
    window: int
    bands: int

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
        """Return (F, window // 2 + 1), the weight of each frequency of the transform in each band, 1 at most."""
        # mel = 2595 log10(1 + f / 700) (D. O'Shaughnessy, "Speech Communication", 1987)
        highest = self.sample_rate / 2
        top = 2595 * torch.log10(torch.tensor(1 + highest / 700, dtype=torch.float64))
        mels = torch.linspace(0, 1, self.bands + 2, dtype=torch.float64) * top
        corners = (700 * (10 ** (mels / 2595) - 1)).unsqueeze(1)
        # The triangle of a band rises from the middle of the band before, and falls to that of the
        # next one.
        low = corners[:-2]
        middle = corners[1:-1]
        high = corners[2:]
        frequencies = torch.linspace(0, highest, self.window // 2 + 1, dtype=torch.float64)
        rising = (frequencies - low) / (middle - low)
        falling = (high - frequencies) / (high - middle)
        return torch.minimum(rising, falling).clamp(min=0).float()

    def __call__(self, waveforms: Tensor) -> Tensor:
        """Return the log-mel frames (B, F, T) of waveforms (B, S), T as `count` says."""
        samples = waveforms.shape[-1]
        frames = self.count(samples)
        # Silence at both ends: the first samples are in the middle of the first window, the last in
        # that of the last.
        before = (self.window - self.hop) // 2
        after = (frames - 1) * self.hop + self.window - before - samples
        padded = torch.nn.functional.pad(waveforms, (before, after))
        hann = torch.hann_window(self.window, device=waveforms.device)
        spectrum = torch.stft(
            padded, self.window, self.hop, window=hann, center=False, return_complex=True
        )
        # White noise of variance 1 has the power 1 at each frequency.
        power = (spectrum.real.square() + spectrum.imag.square()) / hann.square().sum()
        return torch.log(self.filters().to(power) @ power + LEAST_POWER)
