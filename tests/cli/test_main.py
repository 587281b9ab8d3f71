"""How commands end: the one line about a mistake, exit codes, help and interruptions."""

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
"""A command without a mistake. Many cases add one to it."""
NOT_UTF_8 = "bad\udcff"
"""A word of the command line with the byte 0xff at its end, as Python gives it."""
NO_MLFLOW = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
"""An environment in which no MLflow server answers."""


def mistake(name: str, *words: str, says: str) -> Any:
    """Return a case of a test: the words of a wrong command, and a part of the line about it."""
    return pytest.param(words, says, id=name)


OF_LOSSES_AND_TASKS = [
    mistake("unknown command", "runn", says="Did you mean 'run'"),
    mistake("word not UTF-8", "run", NOT_UTF_8, says="bad\\udcff is not UTF-8"),
    mistake("nothing to run", "run", says="--loss and --task missing"),
    mistake(
        "unknown loss", "run", "--loss", "exat", "--task", TINY,
        says="unknown loss 'exat'; did you mean 'exact'",
    ),
    mistake(
        "unknown loss of a setting", *BASE, "-p", "loss.noisy-or.head=softmax",
        says="unknown loss of this run",
    ),
]  # fmt: skip
OF_SPECS = [
    mistake(
        "no presets", "run", "demo", "--preset", "quick",
        says="spec demo has no presets",
    ),
    mistake(
        "nothing to search", "run", "demo", "-p", "tune.draws=4",
        says="there is nothing to search: add [tune.recipe] or [tune.loss.NAME]",
    ),
]  # fmt: skip
OF_OPTIONS = [
    mistake("seeds in reverse", *BASE, "--seeds", "3-1", says="did you mean 1-3"),
    mistake(
        "name of a path", *BASE, "--name", "../up",
        says="name = '../up' is wrong: expected at most 200 letters, digits and . _ + -",
    ),
    mistake("no data folder", *BASE, "--data-dir", "nowhere", says="tiny: no folder nowhere"),
    mistake(
        "unknown device", *BASE, "--device", "cuba",
        says="unknown device 'cuba'; did you mean 'cuda'",
    ),
    mistake("absent device", *BASE, "--device", "cuda:99", says="device 'cuda:99' is not there"),
    mistake("no address", *BASE, "--cluster", "foo", says="tcp://HOST:PORT, or local:N"),
    mistake(
        "cluster in process", *BASE, "--cluster", "local:1", "-p", "run.in_process=true",
        says="excludes run.timeout and --cluster",
    ),
    mistake(
        "shard beyond the last", *BASE, "--shard", "4/3",
        says="--shard 4/3: expected i/n with i from 1 to n, such as 1/3",
    ),
    mistake(
        "unknown choice", *BASE, "--rerun", "failing",
        says="'failing' is not one of 'missing', 'failed', 'all'; did you mean 'failed'",
    ),
    mistake("root is a file", *BASE, "--root", TINY, says="cannot write under --root"),
    mistake(
        "data missing", "reproduce", "supplementary-a", "--data-dir", ".",
        says="add --download to get what is missing",
    ),
]  # fmt: skip
OF_SETTINGS = [
    mistake("no setting", *BASE, "-p", "nonsense", says="expected recipe.KEY=VALUE"),
    mistake(
        "setting as an option", *BASE, "--lr=0.1",
        says="No such option: --lr; it is set by -p recipe.lr=VALUE",
    ),
    mistake(
        "option before the command", "--root", "x", *BASE,
        says="options follow the command, such as milbench run --root",
    ),
    mistake(
        "setting under another name", *BASE, "--batch-size", "8",
        says="it is set by -p task.batch_bags=VALUE",
    ),
    mistake("setting without table", *BASE, "-p", "lr=1", says="did you mean recipe.lr?"),
    mistake(
        "timeout in process", *BASE, "-p", "run.timeout=60",
        says="run.in_process excludes run.timeout",
    ),
    mistake(
        "value out of range", *BASE, "-p", "task.batches=0",
        says="batches = 0 is wrong: Input should be greater than or equal to 1",
    ),
    mistake(
        "unknown optimiser", *BASE, "-p", "recipe.optimizer=adamww",
        says="unknown optimizer 'adamww'; did you mean 'adamw'",
    ),
]  # fmt: skip
OF_FIRST_BATCHES = [
    mistake(
        "poisoned instances", *BASE, "-p", "task.fault=poison",
        says="logits are not finite in bag 0",
    ),
    mistake(
        "too few positions", *BASE, "-p", "task.fault=crowded", "-p", "task.size=2",
        says="3 classes, and the network 2 positions in (2, 2)",
    ),
]  # fmt: skip
OF_OTHER_COMMANDS = [
    mistake("empty store", "status", says="nothing was run yet"),
    mistake(
        "published report by name", "report", "mine", "--from", "nowhere",
        says="give neither NAME nor --publish with it",
    ),
    mistake(
        "no published report", "report", "--from", "nowhere",
        says="nowhere is not a published report: it lacks comparison.json.gz",
    ),
    mistake(
        "one and all", "sync", "demo", "--all",
        says="--all and demo exclude each other",
    ),
    mistake("no file to write", "export", says="Missing option '--out'"),
    mistake(
        "unknown ending", "export", "--out", "mine.txt",
        says="--out mine.txt: expected a name that ends in .csv or .parquet",
    ),
    mistake(
        "no cell", "predict", "a.png",
        says="Missing option '--cell': milbench status shows the ids of the cells",
    ),
    mistake("unknown cell", "predict", "a.png", "--cell", "abc", says="no cell or run 'abc'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *OF_LOSSES_AND_TASKS,
        *OF_SPECS,
        *OF_OPTIONS,
        *OF_SETTINGS,
        *OF_FIRST_BATCHES,
        *OF_OTHER_COMMANDS,
    ],
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_computed(
    milbench: Milbench, root: Path, words: tuple[str, ...], says: str
) -> None:
    assert says in milbench(*words).complaint()
    assert not list(root.glob("runs/cells/*"))
    assert not list(root.glob("reports/*"))


def test_a_spec_may_begin_with_a_byte_order_mark(milbench: Milbench, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\n', "utf-8-sig")
    assert milbench("run", str(spec), "--dry-run").code == 0


def test_a_spec_in_another_encoding_is_refused(milbench: Milbench, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('name = "Käfer"\nlosses = ["exact"]\n', "latin-1")
    assert "is not TOML: 'utf-8' codec can't decode" in milbench("run", str(spec)).complaint()


def test_a_full_disk_is_told_in_one_line() -> None:
    """Standard output goes to /dev/full, which stands for a log on a full disk."""
    command = [sys.executable, "-m", "milbench", "list", "losses"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert "No space left on device" in ran.stderr


EXACT = """
losses = ["exact"]
tasks = ["extended-digits"]
"""
"""A spec without a mistake. Some of the following specs add one to it."""
LOSSES_AS_TEXT = """
losses = "exact"
tasks = ["extended-digits"]
"""
MISSPELT_LOSSES = """
loss = ["exact"]
tasks = ["extended-digits"]
"""
MISSPELT_SEEDS = f"""{EXACT}
sed = 3
"""
EMPTY_AXIS = f"""{EXACT}
[loss.exact]
rule = []
"""
MISSPELT_DRAWS = f"""{EXACT}
[tune]
draw = 2
"""
UNKNOWN_SCALE = f"""{EXACT}
[tune]
[tune.recipe]
lr = {{low = 1e-3, high = 0.1, scale = "lg"}}
"""
MISSPELT_NAME_OF_CONTRAST = f"""{EXACT}
[tune]
[[contrasts]]
nam = "x"
"""
RANGE_WITHOUT_SEARCH = f"""{EXACT}
[recipe]
lr = {{low = 1e-3}}
"""
ENDLESS_LISTS = f"seeds = {'[' * 5000}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param('losses = ["exact"]\n', "needs a value for 'tasks'", id="no tasks"),
        pytest.param(
            MISSPELT_LOSSES, "loss = ['exact'] is wrong: expected a table", id="loss for losses"
        ),
        pytest.param(MISSPELT_SEEDS, "unknown parameter of spec", id="unknown key"),
        pytest.param(LOSSES_AS_TEXT, "losses = 'exact' is wrong", id="losses as text"),
        pytest.param(EMPTY_AXIS, "an axis without values", id="empty axis"),
        pytest.param(
            MISSPELT_DRAWS,
            "'tune.draw'; did you mean 'tune.draws'? (there are: tune.draw",
            id="unknown key of tune",
        ),
        pytest.param(UNKNOWN_SCALE, "tune.recipe.lr.scale = 'lg' is wrong", id="unknown scale"),
        pytest.param(
            MISSPELT_NAME_OF_CONTRAST,
            "'contrasts.0.nam'; did you mean 'contrasts.0.name'",
            id="unknown key of a contrast",
        ),
        pytest.param(
            RANGE_WITHOUT_SEARCH,
            "recipe.lr is a table; a list of values is an axis",
            id="range without a search",
        ),
        pytest.param(ENDLESS_LISTS, "is not TOML", id="lists without end"),
    ],
)
def test_a_wrong_spec_is_refused(milbench: Milbench, tmp_path: Path, text: str, says: str) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(text, "utf-8")
    assert says in milbench("run", str(spec)).complaint()


@pytest.mark.parametrize(
    ("bug", "kind"),
    [
        pytest.param('int("not a number")', ValueError, id="value"),
        pytest.param('open("/nowhere/at/all")', FileNotFoundError, id="file"),
    ],
)
def test_an_error_in_the_code_of_a_plug_in_is_no_usage_error(
    milbench: Milbench, tmp_path: Path, bug: str, kind: type[Exception]
) -> None:
    source = Path(TINY).read_text()
    source = source.replace('name = "tiny"', 'name = "faulty"')
    # The tiny task has this line, which it runs with the fault "bug".
    source = source.replace('int("not a number")', bug)
    task = tmp_path / "task.py"
    task.write_text(source)
    with pytest.raises(kind) as error:
        milbench("run", "--loss", "exact", "--task", str(task), "-p", "task.fault=bug")
    assert not isinstance(error.value, UsageError)


def helps(command: Any, name: str = "milbench", above: Any = None) -> Iterator[tuple[str, str]]:
    """Yield the words and the help of a command, and of all its subcommands."""
    context = command.make_context(name, [], parent=above, resilient_parsing=True)
    yield context.command_path, command.get_help(context)
    for word, below in getattr(command, "commands", {}).items():
        yield from helps(below, word, context)


@pytest.fixture
def all_helps(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Words of a command -> its help on a terminal of 80 columns, for all commands."""
    monkeypatch.setenv("COLUMNS", "80")
    return dict(helps(typer.main.get_command(app)))


def test_every_help_fits_a_screen(all_helps: dict[str, str]) -> None:
    too_long = [words for words, text in all_helps.items() if len(text.splitlines()) > 40]
    assert too_long == []


def test_every_help_ends_with_an_example(all_helps: dict[str, str]) -> None:
    for words, text in all_helps.items():
        # A long example may take two lines.
        end = " ".join(text.rstrip().splitlines()[-2:])
        assert "Example: milbench" in end, words


@pytest.mark.usefixtures("heeds_hangups")
def test_a_signal_before_the_first_cell_is_an_interruption(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    # The sleeps are short, since Python sees a signal that comes just before a sleep only after it.
    slow.write_text(
        "import time\nopen(__file__ + '.begun', 'w')\nwhile True:\n    time.sleep(0.1)\n"
    )
    running = process("run", "--loss", str(slow), "--task", TINY, "--root", str(tmp_path))
    wait_for(running, tmp_path, "*.begun")
    running.send_signal(signal.SIGHUP)
    _, complaint = running.communicate(timeout=120)
    assert running.returncode == 130
    assert complaint == "milbench: interrupted\n"


def test_signs_that_the_encoding_of_the_output_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "birds.csv").write_text("bag,labels,f0\na,鳥,1\nb,,2\n", "utf-8")
    command = [sys.executable, "-m", "milbench", "data", "check", "birds.csv"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert b"Traceback" not in ran.stderr
    assert rb"\u9ce5" in ran.stdout


@pytest.mark.skipif(os.name != "posix", reason="closes the output by a shell")
def test_a_closed_output_is_no_error(root: Path) -> None:
    few = "-p recipe.epochs=1 -p task.batches=1 -p run.in_process=true"
    run = f'"$0" -m milbench run --loss exact --task {TINY} {few} --root {root}'
    # The shell starts the command without standard input, output and error.
    ran = subprocess.run(
        ["sh", "-c", f"{run} <&- >&- 2>&-", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | NO_MLFLOW,
    )
    assert ran.returncode == 0
    assert ran.stdout == ""
    assert ran.stderr == ""
    assert len(list(root.glob("runs/cells/*/result.json"))) == 1


def test_milbench_alone_names_commands_that_run_in_their_order(
    root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands are tried one after another in an empty folder, without a browser.

    Training has two steps and one seed.
    """
    root.mkdir()
    monkeypatch.chdir(root)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    lines = milbench().done().splitlines()
    assert lines[-1] == "Every command: milbench --help"
    assert max(map(len, lines)) <= 80
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("  milbench ")]
    demo, new, run, report = commands
    assert demo == ["run", "demo"]
    milbench(*new).done()
    milbench(*run, *SMALL, "--seeds", "0").done()
    milbench(*report, "--no-gallery").done()
    page = root / "reports" / "extended-digits" / "index.html"
    assert opened == [page.as_uri()]
    assert "my-loss" in page.read_text("utf-8")
    assert "run demo" not in milbench().done(), "after a run the demo is no longer proposed"
