"""How the command line ends: the one line about a mistake, exit codes, and what is imported."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from milbench.cli.main import app
from milbench.errors import UsageError
from tests._helpers.command_line import SMALL, TINY, Milbench, process, wait_for

BASE = ("run", "--loss", "exact", "--task", TINY)
NOT_UTF_8 = "bad\udcff"  # what Python makes of the byte 0xff in a word of the command line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("runn",), "Did you mean 'run'"),
        (("run", NOT_UTF_8), "bad\\udcff is not UTF-8"),
        # losses and tasks
        (("run",), "--loss and --task missing"),
        (("run", "--loss", "exat", "--task", TINY), "unknown loss 'exat'; did you mean 'exact'"),
        # specs and presets
        (("run", "demo", "--preset", "quick"), "spec demo has no presets"),
        (
            ("run", "demo", "-p", "tune.draws=4"),
            "there is nothing to search: add [tune.recipe] or [tune.loss.NAME]",
        ),
        # the other options of a launch
        ((*BASE, "--seeds", "3-1"), "did you mean 1-3"),
        (
            (*BASE, "--name", "../up"),
            "name = '../up' is wrong: expected at most 200 letters, digits and . _ + -",
        ),
        ((*BASE, "--data-dir", "nowhere"), "tiny: no folder nowhere"),
        ((*BASE, "--device", "cuba"), "unknown device 'cuba'; did you mean 'cuda'"),
        ((*BASE, "--device", "cuda:99"), "device 'cuda:99' is not there"),
        ((*BASE, "--cluster", "foo"), "tcp://HOST:PORT, or local:N"),
        (
            (*BASE, "--cluster", "local:1", "-p", "run.in_process=true"),
            "excludes run.timeout and --cluster",
        ),
        ((*BASE, "--shard", "4/3"), "--shard 4/3: expected i/n with i from 1 to n, such as 1/3"),
        (
            (*BASE, "--rerun", "failing"),
            "'failing' is not one of 'missing', 'failed', 'all'; did you mean 'failed'",
        ),
        ((*BASE, "--root", TINY), "cannot write under --root"),
        (
            ("reproduce", "supplementary-a", "--data-dir", "."),
            "add --download to get what is missing",
        ),
        # settings
        ((*BASE, "-p", "nonsense"), "expected recipe.KEY=VALUE"),
        ((*BASE, "--lr=0.1"), "No such option: --lr; it is set by -p recipe.lr=VALUE"),
        (("--root", "x", *BASE), "options follow the command, such as milbench run --root"),
        ((*BASE, "--batch-size", "8"), "it is set by -p task.batch_bags=VALUE"),
        ((*BASE, "-p", "lr=1"), "did you mean recipe.lr?"),
        ((*BASE, "-p", "run.timeout=60"), "run.in_process excludes run.timeout"),
        ((*BASE, "-p", "loss.noisy-or.head=softmax"), "unknown loss of this run"),
        (
            (*BASE, "-p", "task.batches=0"),
            "batches = 0 is wrong: Input should be greater than or equal to 1",
        ),
        (
            (*BASE, "-p", "recipe.optimizer=adamww"),
            "unknown optimizer 'adamww'; did you mean 'adamw'",
        ),
        # what the first batch shows
        ((*BASE, "-p", "task.fault=poison"), "logits are not finite in bag 0"),
        (
            (*BASE, "-p", "task.fault=crowded", "-p", "task.size=2"),
            "3 classes, and the network 2 positions in (2, 2)",
        ),
        # other commands
        (("status",), "nothing was run yet"),
        (("report", "mine", "--from", "nowhere"), "give neither NAME nor --publish with it"),
        (
            ("report", "--from", "nowhere"),
            "nowhere is not a published report: it lacks comparison.json.gz",
        ),
        (("sync", "demo", "--all"), "--all and demo exclude each other"),
        (("export",), "Missing option '--out'"),
        (
            ("export", "--out", "mine.txt"),
            "--out mine.txt: expected a name that ends in .csv or .parquet",
        ),
        (
            ("predict", "a.png"),
            "Missing option '--cell': milbench status shows the ids of the cells",
        ),
        (("predict", "a.png", "--cell", "abc"), "no cell or run 'abc'"),
    ],
    ids=lambda value: " ".join(value[-2:])[:40] if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_and_nothing_is_computed(
    milbench: Milbench, root: Path, words: tuple[str, ...], says: str
) -> None:
    assert says in milbench(*words).complaint()
    assert not list(root.glob("runs/cells/*"))
    assert not list(root.glob("reports/*"))


TUNED = "losses = ['exact']\ntasks = ['extended-digits']\n[tune]\n"


def test_a_spec_may_begin_with_a_byte_order_mark(milbench: Milbench, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\n', "utf-8-sig")
    assert milbench("run", str(spec), "--dry-run").code == 0


def test_a_disk_that_is_full_is_one_line() -> None:
    """Standard output on a device that is full, as a log on a full disk is."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "milbench", "list", "losses"]
        ran = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert "No space left on device" in ran.stderr


@pytest.mark.parametrize(("text", "says"), [
    ("losses = ['exact']\n", "needs a value for 'tasks'"),
    ("loss = ['exact']\ntasks = ['extended-digits']\n", "loss = ['exact'] is wrong: expected a table"),
    ("losses = ['exact']\ntasks = ['extended-digits']\nsed = 3\n", "unknown parameter of spec"),
    ("losses = 'exact'\ntasks = ['extended-digits']\n", "losses = 'exact' is wrong"),
    ("losses = ['exact']\ntasks = ['extended-digits']\n[loss.exact]\nrule = []\n", "an axis without values"),
    (f"{TUNED}draw = 2\n", "'tune.draw'; did you mean 'tune.draws'? (there are: tune.draw"),
    (f"{TUNED}[tune.recipe]\nlr = {{low=1e-3,high=0.1,scale='lg'}}\n", "tune.recipe.lr.scale = 'lg' is wrong"),
    (f"{TUNED}[[contrasts]]\nnam = 'x'\n", "'contrasts.0.nam'; did you mean 'contrasts.0.name'"),
    (
        "losses = ['exact']\ntasks = ['extended-digits']\n[recipe]\nlr = {low=1e-3}\n",
        "recipe.lr is a table; a list of values is an axis",
    ),
    (f"seeds = {'[' * 5000}\n", "is not TOML"),
])  # fmt: skip
def test_a_wrong_spec_is_one_line(milbench: Milbench, tmp_path: Path, text: str, says: str) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_bytes(text.encode("latin-1"))
    assert says in milbench("run", str(spec)).complaint()


@pytest.mark.parametrize(
    ("bug", "kind"),
    [('int("not a number")', ValueError), ('open("/nowhere/at/all")', FileNotFoundError)],
)
def test_a_defect_in_a_plug_in_is_no_usage_error(
    milbench: Milbench, tmp_path: Path, bug: str, kind: type[Exception]
) -> None:
    task = tmp_path / "task.py"
    source = Path(TINY).read_text().replace('name = "tiny"', 'name = "faulty"')
    task.write_text(source.replace('int("not a number")', bug))
    with pytest.raises(kind) as error:
        milbench("run", "--loss", "exact", "--task", str(task), "-p", "task.fault=bug")
    assert not isinstance(error.value, UsageError)


def test_every_help_fits_a_screen_and_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def helps(command: Any, name: str, above: Any = None) -> Iterator[tuple[str, str]]:
        context = command.make_context(name, [], parent=above, resilient_parsing=True)
        yield context.command_path, command.get_help(context)
        for word, below in getattr(command, "commands", {}).items():
            yield from helps(below, word, context)

    for path, text in helps(typer.main.get_command(app), "milbench"):
        assert "Example: milbench" in " ".join(text.rstrip().splitlines()[-2:]), path
        assert len(text.splitlines()) <= 40, path


def test_a_signal_before_the_first_cell_is_an_interruption(tmp_path: Path) -> None:
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # it is ignored under nohup, and would be by what is started here
    slow = tmp_path / "slow.py"
    # Short sleeps: a signal that comes just before a sleep begins is seen by Python only when it ends.
    slow.write_text(
        "import time\nopen(__file__ + '.begun', 'w')\nwhile True:\n    time.sleep(0.1)\n"
    )
    running = process("run", "--loss", str(slow), "--task", TINY, "--root", str(tmp_path))
    wait_for(running, tmp_path, "*.begun")
    running.send_signal(signal.SIGHUP)
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
def test_a_closed_output_is_no_error(root: Path) -> None:
    words = (
        f"--task {TINY} -p recipe.epochs=1 -p task.batches=1 -p run.in_process=true --root {root}"
    )
    ran = subprocess.run(
        ["sh", "-c", f'"$0" -m milbench run --loss exact {words} <&- >&- 2>&-', sys.executable],
        capture_output=True, text=True, check=False, env=os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert len(list(root.glob("runs/cells/*/result.json"))) == 1


def test_milbench_alone_names_commands_that_run_in_their_order(
    root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder; two steps with one seed, and no browser."""
    root.mkdir()
    monkeypatch.chdir(root)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    lines = milbench().done().splitlines()
    assert lines[-1] == "Every command: milbench --help"
    assert max(map(len, lines)) <= 80
    demo, new, run, report = (
        shlex.split(line)[1:] for line in lines if line.startswith("  milbench ")
    )
    assert demo == ["run", "demo"]
    milbench(*new).done()
    milbench(*run, *SMALL, "--seeds", "0").done()
    milbench(*report, "--no-gallery").done()
    page = root / "reports" / "extended-digits" / "index.html"
    assert opened == [page.as_uri()]
    assert "my-loss" in page.read_text("utf-8")
    assert "run demo" not in milbench().done(), "something was run"
