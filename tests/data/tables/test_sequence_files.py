"""Files of sequences: what becomes of arrays and sounds, and one line for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from milbench import UsageError
from milbench.data.tables.sequence_files import FrameSettings, LoadedFrames, load_frames
from tests._helpers.sequence_files import RATE

SETTINGS = FrameSettings(frames_per_second=50, bands=16)
WAVE = np.sin(np.arange(RATE) * 0.7).astype(np.float32) * 0.5


def load(folder: Path, *names: str, settings: FrameSettings = SETTINGS) -> LoadedFrames:
    return load_frames(folder / "t.csv", names, settings)


def test_wav_and_npy_of_one_waveform_have_the_same_frames(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WAVE)
    soundfile.write(tmp_path / "w.wav", WAVE, RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "two.wav", np.stack([0.5 * WAVE, 1.5 * WAVE], axis=1), RATE, subtype="FLOAT")
    loaded = load(tmp_path, "w.npy", "w.wav", "two.wav", settings=FrameSettings(50, 16, sample_rate=RATE))
    assert loaded.frames_per_second == 50
    assert loaded.frames[0].shape == (16, 50)
    torch.testing.assert_close(loaded.frames[1], loaded.frames[0])
    torch.testing.assert_close(loaded.frames[2], loaded.frames[0], atol=1e-4, rtol=1e-4)


def test_frames_of_an_array_are_taken_as_they_are(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int16).reshape(4, 3)  # four frames of three features
    np.save(tmp_path / "f.npy", values)
    loaded = load(tmp_path, "f.npy")
    assert loaded.frames_per_second == 50
    assert loaded.frames[0].tolist() == values.T.tolist()


def test_all_files_that_cannot_be_read_are_in_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.zeros((4, 3)))
    np.save(tmp_path / "cube.npy", np.zeros((4, 3, 2)))
    np.save(tmp_path / "nan.npy", np.full((4, 3), np.nan))
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    np.save(tmp_path / "wave.npy", WAVE)
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:90])
    (tmp_path / "noise.wav").write_bytes(b"RIFFno sound")
    (tmp_path / "text.mp4").write_text("x")
    bad = ["cube.npy", "nan.npy", "none.npy", "wave.npy", "pickle.npy", "cut.npy", "noise.wav", "text.mp4", "away.wav"]
    with pytest.raises(UsageError, match="9 of 10 files cannot be read") as caught:
        load(tmp_path, "good.npy", *bad)
    assert all(f"t.csv, row {row}: {name}: " in str(caught.value) for row, name in enumerate(bad, start=3))
    assert "good.npy" not in str(caught.value)
    assert "needs sample_rate" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    for number, rate in enumerate((RATE, RATE, 2 * RATE)):
        soundfile.write(tmp_path / f"{number}.wav", WAVE, rate)
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    with pytest.raises(UsageError, match="2 of 4 files are not as the others, which have a waveform of 4000") as caught:
        load(tmp_path, "0.wav", "1.wav", "2.wav", "f.npy")
    assert "t.csv, row 4: 2.wav has a waveform of 8000" in str(caught.value)
    assert "f.npy has frames of 3 features" in str(caught.value)


@pytest.mark.parametrize(("subtype", "step"), [("PCM_U8", 2.0**-7), ("PCM_16", 2.0**-15), ("PCM_24", 2.0**-23)])
def test_every_depth_of_wav_has_the_power_of_the_sound(tmp_path: Path, subtype: str, step: float) -> None:
    """A second of a loud tone, then a second of silence, which is a level of 128 in a file of 8 bits."""
    wave = np.concatenate([WAVE, np.zeros(RATE, np.float32)])
    soundfile.write(tmp_path / "w.wav", wave, RATE, subtype=subtype)
    np.save(tmp_path / "w.npy", wave)
    exact, found = (one.exp() for one in load(tmp_path, "w.npy", "w.wav", settings=FrameSettings(50, 16, RATE)).frames)
    torch.testing.assert_close(found[:, :49], exact[:, :49], rtol=0.01, atol=16 * step**2)
    assert found[:, 51:].max() <= 1.1e-10, "silence has the least power"


def test_a_recording_of_silence_is_finite_and_one_of_many_lengths_keeps_its_own(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silence.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "long.wav", np.tile(WAVE, 7), RATE)
    soundfile.write(tmp_path / "short.wav", WAVE[:100], RATE)
    loaded = load(tmp_path, "silence.wav", "long.wav", "short.wav")
    assert loaded.lengths.tolist() == [50, 350, 2], "a begun frame counts"
    torch.testing.assert_close(loaded.frames[0], torch.full((16, 50), 1e-10).log())
    assert len({loaded.digest(number) for number in range(3)}) == 3


def test_files_are_read_anew_where_one_has_changed(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    assert load(tmp_path, "f.npy") is load(tmp_path, "f.npy")
    np.save(tmp_path / "f.npy", np.ones((5, 3)))
    assert load(tmp_path, "f.npy").frames[0].shape == (3, 5)
