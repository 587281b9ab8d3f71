"""Find out whether a CPU trains faster in bfloat16 than in float32.

A CPU that can multiply bfloat16 may still be slower with it, if torch spends more time on
conversions than it saves. So a trial of a second or two decides. Its answer is kept in the user's
cache folder, for each processor, version of torch and number of threads. If the file of answers
cannot be read or written, or is damaged, the trial is made again.
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

PAIRS = 5
"""How often float32 is compared with bfloat16, which has to win every time."""
STEPS = 3
"""The number of training steps in each precision for one comparison. The shortest counts."""
LEAST_GAIN = 0.2
"""The share of the time that bfloat16 has to save to win."""
BATCH = 4
"""The number of images in a training step."""
SIDE = 64
"""Height and width of an image in pixels."""
CHANNELS = 11
"""The number of channels of the logits: ten digits and the background."""


class Seconds(NamedTuple):
    """How many seconds the same training step took in each of the two precisions."""

    float32: float
    bfloat16: float


def is_bfloat16_quicker(processor: str) -> bool:
    """Return whether a small network trains faster in bfloat16 on this CPU.

    The trial is made once; later calls return the stored answer. `processor` is the name of the
    CPU, by which the answer is stored.
    """
    import torch

    key = json.dumps([processor, torch.__version__, torch.get_num_threads()])
    path = _answers_path()
    answers = _read(path)
    answer = answers.get(key)
    if isinstance(answer, bool):
        return answer
    # `all` stops at the first pair that bfloat16 does not win, and no further pair is timed.
    is_quicker = all(_saves_enough(pair) for pair in timed_pairs())
    answers[key] = is_quicker
    _write(path, answers)
    return is_quicker


def _saves_enough(pair: Seconds) -> bool:
    return pair.bfloat16 <= (1 - LEAST_GAIN) * pair.float32


def _answers_path() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("milbench", appauthor=False) / "bfloat16.json"


def _read(path: Path) -> dict[str, Any]:
    """Return the stored answers, {} if the file is missing or damaged."""
    # RecursionError: a damaged file may hold lists nested too deep for the parser.
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        content = json.loads(read_file(path))
        answers = content["answers"]
        if isinstance(answers, dict) and content["digest"] == _digest(answers):
            return answers
    return {}


def _write(path: Path, answers: dict[str, Any]) -> None:
    """Store answers. If the cache folder cannot be written to, the next process tries again."""
    text = json.dumps({"answers": answers, "digest": _digest(answers)}, indent=1)
    with contextlib.suppress(OSError):
        write_atomically(path, lambda temporary: temporary.write_text(text, "utf-8"))


def _digest(answers: dict[str, Any]) -> str:
    """Return the digest by which a damaged file of answers is recognised."""
    return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()


def timed_pairs() -> Iterator[Seconds]:
    """Yield PAIRS pairs of times, each the shortest of STEPS training steps in either precision.

    The network consists of convolutions, like the networks for digits of X.-L. Li,
    arXiv:1811.12346, 2018, but is smaller. The state of torch's generator does not change.
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
            nn.Conv2d(64, CHANNELS, 5),
        ).to(memory_format=torch.channels_last)
        images = torch.rand(BATCH, 1, SIDE, SIDE).to(memory_format=torch.channels_last)

    def step(*, in_bfloat16: bool) -> float:
        begin = time.perf_counter()
        precision: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if in_bfloat16:
            precision = torch.autocast("cpu", torch.bfloat16)
        with precision:
            logits = network(images)
        logits.float().square().mean().backward()
        network.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    def shortest(*, in_bfloat16: bool) -> float:
        # Other work on the machine makes some of the steps longer, and none shorter.
        return min(step(in_bfloat16=in_bfloat16) for _ in range(STEPS))

    # The first steps allocate memory and select convolution algorithms. Their times do not count.
    shortest(in_bfloat16=False)
    shortest(in_bfloat16=True)
    for _ in range(PAIRS):
        float32 = shortest(in_bfloat16=False)
        bfloat16 = shortest(in_bfloat16=True)
        yield Seconds(float32, bfloat16)
