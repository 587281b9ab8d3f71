"""Checks of sequences and their events."""

from collections.abc import Iterator

import numpy as np

from milbench.data.feature_checks import constant_features
from milbench.data.findings import Finding, list_names, names_with_rows
from milbench.data.own_bags import OwnBags
from milbench.data.table_files import short_row_name

STRIDE = 4
"""How many frames one position covers, by default, in the networks for sequences."""


def check_sequences(bags: OwnBags) -> Iterator[Finding]:
    """Yield facts on sequences, and findings for late events and for odd or constant values.

    In a store of sequences the instances of a bag are the frames of a sequence.
    """
    lengths = bags.store.sizes
    rate = bags.frames_per_second
    names = names_with_rows(bags)
    low = lengths.min()
    high = lengths.max()
    frames = f"{low:,} to {high:,} frames, median {np.median(lengths):,.0f}"
    yield Finding("fact", "sequences", f"{len(bags):,}, of {frames}")
    seconds = f"{low / rate:.3g} to {high / rate:.3g} seconds, {rate:g} frames a second"
    yield Finding("fact", "time", seconds)
    yield Finding("fact", "features", f"{bags.store.width} in every frame")
    # The marks of sequences are events.
    if bags.marks is not None:
        marked = int(bags.marked().sum())
        # "Every class" means the classes in the label set of the sequence.
        detail = f"{marked:,} of {len(bags):,} sequences have an event of every class"
        yield Finding("fact", "events", detail)
        yield from _late_events(bags)
    # The mean of a feature in a sequence is finite only if all its values are.
    is_broken = ~np.isfinite(bags.store.means).all(axis=1)
    broken = [names[number] for number in np.flatnonzero(is_broken)]
    yield from list_names("fatal", "sequences with values that are not finite", broken, most=20)
    numbers = [str(number) for number in range(bags.store.width)]
    yield from constant_features(bags, numbers, " (counted from 0)")
    # Where every feature is constant in the whole table, `constant_features` has said so.
    if not bags.store.constant().all():
        # `squares` are the sums of squared distances from the mean of each feature in a sequence.
        is_unchanged = (bags.store.squares == 0).all(axis=1)
        unchanged = [names[number] for number in np.flatnonzero(is_unchanged)]
        yield from list_names("warning", "sequences that never change", unchanged)


def _late_events(bags: OwnBags) -> Iterator[Finding]:
    """Yield findings for events that begin or end after their recording has ended."""
    begin_late = []
    end_late = []
    lengths = bags.store.sizes / bags.frames_per_second
    # The length of a recording is known only to within a frame.
    frame = 1 / bags.frames_per_second
    for bag, events in enumerate(bags.marks or []):
        for number, (cls, (start, end)) in enumerate(events):
            row = short_row_name(bags.path, bags.mark_row(bag, number))
            name = bags.class_names[cls]
            lasts = f"{bags.bags[bag]} ({row}) lasts {lengths[bag]:.3g} seconds and has {name!r}"
            if start >= lengths[bag]:
                begin_late.append(f"{lasts} from {start:g}")
            elif end > lengths[bag] + frame:
                end_late.append(f"{lasts} to {end:g}")
    yield from list_names("fatal", "events after the end", begin_late, most=4)
    yield from list_names("warning", "events that end after their recording", end_late, most=4)


def short_sequences(bags: OwnBags) -> Iterator[Finding]:
    """Yield findings for sequences with more classes than frames, or more than positions.

    The positions of such a sequence cannot show all classes of its label set: a network has one
    position for `STRIDE` frames, and a position shows at most one class.
    """
    counts = bags.labels.sum(axis=1)
    sizes = bags.store.sizes
    # The last position may have fewer frames: the quotient is rounded up.
    positions = -(-sizes // STRIDE)
    named = [
        f"{name} has {count} classes and {size:,} frames"
        for name, count, size in zip(names_with_rows(bags), counts, sizes, strict=True)
    ]
    lacks_frames = counts > sizes
    lacks_positions = (counts > positions) & ~lacks_frames
    without = [named[bag] for bag in np.flatnonzero(lacks_frames)]
    short = [named[bag] for bag in np.flatnonzero(lacks_positions)]
    yield from list_names("fatal", "sequences with too few frames", without, most=4)
    what = f"sequences with too few positions of {STRIDE} frames (-p network.stride=1 gives more)"
    yield from list_names("warning", what, short, most=4)
