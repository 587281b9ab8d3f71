from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milbench.errors import StoreAwayError, StoreError, UsageError
from milbench.store import spool
from milbench.store.records import MetricValue
from milbench.store.spool import Spool, patience, patiently

NAN = MetricValue(math.nan, 1_700_000_000_123, 3)


class Store:
    """A store in memory that does not answer after some requests, and knows of no run called "gone"."""

    def __init__(self, answers: float = math.inf) -> None:
        self.answers = answers
        self.requests = 0
        self.made: list[tuple[str, ...]] = []

    def tag(self, run_id: str, tags: dict[str, str]) -> None:
        self._answer(run_id)
        self.made.append((run_id, repr(tags)))

    def log(self, run_id: str, params: dict[str, str], metrics: Iterable[tuple[str, MetricValue]]) -> None:
        self._answer(run_id)
        self.made.append((run_id, repr(params), *(f"{name} {value!r}" for name, value in metrics)))

    def log_file(self, run_id: str, path: Path) -> None:
        self._answer(run_id)
        self.made.append((run_id, path.name, path.read_text()))

    def _answer(self, run_id: str) -> None:
        self.requests += 1
        if self.requests > self.answers:
            raise StoreAwayError("no answer")
        if run_id == "gone":
            raise StoreError("no such run")

    @property
    def content(self) -> list[tuple[str, ...]]:
        """What was written, the first time it was."""
        return list(dict.fromkeys(self.made))


@pytest.fixture(autouse=True)
def ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "AGAIN", 0.0)


def write_all(into: Spool, folder: Path) -> None:
    """Make every kind of write, with values that JSON or a line could break."""
    into.write("a", "tag", tags={"note": 'ü\n"x"'})
    into.write(
        "a", "log", params={"loss": "exact"}, metrics=[("test/error", NAN), ("test/error", MetricValue(0.1, 5, 4))]
    )
    weights = folder / "model.safetensors"
    weights.write_text("weights")
    into.write("a", "log_file", path=weights)
    weights.unlink()
    into.write("a", "tag", tags={"end": "1"})


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[str, ...]]:
    store = Store()
    write_all(Spool(tmp_path / "unused", store), tmp_path)
    assert not (tmp_path / "unused").exists()
    return store.made


@pytest.mark.parametrize("answers", range(4))
def test_writes_that_found_no_server_arrive_in_order_when_it_is_back(
    answers: int, tmp_path: Path, expected: list[tuple[str, ...]]
) -> None:
    store = Store(answers)
    kept = Spool(tmp_path / "spool", store)
    write_all(kept, tmp_path)
    assert store.made == expected[:answers]
    assert kept.waiting() == ["a"]
    store.answers = math.inf
    Spool(tmp_path / "spool", store).deliver("a")  # by another process
    assert store.made == expected
    kept.write("a", "tag", tags={"more": "2"})
    assert store.made == [*expected, ("a", "{'more': '2'}")]
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_next_write_delivers_those_that_wait(tmp_path: Path, expected: list[tuple[str, ...]]) -> None:
    store = Store(0)
    kept = Spool(tmp_path / "spool", store)
    write_all(kept, tmp_path)
    store.answers = math.inf
    kept.write("b", "tag", tags={})
    assert kept.waiting() == ["a"]  # a run delivers its own
    kept.write("a", "tag", tags={"more": "2"})
    assert store.made == [("b", "{}"), *expected, ("a", "{'more': '2'}")]


def test_a_delivery_that_breaks_off_is_completed_by_the_next(tmp_path: Path, expected: list[tuple[str, ...]]) -> None:
    store = Store(0)
    kept = Spool(tmp_path / "spool", store)
    write_all(kept, tmp_path)
    for answered in range(len(expected)):
        store.requests, store.answers = 0, answered
        with pytest.raises(StoreAwayError):
            kept.deliver("a")
        assert kept.waiting() == ["a"]
    store.answers = math.inf
    kept.deliver("a")
    assert store.content == expected


def test_a_process_killed_while_it_keeps_a_write_loses_no_other(
    tmp_path: Path, expected: list[tuple[str, ...]]
) -> None:
    folder = tmp_path / "spool"
    write_all(Spool(folder, Store(0)), tmp_path)
    (file,) = folder.glob("*.jsonl")
    content = file.read_bytes()
    last = content.rindex(b"\n")
    for size in range(last, len(content)):
        file.write_bytes(content[:size])
        Spool(folder, Store(0)).write("a", "tag", tags={"after": "it"})
        store = Store()
        copies = {path: path.read_bytes() for path in (folder / "a").iterdir()}
        Spool(folder, store).deliver("a")
        assert store.made == [*expected[:-1], ("a", "{'after': 'it'}")]
        (folder / "a").mkdir()
        for path, data in copies.items():
            path.write_bytes(data)


def test_a_server_that_did_not_answer_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "AGAIN", 3600.0)
    store = Store(0)
    kept = Spool(tmp_path / "spool", store)
    write_all(kept, tmp_path)
    kept.write("b", "tag", tags={})
    assert store.requests == 1
    assert kept.waiting() == ["a", "b"]


def test_what_the_server_refuses_stays_and_is_named(tmp_path: Path) -> None:
    store = Store(0)
    kept = Spool(tmp_path / "spool", store)
    kept.write("gone", "tag", tags={"kept": "1"})
    kept.write("a", "tag", tags={"kept": "2"})
    store.answers = math.inf
    with pytest.raises(StoreError, match=r"no such run; .*gone\.jsonl"):
        kept.deliver("gone")
    kept.deliver("a")
    assert store.made == [("a", "{'kept': '2'}")]
    assert kept.waiting() == ["gone"]


def test_no_write_is_lost_while_another_process_delivers(tmp_path: Path) -> None:
    answering = Store()
    writer, deliverer = Spool(tmp_path / "spool", Store(0)), Spool(tmp_path / "spool", answering)
    over = threading.Event()

    def deliver() -> None:
        while not over.is_set():
            deliverer.deliver("a")

    with ThreadPoolExecutor() as pool:
        delivering = pool.submit(deliver)
        for number in range(100):
            writer.write("a", "tag", tags={"number": str(number)})
        over.set()
        delivering.result(60)
    assert answering.made, "something was delivered while the other wrote"
    deliverer.deliver("a")
    assert answering.made == [("a", repr({"number": str(number)})) for number in range(100)]


def test_a_read_waits_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [StoreAwayError("no answer"), StoreAwayError("no answer")]

    def action() -> str:
        if left:
            raise left.pop()
        return "answer"

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert patiently(action, lambda: False) == "answer"
    left[:] = [StoreAwayError("no answer")] * 2
    with pytest.raises(StoreAwayError):
        patiently(action, lambda: True)
    monkeypatch.setenv("MILBENCH_PATIENCE", "0")
    left[:] = [StoreAwayError("no answer")] * 2
    with pytest.raises(StoreAwayError):
        patiently(action, lambda: False)
    monkeypatch.setenv("MILBENCH_PATIENCE", "long")
    with pytest.raises(UsageError, match="MILBENCH_PATIENCE=long"):
        patience()
