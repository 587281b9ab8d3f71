"""A function that is called in a fresh process cannot harm this one."""

import os
import signal
import threading
import time

import pytest

from milbench.running.fresh import ProcessDied, call_fresh


def test_the_result_of_the_function_comes_back() -> None:
    assert call_fresh(divmod, 7, 2) == (3, 1)


def test_the_function_runs_in_another_process() -> None:
    assert call_fresh(os.getpid) != os.getpid()


def test_what_the_function_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        call_fresh(divmod, 7, 0)


def test_an_exit_is_told_by_its_code() -> None:
    with pytest.raises(ProcessDied, match=r"^exit code 7$"):
        call_fresh(os._exit, 7)


def test_a_kill_is_told_by_its_signal() -> None:
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ProcessDied, match=r"^killed by SIGKILL$"):
        call_fresh(kill)


def test_a_function_that_hangs_is_ended_at_the_limit() -> None:
    with pytest.raises(ProcessDied, match=r"^took longer than 0.5 seconds$"):
        call_fresh(time.sleep, 3600, limit=0.5)


def test_a_thread_of_the_function_does_not_hold_the_call() -> None:
    def start() -> str:
        threading.Thread(target=time.sleep, args=(3600,)).start()
        return "started"

    assert call_fresh(start) == "started"
