"""Whether a CPU trains quicker in bfloat16: a trial of a second or two, whose answer is kept in the cache folder.

A CPU that can multiply bfloat16 may still be slower with it: torch then spends more on converting than it saves. So one
short trial decides. An answer is kept for each processor, version of torch and number of threads. If it cannot be read
or written, or is not as it was written, the trial is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from milbench._utils.files import read_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The trial times PAIRS pairs, each with STEPS training steps in float32 and as many in bfloat16. The
# shortest step of each counts. In every pair bfloat16 has to save LEAST_GAIN, a share of the time.
PAIRS = 5
STEPS = 3
LEAST_GAIN = 0.2

BATCH = 4  # images
SIDE = 64  # pixels


class Seconds(NamedTuple):
    """How long the same training step took in the two precisions."""

    float32: float
    bfloat16: float


def is_bfloat16_quicker(processor: str) -> bool:
    """Return whether a small network trains quicker in bfloat16 on this CPU, whose name is `processor`.

    The trial is made once.
    """
    import torch

    key = json.dumps([processor, torch.__version__, torch.get_num_threads()])
    place = _place()
    answers = _read(place)
    answer = answers.get(key)
    if isinstance(answer, bool):
        return answer
    # The first pair that is not quicker decides, and later ones are not timed.
    is_quicker = all(pair.bfloat16 <= (1 - LEAST_GAIN) * pair.float32 for pair in timed_pairs())
    answers[key] = is_quicker
    text = json.dumps({"answers": answers, "digest": _digest(answers)}, indent=1)
    with contextlib.suppress(OSError):
        write_atomically(place, lambda temporary: temporary.write_text(text, "utf-8"))
    return is_quicker


def _place() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("milbench", appauthor=False) / "bfloat16.json"


def _read(place: Path) -> dict[str, Any]:
    """Return the answers that are kept. If the file is missing or damaged, there are none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        content = json.loads(read_file(place))
        answers = content["answers"]
        if isinstance(answers, dict) and content["digest"] == _digest(answers):
            return answers
    return {}


def _digest(answers: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()


def timed_pairs() -> Iterator[Seconds]:
    """Yield PAIRS pairs: the shortest time of STEPS training steps in float32, and the same in bfloat16.

    The network is small, and all-convolutional as the paper's are. The state of torch's generator stays as it is.
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

    def step(*, in_bfloat16: bool) -> float:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if in_bfloat16 else contextlib.nullcontext():
            logits = network(images)
        logits.float().square().mean().backward()
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    def seconds(*, in_bfloat16: bool) -> float:
        # The shortest of a few steps: other work on the machine lengthens some of them.
        return min(step(in_bfloat16=in_bfloat16) for _ in range(STEPS))

    # The first steps make room in memory and choose how to convolve; they are not timed.
    seconds(in_bfloat16=False)
    seconds(in_bfloat16=True)
    for _ in range(PAIRS):
        float32 = seconds(in_bfloat16=False)
        bfloat16 = seconds(in_bfloat16=True)
        yield Seconds(float32, bfloat16)
