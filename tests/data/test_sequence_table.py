"""Tables of sequences: what is read, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from milbench import UsageError
from milbench.data.sequence_files import FrameSettings, load_frames
from milbench.data.sequence_table import Event, read_table
from tests._helpers.sequence_files import RATE

SETTINGS = FrameSettings(frames_per_second=50, bands=16)
WAVE = np.sin(np.arange(RATE) * 0.7).astype(np.float32) * 0.5


def table(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, "utf-8")
    return path


def test_a_table_is_read(tmp_path: Path) -> None:
    text = (
        '\ufefffile,labels,split,events,note\n'
        'a.npy,dog; cat,train,"[[""dog"", 1, 2.5], [""cat"", 0.5, 0.75], [""dog"", 3, 4]]",x\n'
        'sub/b.wav,,test,[],\n'
        '"c, d.npy",Käuzchen;Käuzchen,validation,,\n'
    )  # fmt: skip
    first, second, third = read_table(table(tmp_path, text))
    assert first.path == tmp_path / "a.npy"
    assert first.labels == ("cat", "dog")
    assert first.events == (Event("cat", 0.5, 0.75), Event("dog", 1, 2.5), Event("dog", 3, 4)), "as they begin"
    assert (second.path, second.labels, second.split, second.events) == (tmp_path / "sub/b.wav", (), "test", ())
    assert (third.path.name, third.labels, third.events) == ("c, d.npy", ("Käuzchen",), None)


@pytest.mark.parametrize(("text", "complaint"), [
    ("", "has no column 'file'; its columns are: none"),
    ("files,labels\na,b\n", "has no column 'file'; its columns are: files, labels"),
    ("file,labels\n", "has no rows below its header"),
    ("file,labels\na.npy,\n", "no row has a label"),
    ("file,labels\na.npy,x\n,y\n", "line 3: no file is named"),
    ("file,labels\na.npy,x;;y\n", "line 2: labels 'x;;y' has an empty name"),
    ("file,labels\na.npy,x,y\n", "line 2: it has more or fewer cells"),
    ("file,labels,split\na.npy,x\n", "line 2: it has more or fewer cells"),
    ("file,labels,split\na.npy,x,trian\n", "line 2: unknown split 'trian'; did you mean 'train'"),
    ('file,labels,events\na.npy,x,"[[""x"", 1]]"\n', "line 2: events .* cannot be read .* expected JSON as"),
    ("file,labels,events\na.npy,x,{\n", "line 2: events '{' cannot be read"),
    ('file,labels,events\na.npy,x,"[[""x"", 2, 1]]"\n', r"line 2: event \['x', 2.0, 1.0\] is wrong"),
    ('file,labels,events\na.npy,x,"[[""x"", NaN, 1]]"\n', r"line 2: event .* is wrong"),
    ('file,labels,events\na.npy,x;z,"[[""y"", 0, 1]]"\n', "'x;z', but the classes of the events are 'y'"),
    ('file,labels\n"a.npy,x\n', "line 1: unexpected end of data"),
])  # fmt: skip
def test_a_wrong_table_is_one_line_that_names_the_place(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        read_table(table(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_a_missing_table_and_one_of_another_encoding_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No such file or directory: .*none.csv"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "l.csv").write_bytes("file,labels\na,ä\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"l.csv is no table in UTF-8: byte 14 is wrong"):
        read_table(tmp_path / "l.csv")


def test_wav_and_npy_of_one_waveform_have_the_same_frames(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WAVE)
    soundfile.write(tmp_path / "w.wav", WAVE, RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "two.wav", np.stack([0.5 * WAVE, 1.5 * WAVE], axis=1), RATE, subtype="FLOAT")
    settings = FrameSettings(50, 16, sample_rate=RATE)
    loaded = load_frames([tmp_path / name for name in ("w.npy", "w.wav", "two.wav")], settings)
    assert loaded.frames_per_second == 50
    assert loaded.frames[0].shape == (16, 50)
    torch.testing.assert_close(loaded.frames[1], loaded.frames[0])
    torch.testing.assert_close(loaded.frames[2], loaded.frames[0], atol=1e-4, rtol=1e-4)


def test_frames_of_an_array_are_taken_as_they_are(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int16).reshape(4, 3)  # four frames of three features
    np.save(tmp_path / "f.npy", values)
    loaded = load_frames([tmp_path / "f.npy"], SETTINGS)
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
        load_frames([tmp_path / name for name in ["good.npy", *bad]], SETTINGS)
    assert all(name in str(caught.value) for name in bad)
    assert "good.npy" not in str(caught.value)
    assert "needs the parameter sample_rate" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    paths = []
    for number, rate in enumerate((RATE, RATE, 2 * RATE)):
        paths.append(tmp_path / f"{number}.wav")
        soundfile.write(paths[-1], WAVE, rate)
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    with pytest.raises(UsageError, match="2 of 4 files are not as the others, which have a waveform of 4000") as caught:
        load_frames([*paths, tmp_path / "f.npy"], SETTINGS)
    assert "2.wav has a waveform of 8000" in str(caught.value)
    assert "f.npy has frames of 3 features" in str(caught.value)
