"""What a terminal is sent: text of users, files and plug-ins is shown, never obeyed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from milbench.api import registry
from milbench.launch.console import plain
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Milbench, Ran

HOSTILE = "[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"
SHOWN = r"[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"


def unharmed(ran: Ran) -> str:
    """Return everything that was printed, in which no character may control a terminal."""
    printed = ran.out + ran.err
    assert "Traceback" not in printed
    assert not {char for char in printed if not char.isprintable()} - {"\n"}
    return printed


def test_a_plan_shows_parameters_as_they_are(milbench: Milbench) -> None:
    ran = milbench(
        "run", "--loss", "exact", "--task", TINY, "-p", "task.fault=a\x1b[2J\x07\u202eb,:smile:,[/b],[red]", "--dry-run"
    )
    assert ran.code == 0
    assert r"fault=a\x1b[2J\x07\u202eb" in unharmed(ran)
    assert "fault=:smile:" in ran.out
    assert "fault=[/b]" in ran.out
    assert "fault=[red]" in ran.out


def test_paths_are_shown_as_they_are(milbench: Milbench, tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    ran = milbench("data", "list", "--data-dir", str(folder))
    assert ran.code == 0
    assert SHOWN.replace("/", "")[:12] in unharmed(ran)  # the table breaks the path
    said = milbench("status", "--root", str(folder)).complaint()
    assert SHOWN.replace("/", "") in said


def test_error_messages_are_shown_as_they_are(milbench: Milbench, tmp_path: Path) -> None:
    ran = milbench("run", "--loss", f"{HOSTILE}.py", "--task", TINY)
    assert f"no file {SHOWN}.py" in ran.complaint()
    unharmed(ran)
    broken = tmp_path / "broken.py"
    broken.write_text(f"raise ValueError({HOSTILE!r})\n")
    ran = milbench("run", "--loss", str(broken), "--task", TINY)
    assert SHOWN in ran.complaint()
    unharmed(ran)


def test_a_list_shows_a_broken_plug_in_as_it_is(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(HOSTILE, "nowhere_to_be_found:Mine", "milbench.losses")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "milbench.losses" else [])
    registry.losses.cache_clear()
    try:
        assert "[/b] [red]" in unharmed(milbench("list", "losses"))
    finally:
        registry.losses.cache_clear()


def test_what_is_harmless_stays() -> None:
    assert plain("Fehler über 3 %, 日本語 —\tnächste\nZeile [b]") == "Fehler über 3 %, 日本語 —\tnächste\nZeile [b]"
    assert plain("\udcff.py") == r"\udcff.py"  # of a path that is not UTF-8, and cannot be printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_signal_before_the_first_cell_is_an_interruption(tmp_path: Path, number: int) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored under nohup, and would be by what is started here
    slow = tmp_path / "slow.py"
    slow.write_text('import time\nprint("begun", flush=True)\ntime.sleep(600)\n')
    command = [sys.executable, "-m", "milbench", "run", "--loss", str(slow), "--task", TINY, "--root", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert "begun" in running.stdout.readline()
    running.send_signal(number)
    _, complaint = running.communicate(timeout=120)
    assert (running.returncode, complaint) == (130, "milbench: interrupted\n")


def test_what_the_encoding_of_the_output_lacks_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "birds.csv").write_text("bag,labels,f0\na,鳥,1\nb,,2\n", "utf-8")
    command = [sys.executable, "-m", "milbench", "data", "check", "birds.csv"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert b"Traceback" not in ran.stderr
    assert rb"\u9ce5" in ran.stdout


@pytest.mark.skipif(os.name != "posix", reason="closes the output by a shell")
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_no_error_and_no_file_takes_its_place(root: Path, closed: str) -> None:
    words = f"--task {TINY} --epochs 1 -p task.batches=1 --in-process --name quiet --root {root}"
    ran = subprocess.run(
        ["sh", "-c", f'"$0" -m milbench run --loss exact {words} {closed}', sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    (cell,) = StoreReader(Workspace(root)).cell_runs().values()
    assert cell.status == "done"
