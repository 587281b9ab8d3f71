"""Files of sequences: how arrays and sounds become frames, and that bad files are named."""

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

FRAMES = SequenceOptions(table="", frames_per_second=50, bands=16)
WAVEFORMS = replace(FRAMES, sample_rate=RATE)
WAVE = np.sin(np.arange(RATE) * 0.7).astype(np.float32) * 0.5
"""A second of sound."""


def load(folder: Path, *names: str, options: SequenceOptions = FRAMES) -> OwnBags:
    """Return the bags of a table of these files, all of the class x."""
    rows = [f"{name},x" for name in names]
    (folder / "t.csv").write_text("\n".join(["file,labels", *rows]))
    return load_bags(folder / "t.csv", options)


def frames(bags: OwnBags) -> list[torch.Tensor]:
    """Return the features of each bag, (features, frames)."""
    return [torch.from_numpy(bags.store.single(bag).copy()).T for bag in range(len(bags))]


def write_wav(path: Path, samples: np.ndarray) -> None:
    """Write samples without rounding them."""
    soundfile.write(path, samples, RATE, subtype="FLOAT")


def test_an_array_of_samples_becomes_frames_of_bands(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WAVE)
    loaded = load(tmp_path, "w.npy", options=WAVEFORMS)
    assert loaded.frames_per_second == 50
    assert frames(loaded)[0].shape == (16, 50)


def test_wav_and_npy_of_one_waveform_have_the_same_frames(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WAVE)
    write_wav(tmp_path / "w.wav", WAVE)
    of_npy, of_wav = frames(load(tmp_path, "w.npy", "w.wav", options=WAVEFORMS))
    torch.testing.assert_close(of_wav, of_npy)


def test_the_channels_of_a_recording_are_averaged(tmp_path: Path) -> None:
    quieter = 0.5 * WAVE
    louder = 1.5 * WAVE
    write_wav(tmp_path / "one.wav", WAVE)
    write_wav(tmp_path / "two.wav", np.stack([quieter, louder], axis=1))
    one, two = frames(load(tmp_path, "one.wav", "two.wav", options=WAVEFORMS))
    torch.testing.assert_close(two, one, atol=1e-4, rtol=1e-4)


def test_frames_of_an_array_are_taken_as_they_are(tmp_path: Path) -> None:
    # Four frames of three features.
    values = np.arange(12, dtype=np.int16).reshape(4, 3)
    np.save(tmp_path / "f.npy", values)
    loaded = load(tmp_path, "f.npy")
    assert loaded.frames_per_second == 50
    assert frames(loaded)[0].tolist() == values.T.tolist()


BAD_FILES = ["cube.npy", "none.npy", "wave.npy", "cut.npy", "noise.wav", "text.mp4", "away.wav"]


@pytest.fixture
def complaint_about_files(tmp_path: Path) -> str:
    """The message about a table with a good file in row 2 and bad files in rows 3 to 9."""
    np.save(tmp_path / "good.npy", np.zeros((4, 3)))
    np.save(tmp_path / "cube.npy", np.zeros((4, 3, 2)))
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    np.save(tmp_path / "wave.npy", WAVE)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:90])
    (tmp_path / "noise.wav").write_bytes(b"RIFFno sound")
    (tmp_path / "text.mp4").write_text("x")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "good.npy", *BAD_FILES)
    return str(caught.value)


def test_files_that_cannot_be_read_are_counted(complaint_about_files: str) -> None:
    assert "7 of 8 files cannot be read" in complaint_about_files
    assert "good.npy" not in complaint_about_files


@pytest.mark.parametrize(("row", "name"), enumerate(BAD_FILES, start=3))
def test_every_file_that_cannot_be_read_is_named_with_its_row(
    complaint_about_files: str, row: int, name: str
) -> None:
    assert f"t.csv, row {row}: {name}: " in complaint_about_files


def test_a_waveform_without_its_rate_is_named_with_the_option(complaint_about_files: str) -> None:
    assert "needs -p task.sample_rate" in complaint_about_files


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "0.wav", WAVE, RATE)
    soundfile.write(tmp_path / "1.wav", WAVE, RATE)
    soundfile.write(tmp_path / "2.wav", WAVE, 2 * RATE)
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    complaint = "2 of 4 files are not as the others, which have a waveform of 4000"
    with pytest.raises(UsageError, match=complaint) as caught:
        load(tmp_path, "0.wav", "1.wav", "2.wav", "f.npy")
    assert "t.csv, row 4: 2.wav has a waveform of 8000" in str(caught.value)
    assert "f.npy has frames of 3 features" in str(caught.value)


@pytest.fixture
def of_three_lengths(tmp_path: Path) -> OwnBags:
    """Three recordings: a second of silence, seven seconds of sound, and 100 samples of sound."""
    soundfile.write(tmp_path / "silence.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "long.wav", np.tile(WAVE, 7), RATE)
    soundfile.write(tmp_path / "short.wav", WAVE[:100], RATE)
    return load(tmp_path, "silence.wav", "long.wav", "short.wav")


def test_recordings_keep_their_lengths(of_three_lengths: OwnBags) -> None:
    # There are 50 frames a second. 100 samples are a fortieth of a second, 1.25 frames: a frame
    # that has begun counts.
    assert of_three_lengths.store.sizes.tolist() == [50, 350, 2]


def test_the_logarithm_of_silence_is_finite(of_three_lengths: OwnBags) -> None:
    torch.testing.assert_close(frames(of_three_lengths)[0], torch.full((16, 50), 1e-10).log())


def test_recordings_of_other_content_have_other_digests(of_three_lengths: OwnBags) -> None:
    assert len({bytes(digest) for digest in of_three_lengths.store.digests}) == 3


def load_text(folder: Path, text: str) -> OwnBags:
    """Return the bags of a table with this text, beside three files of frames."""
    (folder / "t.csv").write_text(text, "utf-8")
    (folder / "sub").mkdir(exist_ok=True)
    for number, name in enumerate(["a.npy", "sub/b.npy", "c, d.npy"]):
        values = np.random.default_rng(number).normal(size=(5, 2))
        np.save(folder / name, values)
    return load_bags(folder / "t.csv", SequenceOptions(table=""))


@pytest.fixture
def table(tmp_path: Path) -> OwnBags:
    """The bags of a table with every column that has a meaning, and one that has none."""
    return load_text(
        tmp_path,
        '\ufefffile,labels,split,group,events,note\n'
        'a.npy,dog; cat,train,x,"[[""dog"", 1, 2.5], [""cat"", 0.5, 0.75], [""dog"", 3, 4]]",?\n'
        'sub/b.npy,,test,y,[],\n'
        '"c, d.npy",Käuzchen;Käuzchen,validation,x,,\n',
    )  # fmt: skip


def test_files_are_bags_with_label_sets(table: OwnBags) -> None:
    assert table.bags == ["a.npy", "sub/b.npy", "c, d.npy"]
    assert table.class_names == ["Käuzchen", "cat", "dog"]
    assert table.labels.tolist() == [[False, True, True], [False] * 3, [True, False, False]]


def test_columns_of_the_usual_names_are_split_and_groups(table: OwnBags) -> None:
    assert table.split == ["train", "test", "validation"]
    assert table.groups == ["x", "y", "x"]
    assert table.ignored == ["note"]


def test_events_are_kept_in_the_order_in_which_they_begin(table: OwnBags) -> None:
    cat, dog = 1, 2
    assert table.marks == [[(cat, (0.5, 0.75)), (dog, (1, 2.5)), (dog, (3, 4))], [], []]


def test_a_file_of_no_class_needs_no_events(table: OwnBags) -> None:
    assert table.marked().tolist() == [True, True, False]


def test_a_table_without_events_has_no_annotations(tmp_path: Path) -> None:
    assert load_text(tmp_path, "file,labels\na.npy,x\n").marks is None


def test_a_file_in_two_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"t\.csv, row 3: 'a.npy' is the sequence of row 2 too"
    ) as caught:
        load_text(tmp_path, "file,labels\na.npy,x\na.npy,y\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        pytest.param('[""x"", 1]', r"\['x', 1\] is wrong; expected \[class", id="no end"),
        pytest.param('[""x"", 2, 1]', r"\['x', 2, 1\] is wrong", id="backward"),
        pytest.param('[""x"", NaN, 1]', r".* is wrong", id="no number"),
    ],
)
def test_a_wrong_event_is_one_line_that_names_its_row(
    tmp_path: Path, event: str, complaint: str
) -> None:
    text = f'file,labels,events\na.npy,x,"[{event}]"\n'
    with pytest.raises(UsageError, match=rf"t\.csv, row 2: events: {complaint}") as caught:
        load_text(tmp_path, text)
    assert "\n" not in str(caught.value)
