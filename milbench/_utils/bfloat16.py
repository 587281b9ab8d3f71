"""Whether a CPU trains quicker in bfloat16: a trial of a second or two, whose answer is kept in the cache folder.

A CPU may multiply bfloat16 and yet be slower by it, as torch then converts more than it saves. The answer is kept by
the name of the processor, the version of torch and the number of threads. It is never needed: where it cannot be read
or written, or is damaged, the trial is made again.
"""

from __future__ import annotations

import contextlib
import json
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from milbench._utils.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAIRS = 5
"""How often the two precisions are timed, in turn."""
LEAST_GAIN = 0.2
"""The share of the time in float32 that bfloat16 has to save in every pair."""
STEPS = 3
"""How many steps are timed for each precision of a pair, of which the shortest counts."""
BATCH = 4  # images
SIDE = 64  # pixels


class Seconds(NamedTuple):
    """How long the same training steps took in the two precisions."""

    float32: float
    bfloat16: float


def is_bfloat16_quicker(processor: str) -> bool:
    """Return whether a small network trains quicker in bfloat16 on this CPU, whose name is `processor`.

    It does where bfloat16 saves LEAST_GAIN of the time in each of PAIRS pairs. The trial is made once.
    """
    import torch

    key = json.dumps([processor, torch.__version__, torch.get_num_threads()])
    place = _place()
    answers = _read(place)
    if isinstance(answers.get(key), bool):
        return bool(answers[key])
    # The first pair that is not quicker decides: those after it are not timed.
    is_quicker = all(pair.bfloat16 <= (1 - LEAST_GAIN) * pair.float32 for pair in timed_pairs())
    answers[key] = is_quicker
    text = json.dumps(answers, indent=1)
    with contextlib.suppress(OSError):
        write_atomically(place, lambda temporary: temporary.write_text(text, "utf-8"))
    return is_quicker


def _place() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("milbench", appauthor=False) / "bfloat16.json"


def _read(place: Path) -> dict[str, Any]:
    """Return the answers that are kept, none where the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        answers = json.loads(place.read_bytes())
        if isinstance(answers, dict):
            return answers
    return {}


def timed_pairs() -> Iterator[Seconds]:
    """Yield the seconds of PAIRS pairs of training steps, forward and backward, first in float32, then in bfloat16.

    The network is all-convolutional, as the paper's are, and small. The state of torch's generator stays as it is.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.LeakyReLU(),
            nn.Conv2d(32, 64, 5, stride=2, padding=2),
            nn.LeakyReLU(),
            nn.Conv2d(64, 64, 5, padding=2),
            nn.LeakyReLU(),
            nn.Conv2d(64, 11, 5),
        ).to(memory_format=torch.channels_last)
        images = torch.rand(BATCH, 1, SIDE, SIDE).to(memory_format=torch.channels_last)

    def step(*, half: bool) -> float:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            logits = network(images)
        logits.float().square().mean().backward()
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    def seconds(*, half: bool) -> float:
        # The shortest of a few steps: other work on the machine lengthens some of them.
        return min(step(half=half) for _ in range(STEPS))

    # The first steps make room in memory and choose how to convolve; they are not timed.
    seconds(half=False)
    seconds(half=True)
    for _ in range(PAIRS):
        yield Seconds(seconds(half=False), seconds(half=True))
