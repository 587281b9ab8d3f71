"""Calls in fresh processes: their results and ends, and that they leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from milbench.processes.fresh import FreshProcesses, ProcessDied, TookTooLong, call_fresh

END = 60.0
"""Seconds to wait for what should happen at once, long enough for a busy machine."""


@pytest.fixture(
    scope="module", params=[pytest.param(True, id="forked"), pytest.param(False, id="started")]
)
def processes(request: pytest.FixtureRequest) -> Iterator[FreshProcesses]:
    """Fresh processes that the tests of this module share.

    They are forked as on Linux, or started as on other systems.
    """
    processes = FreshProcesses(can_fork=request.param)
    yield processes
    processes.shutdown()


def hold_the_interpreter() -> None:
    """Run a regular expression that takes years and never releases the GIL."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def start_hidden_child(file: Path) -> None:
    """Start a process in the way of daemons, and write its id into a file.

    The process is forked twice and has a session of its own, so that it cannot be found by its
    parent or its session.
    """
    if os.fork():
        os.wait()
        return
    os.setsid()
    hidden = os.fork()
    if hidden:
        file.write_text(str(hidden))
        os._exit(0)
    time.sleep(1000)


def start_child(file: Path) -> None:
    """Fork a child that lives for long, and write its id into a file."""
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    file.write_text(str(child))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, and fail if it takes too long."""
    last = time.monotonic() + END
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def pid_in(file: Path) -> int:
    """Wait until the id of a process has been written into a file, and return it."""
    wait_until(lambda: file.exists() and bool(file.read_text()))
    return int(file.read_text())


def test_a_call_returns_its_result(processes: FreshProcesses) -> None:
    assert processes.submit(divmod, 17, 5).result(END) == (3, 2)


def test_each_call_has_a_process_of_its_own(processes: FreshProcesses) -> None:
    pids = {processes.submit(os.getpid).result(END) for _ in range(3)}
    assert len(pids) == 3
    assert os.getpid() not in pids


def test_calls_are_computed_at_once(processes: FreshProcesses, tmp_path: Path) -> None:
    """Each call waits for a file that the other call writes."""

    def meet(mine: str, other: str) -> str:
        (tmp_path / mine).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.01)
        return mine

    first = processes.submit(meet, "first", "second")
    second = processes.submit(meet, "second", "first")
    assert first.result(END) == "first"
    assert second.result(END) == "second"


def test_an_error_of_the_function_is_raised(processes: FreshProcesses) -> None:
    with pytest.raises(ZeroDivisionError):
        processes.submit(divmod, 1, 0).result(END)


def test_a_result_that_cannot_be_sent_is_an_error(processes: FreshProcesses) -> None:
    with pytest.raises(RuntimeError, match="generator cannot be sent"):
        processes.submit(lambda: (number for number in range(3))).result(END)


def test_large_arguments_and_results_are_sent(processes: FreshProcesses) -> None:
    content = os.urandom(5_000_000)
    assert processes.submit(bytes.swapcase, content).result(END) == content.swapcase()


@pytest.mark.parametrize(
    ("end", "words"),
    [
        pytest.param(lambda: os._exit(7), "it ended with exit code 7", id="exit"),
        pytest.param(
            lambda: os.kill(os.getpid(), signal.SIGKILL), "it was killed by SIGKILL", id="killed"
        ),
        pytest.param(os.abort, "it was killed by SIGABRT", id="abort"),
    ],
)
def test_how_a_process_died_is_told(
    end: Callable[[], None], words: str, processes: FreshProcesses
) -> None:
    with pytest.raises(ProcessDied, match=words):
        processes.submit(end).result(END)


def test_code_that_holds_the_interpreter_is_killed_at_its_limit() -> None:
    with pytest.raises(TookTooLong):
        call_fresh(hold_the_interpreter, limit=0.5)


def test_a_stopped_process_is_killed_at_its_limit() -> None:
    # `os.kill` with process 0 sends the signal to the caller's process group. A call has a process
    # group of its own, so pytest does not get the signal.
    with pytest.raises(TookTooLong):
        call_fresh(os.kill, 0, signal.SIGSTOP, limit=0.5)


def test_a_child_of_a_call_ends_with_it(processes: FreshProcesses, tmp_path: Path) -> None:
    file = tmp_path / "child"
    processes.submit(start_child, file).result(END)
    wait_until(lambda: is_gone(int(file.read_text())))


def test_a_daemon_of_a_child_ends_with_its_call(tmp_path: Path) -> None:
    file = tmp_path / "child"
    # `call_fresh` forks on Linux, and a forked call adopts such a child and so finds it. A started
    # call cannot, so this test does not take `processes`, which has both kinds.
    call_fresh(start_hidden_child, file)
    wait_until(lambda: is_gone(int(file.read_text())))


def test_a_thread_that_never_ends_does_not_delay_a_call(processes: FreshProcesses) -> None:
    def start_thread() -> str:
        import threading

        threading.Thread(target=time.sleep, args=(1000,)).start()
        return "done"

    assert processes.submit(start_thread).result(END) == "done"


def test_a_call_that_closes_its_files_fails_alone(processes: FreshProcesses) -> None:
    died = processes.submit(os.closerange, 3, 100)
    with pytest.raises(ProcessDied):
        died.result(END)
    assert processes.submit(abs, -1).result(END) == 1


def test_a_call_that_kills_the_host_fails_alone() -> None:
    """The host is the process that forks each call, and the kernel kills its forks with it.

    So the call dies although only the host was killed, and the message tells how the host ended: by
    SIGKILL.
    """
    # This test has processes of its own, since the host is gone afterwards. They are forked, so the
    # parent of a call is the host. The parent of a started call would be pytest.
    processes = FreshProcesses()
    with pytest.raises(ProcessDied, match="SIGKILL"):
        processes.submit(lambda: os.kill(os.getppid(), signal.SIGKILL)).result(END)
    assert processes.submit(abs, -1).result(END) == 1
    processes.shutdown()


def test_changes_that_a_call_makes_in_its_process_reach_no_other(
    processes: FreshProcesses,
) -> None:
    def change() -> None:
        import torch

        torch.set_default_dtype(torch.float64)
        os.environ["LEFT_BEHIND"] = "1"
        os.chdir("/")

    def look() -> tuple[str, str | None, str]:
        import torch

        return str(torch.get_default_dtype()), os.environ.get("LEFT_BEHIND"), str(Path.cwd())

    processes.submit(change).result(END)
    assert processes.submit(look).result(END) == ("torch.float32", None, str(Path.cwd()))


def test_a_call_finds_the_folder_and_environment_of_its_launcher(
    processes: FreshProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.submit(abs, 1).result(END)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SET_LATER", "yes")
    assert processes.submit(os.getcwd).result(END) == str(tmp_path)
    assert processes.submit(os.getenv, "SET_LATER").result(END) == "yes"


def test_shutting_down_ends_what_still_computes(tmp_path: Path) -> None:
    file = tmp_path / "process"

    def hang() -> None:
        file.write_text(str(os.getpid()))
        hold_the_interpreter()

    processes = FreshProcesses()
    future = processes.submit(hang)
    pid = pid_in(file)
    processes.shutdown()
    assert is_gone(pid)
    with pytest.raises(ProcessDied):
        future.result(END)


SCRIPT = """
from milbench.processes.fresh import FreshProcesses


class Own:
    def __init__(self, value):
        self.value = value


def doubled(own):
    return Own(2 * own.value)


print(FreshProcesses().submit(doubled, Own(4)).result().value)
"""


def test_a_script_without_a_main_guard_sends_its_own_classes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=END, check=False
    )
    assert ran.stdout == "8\n"
    assert ran.stderr == ""


KILLED_LAUNCHER = """
import os
import sys
from pathlib import Path

from milbench.processes.fresh import FreshProcesses
from tests.processes.test_fresh import hold_the_interpreter, start_hidden_child


def hang(folder):
    start_hidden_child(folder / "hidden")
    (folder / "process").write_text(str(os.getpid()))
    hold_the_interpreter()


FreshProcesses().submit(hang, Path(sys.argv[1])).result()
"""


def test_a_killed_launcher_leaves_no_process(tmp_path: Path) -> None:
    """Processes end even if their code holds the interpreter, and so do their hidden children."""
    repository = Path(__file__).parents[2]
    launcher = subprocess.Popen(
        [sys.executable, "-c", KILLED_LAUNCHER, str(tmp_path)], cwd=repository
    )
    # The call writes its own id last, so the id of its child is there by then.
    process = pid_in(tmp_path / "process")
    hidden = pid_in(tmp_path / "hidden")
    launcher.kill()
    launcher.wait()
    wait_until(lambda: is_gone(process))
    wait_until(lambda: is_gone(hidden))


def test_a_result_that_exits_when_read_is_an_error(processes: FreshProcesses) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[int]]:
            return sys.exit, (3,)

    future = processes.submit(Hostile)
    with pytest.raises(RuntimeError, match="cannot be read: SystemExit: 3"):
        future.result(END)
    assert processes.submit(abs, -1).result(END) == 1


def test_an_error_that_cannot_be_sent_keeps_its_message(processes: FreshProcesses) -> None:
    class TwoArgumentsError(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(f"{first} is not {second}")

    def fail() -> None:
        raise TwoArgumentsError(1, 2)

    with pytest.raises(RuntimeError, match="TwoArgumentsError: 1 is not 2"):
        processes.submit(fail).result(END)
