"""Files of sequences: what becomes of arrays and sounds, and one line for what cannot be read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from milbench import UsageError
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import SequenceOptions
from tests._helpers.sequence_files import RATE

SETTINGS = SequenceOptions(table="", frames_per_second=50, bands=16)
WAVEFORMS = replace(SETTINGS, sample_rate=RATE)
WAVE = np.sin(np.arange(RATE) * 0.7).astype(np.float32) * 0.5


def load(folder: Path, *names: str, columns: SequenceOptions = SETTINGS) -> OwnBags:
    (folder / "t.csv").write_text("\n".join(["file,labels", *(f"{name},x" for name in names)]))
    return load_bags(folder / "t.csv", columns)


def frames(bags: OwnBags) -> list[torch.Tensor]:
    return [torch.from_numpy(bags.store.single(bag).copy()).T for bag in range(len(bags))]


def test_wav_and_npy_of_one_waveform_have_the_same_frames(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WAVE)
    soundfile.write(tmp_path / "w.wav", WAVE, RATE, subtype="FLOAT")
    soundfile.write(
        tmp_path / "two.wav", np.stack([0.5 * WAVE, 1.5 * WAVE], axis=1), RATE, subtype="FLOAT"
    )
    loaded = load(tmp_path, "w.npy", "w.wav", "two.wav", columns=WAVEFORMS)
    assert loaded.frames_per_second == 50
    assert frames(loaded)[0].shape == (16, 50)
    torch.testing.assert_close(frames(loaded)[1], frames(loaded)[0])
    torch.testing.assert_close(frames(loaded)[2], frames(loaded)[0], atol=1e-4, rtol=1e-4)


def test_frames_of_an_array_are_taken_as_they_are(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int16).reshape(4, 3)  # four frames of three features
    np.save(tmp_path / "f.npy", values)
    loaded = load(tmp_path, "f.npy")
    assert loaded.frames_per_second == 50
    assert frames(loaded)[0].tolist() == values.T.tolist()


def test_all_files_that_cannot_be_read_are_in_one_line(tmp_path: Path) -> None:
    arrays = {
        "good": np.zeros((4, 3)),
        "cube": np.zeros((4, 3, 2)),
        "none": np.zeros((0, 3)),
        "wave": WAVE,
    }
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:90])
    (tmp_path / "noise.wav").write_bytes(b"RIFFno sound")
    (tmp_path / "text.mp4").write_text("x")
    bad = ["cube.npy", "none.npy", "wave.npy", "cut.npy", "noise.wav", "text.mp4", "away.wav"]
    with pytest.raises(UsageError, match="7 of 8 files cannot be read") as caught:
        load(tmp_path, "good.npy", *bad)
    assert all(
        f"t.csv, row {row}: {name}: " in str(caught.value) for row, name in enumerate(bad, start=3)
    )
    assert "good.npy" not in str(caught.value)
    assert "needs -p task.sample_rate" in str(caught.value)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    for number, rate in enumerate((RATE, RATE, 2 * RATE)):
        soundfile.write(tmp_path / f"{number}.wav", WAVE, rate)
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    with pytest.raises(
        UsageError, match="2 of 4 files are not as the others, which have a waveform of 4000"
    ) as caught:
        load(tmp_path, "0.wav", "1.wav", "2.wav", "f.npy")
    assert "t.csv, row 4: 2.wav has a waveform of 8000" in str(caught.value)
    assert "f.npy has frames of 3 features" in str(caught.value)


def test_silence_is_finite_and_recordings_keep_their_lengths(
    tmp_path: Path,
) -> None:
    soundfile.write(tmp_path / "silence.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "long.wav", np.tile(WAVE, 7), RATE)
    soundfile.write(tmp_path / "short.wav", WAVE[:100], RATE)
    loaded = load(tmp_path, "silence.wav", "long.wav", "short.wav")
    assert loaded.store.sizes.tolist() == [50, 350, 2], "a begun frame counts"
    torch.testing.assert_close(frames(loaded)[0], torch.full((16, 50), 1e-10).log())
    assert len({bytes(digest) for digest in loaded.store.digests}) == 3


def load_text(folder: Path, text: str) -> OwnBags:
    """Return the table of a text, all of whose files are there."""
    (folder / "t.csv").write_text(text, "utf-8")
    (folder / "sub").mkdir(exist_ok=True)
    for n, name in enumerate(
        ("a.npy", "b.npy", "sub/b.npy", "c, d.npy", "x.npy", "y.npy", "007.npy", "1e3.npy")
    ):
        np.save(folder / name, np.random.default_rng(n).normal(size=(5, 2)))
    return load_bags(folder / "t.csv", SequenceOptions(table=""))


def test_a_table_is_read(tmp_path: Path) -> None:
    table = load_text(
        tmp_path,
        '\ufefffile,labels,split,group,events,note\n'
        'a.npy,dog; cat,train,x,"[[""dog"", 1, 2.5], [""cat"", 0.5, 0.75], [""dog"", 3, 4]]",?\n'
        'sub/b.npy,,test,y,[],\n'
        '"c, d.npy",Käuzchen;Käuzchen,validation,x,,\n',
    )  # fmt: skip
    assert table.bags == ["a.npy", "sub/b.npy", "c, d.npy"]
    assert table.class_names == ["Käuzchen", "cat", "dog"]
    assert table.labels.tolist() == [[False, True, True], [False] * 3, [True, False, False]]
    assert table.split == ["train", "test", "validation"]
    assert table.groups == ["x", "y", "x"]
    assert table.ignored == ["note"]
    assert table.marks == [[(1, (0.5, 0.75)), (2, (1, 2.5)), (2, (3, 4))], [], []], "as they begin"
    assert table.marked().tolist() == [True, True, False]
    assert load_text(tmp_path, "file,labels\na.npy,x\n").marks is None


@pytest.mark.parametrize(("text", "complaint"), [
    ("file,labels\na.npy,x\na.npy,y\n", "row 3: 'a.npy' is the sequence of row 2 too"),
    ('file,labels,events\na.npy,x,"[[""x"", 1]]"\n', r"row 2: events: \['x', 1\] is wrong; expected \[class"),
    ('file,labels,events\na.npy,x,"[[""x"", 2, 1]]"\n', r"row 2: events: \['x', 2, 1\] is wrong"),
    ('file,labels,events\na.npy,x,"[[""x"", NaN, 1]]"\n', r"row 2: events: .* is wrong"),
])  # fmt: skip
def test_a_wrong_table_is_one_line_that_names_the_place(
    text: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_text(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)
