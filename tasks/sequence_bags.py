"""A task for sequences of your own: a table of audio files or arrays with their label sets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Bags, NamedBags
from milbench.contracts.network import Network
from milbench.contracts.problem import BagFormat, Split
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU
from milbench.data.annotations import Annotation
from milbench.data.new_bags import new_sequences
from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit
from milbench.data.table_options import SequenceOptions
from milbench.families.fixed_bags import Lazy, batched, make_truth
from milbench.families.sequences import (
    EVAL_BAGS,
    SequenceBatches,
    SequenceProblem,
    Sequences,
    SequenceSplits,
    SequenceTask,
)
from milbench.families.table_bags import Origins, TableBags, TableFormat, class_names_in
from milbench.networks.standardise import divisors


class SequenceBags(SequenceTask, TableBags):
    """Find which classes occur in a sequence of your own, and when, trained from label sets alone.

    The table is a file .csv, .tsv or .parquet with a row for each sequence. It has the columns
    `file` (its path, relative to the folder of the table) and `labels`, and may have `group` and
    `split`, as in `feature-bags`. A file is a .npy array of T frames of F features, a .npy waveform
    of S samples, or audio (.wav, .flac, .ogg). Waveforms become log-mel frames. A column `events`,
    if there is one, serves the hit rate in time, and losses with more supervision than label sets.
    It is JSON, [[class, start, end], ...] in seconds, with at least one event of every class of the
    labels, or empty where events are not known. With `rows="events"` the table has a row for each
    event instead.

    Its parameters are described with `milbench.data.table_options.SequenceOptions` and the classes
    that it extends.
    """

    name = "sequence-bags"
    Options = SequenceOptions
    added = SequenceOptions.added
    options: SequenceOptions
    # Since revision 3 features of any unit are standardised.
    revision = 3
    reads_files = True

    def __init__(self, **options: Any) -> None:
        TableBags.__init__(self, **options)
        SequenceTask.__init__(self, self.options.batch_bags)

    def recipe(self) -> Recipe:
        """Return a one-cycle schedule with AdamW.

        It has more epochs than `sound-events`, as tables are often small.
        """
        return Recipe(lr=5e-3, epochs=30, evaluate_every=10, precision="float32")

    def format_from(self, memory: Mapping[str, Any]) -> "SequenceFormat":
        mean = torch.tensor(memory["mean"])
        divisor = torch.tensor(memory["spread"])
        return SequenceFormat(
            inputs=int(memory["inputs"]),
            class_names=class_names_in(memory),
            frames_per_second=float(memory["frames_per_second"]),
            kind=str(memory["kind"]),
            mean=mean.unsqueeze(1),
            divisor=divisor.unsqueeze(1),
        )

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> SequenceProblem:
        table = self.own_bags(data_dir)
        split = self.split(table, seed)
        bag_format = _format_of(table, split.train)
        batches = SequenceBatches(
            mean=bag_format.mean,
            divisor=bag_format.divisor,
            batch_frames=self.options.batch_instances,
            device=device,
        )
        sequences = _split_sequences(table, split)
        problem = self.problem_of(sequences, batches, bag_format, seed, limit)
        return replace(problem, training_labels=sequences.train.labels)

    def read_bags(
        self, paths: Sequence[Path], bag_format: BagFormat, network: Network
    ) -> Iterator[NamedBags]:
        """Yield the sequences of tables, folders and files in batches.

        Every position has its start and its end, in seconds.
        """
        # For mypy: `format_from` and `load` of this task always make such a format.
        assert isinstance(bag_format, SequenceFormat)  # noqa: S101
        batches = SequenceBatches(bag_format.mean, bag_format.divisor)
        for new in batched(new_sequences(paths, self.options, bag_format.kind), EVAL_BAGS):
            names, arrays, rates = zip(*new, strict=True)
            frames = [torch.from_numpy(array).T for array in arrays]
            lengths = [sequence.shape[1] for sequence in frames]
            # A batch must have labels. Those of new sequences are unknown, and nobody reads them.
            labels = torch.zeros(len(new), bag_format.num_classes, dtype=torch.bool)
            bags = batches.bags(Sequences(frames, lengths, labels))
            # All sequences are of one kind, and so have the same rate.
            places = _start_and_end(network, bags, lengths, frames_per_second=rates[0])
            yield NamedBags(self.options.file, list(names), bags, places)


@dataclass(frozen=True, kw_only=True)
class SequenceFormat(TableFormat):
    """The format of the sequences of a table, with the numbers that standardise new sequences."""

    kind: str
    """What the files hold: frames or waveforms."""
    mean: Tensor = field(compare=False)
    """(F, 1), the mean of each feature in the training frames."""
    divisor: Tensor = field(compare=False)
    """(F, 1), what each feature is divided by after its mean is subtracted."""

    def memory(self) -> dict[str, Any]:
        remembered = super().memory()
        remembered["kind"] = self.kind
        remembered["frames_per_second"] = self.frames_per_second
        remembered["mean"] = self.mean.flatten().tolist()
        remembered["spread"] = self.divisor.flatten().tolist()
        return remembered


def _format_of(table: OwnBags, trained: NDArray[np.int64]) -> SequenceFormat:
    """Return the format of the sequences of a table.

    Features are standardised by the frames of the sequences in `trained`.
    """
    means, spreads = table.store.standard(trained)
    mean = torch.from_numpy(means).unsqueeze(1)
    spread = torch.from_numpy(spreads).unsqueeze(1)
    return SequenceFormat(
        inputs=len(mean),
        class_names=tuple(table.class_names),
        frames_per_second=table.frames_per_second,
        kind=table.kind,
        mean=mean.float(),
        divisor=divisors(mean, spread).float(),
    )


def _start_and_end(
    network: Network, bags: Bags, lengths: list[int], frames_per_second: float
) -> dict[str, Tensor]:
    """Return start and end (B, K) of every position, in seconds.

    It is {} for a network that does not know where its positions are.
    """
    centres = network.centres_in(bags)
    if centres is None:
        return {}
    _, centre = centres
    # Positions are blocks of frames without gaps, and the first block begins with the first frame.
    half_width = float(centre[0])
    start = (centre - half_width).expand(len(lengths), -1)
    # The last block may reach beyond the end of a sequence.
    last_frame = torch.tensor(lengths).unsqueeze(1)
    end = (centre + half_width).minimum(last_frame)
    return {"start": start / frames_per_second, "end": end / frames_per_second}


def _split_sequences(table: OwnBags, split: BagSplit) -> SequenceSplits:
    """Return the sequences of a split. Those to evaluate on have an origin.

    Sequences with a single event are evaluated once more, as bags of one instance.
    """
    origins = Origins(table)
    has_one_event = _has_one_event(table)
    evaluated: dict[Split, Sequences] = {}
    single: dict[Split, Sequences] = {}
    for part, numbers in split.evaluated.items():
        numbers_of_single = numbers[has_one_event[numbers]]
        evaluated[part] = replace(_sequences(table, numbers), origin=origins.of(numbers))
        single[part] = replace(
            _sequences(table, numbers_of_single), origin=origins.of(numbers_of_single)
        )
    return SequenceSplits(_sequences(table, split.train), evaluated, single)


def _has_one_event(table: OwnBags) -> NDArray[np.bool_]:
    """Return (N,), which bags of a table have exactly one event; False where it is not known."""
    if table.marks is None:
        return np.zeros(len(table), dtype=bool)
    return np.array([len(events) == 1 for events in table.marks])


def _sequences(table: OwnBags, numbers: NDArray[np.int64]) -> Sequences:
    """Return bags of a table, with their events if the events of all these bags are known."""

    def read_frames(bag: int) -> Tensor:
        return torch.from_numpy(np.array(table.store.single(bag))).T

    frames = Lazy(numbers.tolist(), read_frames)
    lengths = table.store.sizes[numbers].tolist()
    labels = torch.from_numpy(table.labels[numbers])
    are_events_known = len(numbers) > 0 and bool(table.marked()[numbers].all())
    if table.marks is None or not are_events_known:
        return Sequences(frames, lengths, labels)
    events = []
    for bag, length in zip(numbers.tolist(), lengths, strict=True):
        events.append(_events_in_frames(table, table.marks[bag], length))
    most = max(len(events_of_bag) for events_of_bag in events)
    return Sequences(frames, lengths, labels, make_truth(events, most))


def _events_in_frames(
    table: OwnBags, annotations: Sequence[Annotation], length: int
) -> list[tuple[int, Sequence[float]]]:
    """Return the class of each event of a sequence and its box, in frames and over all features."""
    events: list[tuple[int, Sequence[float]]] = []
    for annotation in annotations:
        start, end = annotation.place
        first = start * table.frames_per_second
        # An annotation may end after the last frame.
        last = min(end * table.frames_per_second, length)
        events.append((annotation.cls, (first, 0, last, table.store.width)))
    return events
