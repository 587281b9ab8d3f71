"""Missing data sets in `milbench run` and `milbench reproduce`.

Before anything else they are fetched, asked about or refused.
"""

import functools
import hashlib
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from milbench import load_task
from milbench.cli import fetching
from milbench.contracts.registry import tasks
from milbench.data import catalog, sources
from milbench.data.catalog import Dataset, Extra, Part
from milbench.experiment.spec_files import read_spec
from milbench.running.data_needs import needed_datasets
from tests._helpers.command_line import SMALL, Milbench
from tests._helpers.small_data import PARAMS

CONTENT = b"numbers that a toy task could read"
LARGE = 2 * fetching.ASK_ABOVE
"""A size in bytes, above which `milbench` asks before it fetches a data set."""
TASK = """
from milbench.data import catalog
from tests._helpers.plugins.tiny_task import TinyTask


class Toy(TinyTask):
    \"\"\"A task that reads a data set of the catalogue.\"\"\"

    name = "toy"

    def datasets(self):
        return ["toy"]

    def check_data(self, data_dir):
        return catalog.check_dataset("toy", "Toys", data_dir, str, "go elsewhere", any_data=False)
"""


class Silent(SimpleHTTPRequestHandler):
    """A handler that does not print the requests that it gets."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of an archive with the toy data set, on a server of this machine."""
    served = tmp_path / "served"
    (served / "toy").mkdir(parents=True)
    (served / "toy" / "numbers").write_bytes(CONTENT)
    with tarfile.open(served / "toy.tar.gz", "w:gz") as archive:
        archive.add(served / "toy", "toy")
    handler = functools.partial(Silent, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/toy.tar.gz"
        server.shutdown()


Toys = Callable[..., list[str]]
"""Type of the fixture `toys`."""


@pytest.fixture
def toys(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Toys:
    """A function that puts a toy data set into the catalogue, and returns the words of a run on it.

    Its arguments are changed attributes of the data set.
    """

    def register(**changes: Any) -> list[str]:
        part = Part("toys/numbers", hashlib.md5(CONTENT).hexdigest())
        about: dict[str, Any] = {"parts": (part,), "size": 5_000_000, "licence": "CC0"} | changes
        dataset = Dataset(
            "toy",
            download=lambda folder, _: sources.unpack(address, folder, "toy", "toys"),
            **about,
        )
        monkeypatch.setattr(catalog, "DATASETS", {"toy": dataset})
        (tmp_path / "toy.py").write_text(TASK)
        (tmp_path / "data").mkdir()
        task = ["--task", str(tmp_path / "toy.py"), "--data-dir", str(tmp_path / "data")]
        return ["run", "--loss", "exact", *task, *SMALL]

    return register


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were asked, while a pretended user at a terminal says yes to each."""
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(fetching, "has_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    return asked


def test_with_download_a_missing_data_set_is_fetched_first(
    milbench: Milbench, toys: Toys, tmp_path: Path
) -> None:
    said = milbench(*toys(), "--download").done()
    folder = tmp_path / "data"
    assert (folder / "toys" / "numbers").read_bytes() == CONTENT
    about, checked, *rest = said.splitlines()
    assert about == f"fetching toy into {folder} (5.0 MB, licence: CC0)"
    assert checked == f"toy is present in {folder / 'toys'}; its checksums are as published"
    assert "the cell is done" in rest


def test_without_a_terminal_nothing_is_fetched_or_printed(
    milbench: Milbench, toys: Toys, tmp_path: Path
) -> None:
    ran = milbench(*toys())
    complaint = ran.complaint()
    assert f"not in {tmp_path / 'data'}: toy (5.0 MB, licence: CC0); add --download" in complaint
    assert "point --data-dir or MILBENCH_DATA at a folder with toys" in complaint
    assert ran.out == ""
    assert not [*(tmp_path / "data").iterdir()]


def test_the_folder_of_every_missing_data_set_is_named(milbench: Milbench, tmp_path: Path) -> None:
    tasks_of_two_data_sets = "extended-mnist,handwritten-words"
    where = ["--data-dir", str(tmp_path)]
    ran = milbench("run", "--loss", "exact", "--task", tasks_of_two_data_sets, *where)
    assert ran.complaint().endswith("at a folder with MNIST and ocr-letters")


def test_a_dry_run_shows_the_plan_and_fetches_nothing(
    milbench: Milbench, toys: Toys, tmp_path: Path
) -> None:
    first, *rest = milbench(*toys(), "--dry-run").done().splitlines()
    assert "toy (5.0 MB, licence: CC0); a dry run downloads nothing without --download" in first
    assert "1 cell, 1 to run" in rest[0]
    assert "no estimate of the time for toy without toy" in rest
    assert not [*(tmp_path / "data").iterdir()]


def test_a_dry_run_with_download_fetches(milbench: Milbench, toys: Toys, tmp_path: Path) -> None:
    milbench(*toys(), "--dry-run", "--download").done()
    assert (tmp_path / "data" / "toys" / "numbers").exists()


def test_on_a_terminal_a_small_data_set_is_fetched_unasked(
    milbench: Milbench, toys: Toys, questions: list[str]
) -> None:
    milbench(*toys()).done()
    assert questions == []


def test_on_a_terminal_a_large_data_set_is_asked_about(
    milbench: Milbench, toys: Toys, questions: list[str]
) -> None:
    milbench(*toys(size=LARGE)).done()
    assert questions == ["fetch toy (200 MB, licence: CC0)?"]


def test_a_no_to_the_question_fetches_nothing(
    milbench: Milbench, toys: Toys, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda _: False)
    assert "add --download" in milbench(*toys(size=LARGE)).complaint()


def test_no_download_is_obeyed_on_a_terminal(
    milbench: Milbench, toys: Toys, questions: list[str]
) -> None:
    assert "add --download" in milbench(*toys(), "--no-download").complaint()


def test_a_missing_extra_is_named_before_anything_is_fetched(
    milbench: Milbench, toys: Toys, tmp_path: Path
) -> None:
    ran = milbench(*toys(extra=Extra("no_such_library", "h5")), "--download")
    assert ran.complaint() == "toy needs the extra 'h5': pip install \"milbench[h5]\""
    assert ran.out == ""
    assert not [*(tmp_path / "data").iterdir()]


def test_a_download_with_another_checksum_is_refused(
    milbench: Milbench, toys: Toys, tmp_path: Path
) -> None:
    other = Part("toys/numbers", hashlib.md5(b"other numbers").hexdigest())
    ran = milbench(*toys(parts=(other,)), "--download")
    assert ran.code == 2
    assert "the download of toy is not what was expected" in ran.err.splitlines()[-1]
    assert not [*(tmp_path / "data").iterdir()]


def test_a_misspelt_data_set_is_refused_with_the_closest_name(milbench: Milbench) -> None:
    complaint = milbench("data", "fetch", "fashion-mnits").complaint()
    assert "unknown data set 'fashion-mnits'; did you mean 'fashion-mnist'" in complaint


def test_reproduce_refuses_missing_data_before_it_prints_a_plan(
    milbench: Milbench, tmp_path: Path
) -> None:
    ran = milbench("reproduce", "supplementary-a", "--data-dir", str(tmp_path))
    assert "mnist (12 MB, licence: CC BY-SA 3.0); add --download" in ran.complaint()
    assert ran.out == ""


def test_the_taste_of_the_paper_needs_no_data_set() -> None:
    assert needed_datasets(read_spec("supplementary-a", "taste")) == []
    of_all = needed_datasets(read_spec("supplementary-a"))
    assert [dataset.name for dataset in of_all] == ["mnist"]


@pytest.mark.parametrize(
    ("task", "params", "names"),
    [
        pytest.param("svhn", {}, ["svhn"], id="svhn"),
        pytest.param("svhn", {"parts": "train+extra"}, ["svhn", "svhn-extra"], id="svhn-extra"),
        pytest.param("extended-mnist", {"data": "kmnist"}, ["kmnist"], id="kmnist"),
        pytest.param("extended-mnist", {"any_data": True}, [], id="any data"),
        pytest.param("soundscapes", {}, ["esc10"], id="esc10"),
        pytest.param("handwritten-words", {}, ["ocr-letters"], id="ocr-letters"),
    ],
)
def test_a_task_names_the_data_sets_of_its_parameters(
    task: str, params: dict[str, Any], names: list[str]
) -> None:
    assert [*load_task(task, **params).datasets()] == names


def test_every_task_names_data_sets_of_the_catalogue() -> None:
    for name in tasks().names():
        task = load_task(name, **PARAMS.get(name, {}))
        assert set(task.datasets()) <= catalog.DATASETS.keys(), name


def test_every_download_of_the_catalogue_has_a_size() -> None:
    assert all(dataset.size > 0 for dataset in catalog.DATASETS.values())
