"""Your own sequences: a table of audio files or arrays in time, with the label set of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Bags, NamedBags
from milbench.contracts.network import Network
from milbench.contracts.problem import BagFormat
from milbench.contracts.recipe import Recipe
from milbench.contracts.task import CPU
from milbench.data.new_bags import new_sequences
from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit
from milbench.data.table_options import SequenceOptions
from milbench.families.fixed_bags import Lazy, make_truth
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
    """Find which classes occur in a sequence, and when, from the label sets in a table of your own.

    The table is a file .csv, .tsv or .parquet with a row a sequence and the columns `file` (its path, from the folder
    of the table) and, as in `feature-bags`, `labels` and perhaps `group` and `split`. A file is a .npy array (T, F) of
    frames, a .npy waveform (S,), or audio (.wav, .flac, .ogg). Waveforms become log-mel frames. A column `events`
    (JSON, [[class, start, end], ...] in seconds, an event of every class of the labels, or empty where they are not
    known) serves the hit rate in time, and losses with more supervision than label sets. With `rows="events"` it has a
    row an event instead.

    Its parameters are described with `milbench.data.table_options.SequenceOptions` and the classes that it extends.
    """

    name = "sequence-bags"
    Options = SequenceOptions
    added = SequenceOptions.added
    options: SequenceOptions
    revision = 3  # features of any unit are standardised

    reads_files = True

    def __init__(self, **options: Any) -> None:
        TableBags.__init__(self, **options)
        SequenceTask.__init__(self, self.options.batch_bags)

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, with more epochs than `sound-events` has, as tables are often small."""
        return Recipe(lr=5e-3, epochs=30, evaluate_every=10, precision="float32")

    def format_from(self, memory: Mapping[str, Any]) -> "SequenceFormat":
        return SequenceFormat(
            int(memory["inputs"]),
            class_names_in(memory),
            float(memory["frames_per_second"]),
            kind=str(memory["kind"]),
            mean=torch.tensor(memory["mean"]).unsqueeze(1),
            divisor=torch.tensor(memory["spread"]).unsqueeze(1),
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
        mean, spread = (
            torch.from_numpy(value).unsqueeze(1) for value in table.store.standard(split.train)
        )
        bag_format = SequenceFormat(
            len(mean),
            (*table.class_names,),
            table.frames_per_second,
            kind=table.kind,
            mean=mean.float(),
            divisor=divisors(mean, spread).float(),
        )
        batches = SequenceBatches(
            bag_format.mean, bag_format.divisor, self.options.batch_instances, device
        )
        sequences = _split_sequences(table, split)
        problem = self.problem_of(sequences, batches, bag_format, seed, limit)
        return replace(problem, training_labels=sequences.train.labels)

    def read_bags(
        self, paths: Sequence[Path], bag_format: BagFormat, network: Network
    ) -> Iterator[NamedBags]:
        """Yield the sequences of tables, folders and files; a position has its start and its end, in seconds."""
        assert isinstance(bag_format, SequenceFormat)  # noqa: S101 of this task
        batches = SequenceBatches(bag_format.mean, bag_format.divisor)
        sequences = new_sequences(paths, self.options, bag_format.kind)
        while batch := list(islice(sequences, EVAL_BAGS)):
            names, values, rates = zip(*batch, strict=True)
            frames = [torch.from_numpy(array).T for array in values]
            labels = torch.zeros(len(frames), bag_format.num_classes, dtype=torch.bool)
            lengths = [array.shape[1] for array in frames]
            bags = batches.bags(Sequences(frames, lengths, labels))
            yield NamedBags(
                self.options.file, list(names), bags, _seconds(network, bags, lengths, rates[0])
            )


@dataclass(frozen=True, kw_only=True)
class SequenceFormat(TableFormat):
    """The format of the sequences of a table, with what new ones are standardised by."""

    kind: str
    """What the files hold: frames or waveforms."""
    mean: Tensor = field(compare=False)
    """(F, 1), of each feature in the training frames."""
    divisor: Tensor = field(compare=False)
    """(F, 1), by which each feature is divided."""

    def memory(self) -> dict[str, Any]:
        return {
            **super().memory(),
            "kind": self.kind,
            "frames_per_second": self.frames_per_second,
            "mean": self.mean.flatten().tolist(),
            "spread": self.divisor.flatten().tolist(),
        }


def _seconds(network: Network, bags: Bags, lengths: list[int], rate: float) -> dict[str, Tensor]:
    """Return start and end of every position, in seconds, of a network that says where its positions are."""
    if (centres := network.centres_in(bags)) is None:
        return {}
    half = float(centres[1][0])  # positions are blocks of frames from the first on
    ends = torch.tensor(lengths).unsqueeze(1)
    places = {
        "start": (centres[1] - half).expand(len(lengths), -1),
        "end": (centres[1] + half).minimum(ends),
    }
    return {name: frame / rate for name, frame in places.items()}


def _split_sequences(table: OwnBags, split: BagSplit) -> SequenceSplits:
    """Return the sequences of a split; those to evaluate on say where they come from."""
    has_one = np.array([len(events) == 1 for events in table.marks or [[]] * len(table)])
    origins = Origins(table)

    def numbered(numbers: NDArray[np.int64]) -> Sequences:
        return replace(_sequences(table, numbers), origin=origins.of(numbers))

    parts = split.evaluated.items()
    return SequenceSplits(
        _sequences(table, split.train),
        {part: numbered(numbers) for part, numbers in parts},
        {part: numbered(numbers[has_one[numbers]]) for part, numbers in parts},
    )


def _sequences(bags: OwnBags, numbers: NDArray[np.int64]) -> Sequences:
    """Return bags of the table, with their events where they are known of all of them."""
    frames = Lazy(
        numbers.tolist(), lambda bag: torch.from_numpy(np.array(bags.store.single(bag))).T
    )
    lengths, labels = bags.store.sizes[numbers].tolist(), torch.from_numpy(bags.labels[numbers])
    if bags.marks is None or not len(numbers) or not bags.marked()[numbers].all():
        return Sequences(frames, lengths, labels)
    rate, width = bags.frames_per_second, bags.store.width
    events = [
        [
            (cls, (start * rate, 0, min(end * rate, length), width))
            for cls, (start, end) in bags.marks[bag]
        ]
        for bag, length in zip(numbers.tolist(), lengths, strict=True)
    ]
    return Sequences(frames, lengths, labels, make_truth(events, max(map(len, events))))
