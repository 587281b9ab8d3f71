"""What every loss must do, as tests to inherit, with the bags and label sets that they run on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss, load_loss
from milbench.testing.common import reference_to

# The numbers of bags, classes and positions of every batch.
B, C, K = 4, 3, 6
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
ONE_CLASS = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
_ABSENT_OR_PRESENT = torch.tensor([False, True])
EVERY_SET = torch.cartesian_prod(*[_ABSENT_OR_PRESENT for _ in range(C)])
"""(2^C, C), all label sets of C classes."""
SIZES = (6, 1, 4, 3)
"""The number of positions of each bag of a padded batch."""
MASK = torch.arange(K) < torch.tensor(SIZES).unsqueeze(1)
FULL_POSITIONS = ((K,), (2, 3), (1, 3, 2))
"""Shapes of K positions: of sequences or sets, images, and volumes."""
POSITIONS = ((), *FULL_POSITIONS)
"""The shapes above, and a single position without a dimension."""
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 1.5])
"""The weights of the losses of the four bags in a sum whose gradient is tested.

They are all different, so that a gradient in the wrong bag is noticed.
"""


@dataclass(frozen=True)
class Variant:
    """A loss with its parameters."""

    loss: str
    """The name of the loss, or a path that ends in .py, relative to the file of the test class."""
    params: dict[str, Any] = field(default_factory=dict)
    """Arguments of the constructor."""
    depends_on_batch: bool = False
    """Whether the loss of a bag depends on the other bags of a padded batch."""
    one_class: bool = False
    """Whether the loss accepts only label sets of one class."""

    def __str__(self) -> str:
        name = self.loss.rsplit("/", 1)[-1]
        values = [str(value) for value in self.params.values()]
        return "-".join([name, *values])

    def load(self) -> Loss:
        """Return a new loss for C classes, which gives one value for each bag."""
        return load_loss(self.loss, reduction="none", **self.params).build(C)


class LossContract:
    """The contract tests of a loss. A test file inherits them, and each runs for every variant:

        class TestMine(LossContract):
            loss = "mine.py"

        class TestMineWithMargins(LossContract):
            variants = (Variant("mine.py", {"margin": 1.0}), Variant("mine.py", {"margin": 2.0}))

    They do not test whether the values of a loss are right: compare these with an independent
    implementation in tests of your own. A loss with more supervision than label sets is called with
    the target that `target_for` makes from the label sets. If a loss cannot pass a test by its
    nature, override the test, with a docstring that says why.
    """  # noqa: D400 what follows is an example

    loss: ClassVar[str] = ""
    """The name of the loss, or the path of its file, relative to the file of the test class."""
    variants: ClassVar[tuple[Variant, ...]] = ()
    """Several losses, or a loss with parameters, instead of `loss`."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Let a test run once for every variant."""
        if "variant" in metafunc.fixturenames:
            test = metafunc.cls or type(self)
            requested = self.variants or (Variant(self.loss),)
            variants = [
                replace(variant, loss=reference_to(test, variant.loss)) for variant in requested
            ]
            metafunc.parametrize("variant", variants, ids=str)

    @pytest.fixture(name="loss")
    def _loss(self, variant: Variant) -> Loss:
        return variant.load()

    @pytest.fixture
    def labels(self, variant: Variant) -> Tensor:
        """Return label sets that the loss accepts."""
        return ONE_CLASS if variant.one_class else LABELS

    @pytest.mark.parametrize("positions", POSITIONS, ids=str)
    def test_shapes_whatever_the_positions(
        self, loss: Loss, labels: Tensor, positions: tuple[int, ...]
    ) -> None:
        _skip_if_ordered(loss)
        logits = some_logits(*positions)
        flat_logits = logits.reshape(B, C + 1, -1)
        fitting = labels
        if flat_logits.shape[2] < C:
            # With a single position only the first class of each label set fits.
            fitting = labels & (labels.cumsum(dim=1) == 1)
        found = all_answers(loss, logits, fitting)
        _assert_shapes(found, positions)
        _assert_same_apart_from_shape(found, all_answers(loss, flat_logits, fitting))
        log_prob = loss.label_log_prob(logits, labels)
        flat_log_prob = loss.label_log_prob(flat_logits, labels.long())
        assert_close(log_prob, flat_log_prob)
        assert log_prob is None or log_prob.shape == (B,)

    @pytest.mark.parametrize("positions", FULL_POSITIONS, ids=str)
    def test_shapes_with_a_mask_whatever_the_positions(
        self, loss: Loss, labels: Tensor, positions: tuple[int, ...]
    ) -> None:
        _skip_if_ordered(loss)
        logits = some_logits(*positions)
        fitting = labels_that_fit(labels)
        found = all_answers(loss, logits, fitting, MASK.reshape(B, *positions))
        _assert_shapes(found, positions)
        flat = all_answers(loss, logits.reshape(B, C + 1, K), fitting, MASK)
        _assert_same_apart_from_shape(found, flat)

    def test_the_class_that_the_evidence_shows_costs_least(self, loss: Loss) -> None:
        """A wrong sign, or a loss that ignores the labels, would pass all other tests."""
        if loss.supervision != "set":
            pytest.skip("what a target says beside the label set decides here")
        for shown in range(C):
            # The first half of the positions shows the class, the second half background.
            logits = torch.full((1, C + 1, K), -6.0, dtype=torch.float64)
            logits[:, C, K // 2 :] = 6.0
            logits[:, shown, : K // 2] = 6.0
            every_class = torch.eye(C, dtype=torch.bool)
            values = [loss(logits, label_set.unsqueeze(0)).item() for label_set in every_class]
            others = values[:shown] + values[shown + 1 :]
            assert values[shown] < min(others), values

    def test_an_empty_batch_gives_no_values(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(2, 3)[:0]
        labels = labels[:0]
        target = target_for(loss, logits, labels)
        assert loss(logits, labels, None, target).shape == (0,)

    def test_the_order_of_positions_does_not_matter(self, loss: Loss, labels: Tensor) -> None:
        _skip_if_ordered(loss)
        logits = some_logits(K)
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        moved = all_answers(loss, logits, labels).at(order)
        assert_close(all_answers(loss, logits[:, :, order], labels), moved)

    def test_positions_that_are_alike_get_the_same_gradient(
        self, loss: Loss, labels: Tensor
    ) -> None:
        """Positions that tie for a maximum share its gradient, so that none is preferred."""
        _skip_if_ordered(loss)
        logits = some_logits(1).expand(-1, -1, K)
        _, gradient = value_and_gradient(loss, logits, labels)
        assert gradient.abs().sum() > 0
        assert_close(gradient, gradient[:, :, :1].expand(-1, -1, K))

    def test_no_class_is_preferred(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        order = torch.tensor([2, 0, 1])
        # The background stays the last channel.
        channels = torch.tensor([2, 0, 1, C])
        before = all_answers(loss, logits, labels)
        renamed = Answers(
            before.value,
            before.gradient[:, channels],
            before.scores[:, order],
            before.presence[:, order],
            before.posterior[:, channels],
            before.evidence[:, order],
        )
        assert_close(all_answers(loss, logits[:, channels], labels[:, order]), renamed)

    def test_masked_positions_do_not_matter(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        labels = labels_that_fit(labels)
        expected = all_answers(loss, logits, labels, MASK)
        assert (_of_masked(expected.gradient) == 0).all()
        assert (_of_masked(expected.evidence) == -torch.inf).all()
        for garbage in (200.0, -1e30, torch.inf, -torch.inf, torch.nan):
            changed = logits.masked_fill(~MASK.unsqueeze(1), garbage)
            assert_close(all_answers(loss, changed, labels, MASK), expected, rtol=0, atol=0)

    def test_padding_a_batch_changes_nothing(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        padding = some_logits(3, seed=1)
        # Three masked positions are inserted after the second position.
        padded = torch.cat([logits[:, :, :2], padding, logits[:, :, 2:]], dim=2)
        real = torch.tensor([0, 1, 5, 6, 7, 8])
        mask = torch.zeros(B, K + 3, dtype=torch.bool)
        mask[:, real] = True
        found = all_answers(loss, padded, labels, mask).at(real)
        assert_close(found, all_answers(loss, logits, labels))

    def test_a_bag_in_a_padded_batch_is_the_bag_alone(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        logits = some_logits(K)
        labels = labels_that_fit(labels)
        batch = all_answers(loss, logits, labels, MASK)
        for bag, size in enumerate(SIZES):
            only = slice(bag, bag + 1)
            in_batch = batch.of_bag(bag).at(slice(size))
            logits_alone = logits[only, :, :size]
            alone = answers(loss, logits_alone)
            assert_close(alone, in_batch.scored())
            if not variant.depends_on_batch:
                value, gradient = value_and_gradient(
                    loss, logits_alone, labels[only], weights=WEIGHTS[only]
                )
                assert_close(value, in_batch.value)
                assert_close(gradient, in_batch.gradient)

    @pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
    def test_first_and_second_derivatives(
        self, loss: Loss, labels: Tensor, mask: Tensor | None
    ) -> None:
        if mask is not None:
            labels = labels_that_fit(labels)
        for scale in (0.5, 3.0):
            logits = some_logits(K, seed=1, scale=scale).requires_grad_()
            value = partial(loss, labels=labels, mask=mask, target=target_for(loss, logits, labels))
            # The quick mode checks only a random projection of the Jacobian. For small logits, with
            # nearly equal probabilities, this is enough.
            is_quick = scale < 1
            assert torch.autograd.gradcheck(value, logits, fast_mode=is_quick)
            assert torch.autograd.gradgradcheck(value, logits, fast_mode=True)

    def test_finite_at_extreme_logits(self, loss: Loss, variant: Variant) -> None:
        label_sets = torch.eye(C, dtype=torch.bool) if variant.one_class else EVERY_SET
        for logits in extreme_logits():
            for label_set in label_sets:
                value, gradient = value_and_gradient(loss, logits, label_set.expand(B, C))
                assert value.isfinite().all(), (logits, label_set)
                assert gradient.isfinite().all(), (logits, label_set)
            scores, presence, posterior, evidence = answers(loss, logits)
            assert not scores.isnan().any(), logits
            assert presence.isfinite().all(), logits
            assert posterior.isfinite().all(), logits
            assert not evidence.isnan().any(), logits

    def test_deterministic_and_without_side_effects(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        labels = labels_that_fit(labels)
        mask = MASK.clone()
        labels_before = labels.clone()
        first = all_answers(loss, logits, labels, mask)
        again = all_answers(loss, logits, labels, mask)
        _assert_equal(again, first)
        _assert_equal((logits, labels, mask), (some_logits(K), labels_before, MASK))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision_is_computed_in_float32(
        self, loss: Loss, labels: Tensor, dtype: torch.dtype
    ) -> None:
        logits = some_logits(K).to(dtype)
        value, gradient = value_and_gradient(loss, logits.float(), labels)
        assert value.dtype == torch.float32
        found = value_and_gradient(loss, logits, labels)
        assert_close(found, (value, gradient.to(dtype)), rtol=0, atol=0)
        assert all(part.dtype == torch.float32 for part in answers(loss, logits))

    def test_autocast_changes_nothing(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K, dtype=torch.float32)
        expected = all_answers(loss, logits, labels)
        with torch.autocast("cpu", torch.bfloat16):
            found = all_answers(loss, logits, labels)
        _assert_equal(found, expected)

    def test_float32_agrees_with_float64(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        double = value_and_gradient(loss, logits, labels)
        single = value_and_gradient(loss, logits.float(), labels)
        assert all(part.dtype == torch.float32 for part in single)
        assert_close(single, double, rtol=1e-5, atol=1e-6, check_dtype=False)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_a_gpu_agrees_with_the_cpu(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        labels = labels_that_fit(labels)
        on_gpu = all_answers(loss, logits.cuda(), labels.cuda(), MASK.cuda())
        assert all(part.is_cuda for part in on_gpu)
        assert_close(on_gpu, all_answers(loss, logits, labels, MASK), check_device=False)

    def test_its_weights_depend_on_the_seed_and_are_trained(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        # The state of torch's global generator must not matter.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            again = variant.load().state_dict()
        state = loss.state_dict()
        assert again.keys() == state.keys()
        for name, values in state.items():
            assert torch.equal(again[name], values), name
        weights = dict(loss.named_parameters())
        if not weights:
            return
        logits = some_logits(K, dtype=torch.float32)
        loss(logits, labels, None, target_for(loss, logits, labels)).sum().backward()
        is_trained = []
        for name, weight in weights.items():
            assert weight.grad is not None, name
            assert weight.grad.isfinite().all(), name
            is_trained.append(bool(weight.grad.any()))
        assert any(is_trained), list(weights)

    def test_the_class_with_the_evidence_is_named(self, loss: Loss) -> None:
        for c in range(C):
            logits = some_logits(K, seed=c, scale=1.0)
            # Background everywhere. Otherwise a loss that takes a mean could name another class,
            # with a little evidence at every position.
            logits[:, :C] -= 5.0
            logits[:, C] += 5.0
            # The class at one position.
            logits[:, c, c] += 20.0
            scores = loss.score(logits)
            assert (scores.classes.argmax(dim=1) == c).all()
            assert (scores.presence.argmax(dim=1) == c).all()

    def test_presence_grows_with_the_logits_of_the_class(self, loss: Loss) -> None:
        logits = some_logits(K)
        before = loss.score(logits).presence
        for c in range(C):
            raised = logits.clone()
            raised[:, c] += 1.0
            assert (loss.score(raised).presence[:, c] > before[:, c]).all()

    @pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
    def test_presence_is_that_of_the_label_sets_with_the_class(
        self, loss: Loss, mask: Tensor | None
    ) -> None:
        log_probs = []
        for label_set in EVERY_SET:
            log_prob = loss.label_log_prob(some_logits(K), label_set.expand(B, C), mask)
            if log_prob is None:
                assert not loss.presence_is_log_odds, (
                    "a loss with log-odds of presence has a probability of label sets"
                )
                pytest.skip("its label sets have no probability")
            log_probs.append(log_prob)
        probs = torch.stack(log_probs).exp()
        assert_close(probs.sum(dim=0), torch.ones(B, dtype=torch.float64), rtol=0, atol=1e-4)
        if loss.presence_is_log_odds:
            log_odds = loss.score(some_logits(K), mask).log_odds
            assert log_odds is not None
            # (2^C, B, C), the probability of each label set if it has the class, else 0.
            probs_with_class = probs.unsqueeze(2) * EVERY_SET.unsqueeze(1)
            marginals = probs_with_class.sum(dim=0)
            assert_close(log_odds.sigmoid(), marginals, rtol=1e-6, atol=1e-9)

    def test_instances_are_distributions_and_masked_positions_background(self, loss: Loss) -> None:
        probs = loss.score(some_logits(K), MASK).instances
        assert (probs >= 0).all()
        assert_close(probs.sum(dim=1), torch.ones(B, K, dtype=torch.float64))
        of_masked = _of_masked(probs)
        assert (of_masked[:, :C] == 0).all()
        assert (of_masked[:, C] == 1).all()

    def test_instances_follow_the_evidence(self, loss: Loss) -> None:
        # Background at every position but 2, which shows class 1.
        logits = torch.full((B, C + 1, K), -5.0)
        logits[:, C] = 5.0
        logits[:, 1, 2] = 5.0
        logits[:, C, 2] = -5.0
        best = loss.score(logits).instances.argmax(dim=1)
        assert (best[:, 2] == 1).all()
        # With the head `class` every position has the class of the bag.
        if loss.head != "class":
            assert torch.equal(best, torch.tensor([C, C, 1, C, C, C]).expand(B, K))

    def test_evidence_is_strongest_where_the_class_is(self, loss: Loss) -> None:
        logits = some_logits(K, scale=0.1)
        logits[:, C] += 5.0
        # Class 1 is at position 2, and class 0 at position 4.
        logits[:, 1, 2] += 10.0
        logits[:, 0, 4] += 10.0
        scores = loss.score(logits)
        strongest = scores.evidence.argmax(dim=2)
        assert (strongest[:, 1] == 2).all()
        assert (strongest[:, 0] == 4).all()
        assert (scores.instances[:, :-1, 2].argmax(dim=1) == 1).all()

    def test_an_empty_bag_has_no_gradient(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        if variant.one_class:
            pytest.skip("the loss refuses a bag without classes")
        # The bag without instances is bag 2, whose label set is empty, as it has to be.
        mask = MASK.clone()
        mask[2] = False
        value, gradient = value_and_gradient(loss, some_logits(K), labels_that_fit(labels), mask)
        assert value.isfinite().all()
        assert gradient.isfinite().all()
        assert (gradient[2] == 0).all()
        for part in answers(loss, some_logits(K), mask):
            assert not part.isnan().any()

    def test_unchecked_an_empty_bag_leaves_no_nan_on_the_way_back(
        self, loss: Loss, labels: Tensor
    ) -> None:
        """No step of the backward pass gives a NaN, not even one that a later step masks out.

        Anomaly detection of torch raises an error at any NaN.
        """
        # An empty bag with classes is an error if values are checked. Bag 0 has classes.
        loss.validate = False
        labels = labels_that_fit(labels)
        mask = MASK.clone()
        mask[0] = False
        logits = some_logits(K).requires_grad_()
        target = target_for(loss, logits, labels)
        with torch.autograd.detect_anomaly():
            loss(logits, labels, mask, target).sum().backward()
        assert logits.grad is not None

    def test_unchecked_an_empty_bag_does_not_change_others(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        """The loss of an empty bag with classes, which cannot occur, may be +inf, but not NaN.

        The other bags keep their losses and gradients.
        """
        loss.validate = False
        logits = some_logits(K)
        labels = labels_that_fit(labels)
        mask = MASK.clone()
        mask[0] = False
        value, gradient = value_and_gradient(loss, logits, labels, mask)
        assert not value.isnan().any()
        assert value[1:].isfinite().all()
        assert gradient.isfinite().all()
        assert (gradient[0] == 0).all()
        if not variant.depends_on_batch:
            full_value, full_gradient = value_and_gradient(loss, logits, labels, MASK)
            assert_close(value[1:], full_value[1:])
            assert_close(gradient[1:], full_gradient[1:])


class Answers(NamedTuple):
    """What a loss says about a batch: losses, their gradient, and the answers of `Loss.score`."""

    value: Tensor
    gradient: Tensor
    scores: Tensor
    presence: Tensor
    posterior: Tensor
    evidence: Tensor

    def scored(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return only the answers of `Loss.score`."""
        return self.scores, self.presence, self.posterior, self.evidence

    def of_bag(self, bag: int) -> "Answers":
        """Return the answers for one bag, as a batch of one."""
        return Answers(*(part[bag : bag + 1] for part in self))

    def at(self, positions: Tensor | slice) -> "Answers":
        """Return the answers for these positions alone, in this order."""
        return self._replace(
            gradient=self.gradient[:, :, positions],
            posterior=self.posterior[:, :, positions],
            evidence=self.evidence[:, :, positions],
        )


def _skip_if_ordered(loss: Loss) -> None:
    if loss.supervision == "order":
        pytest.skip("its positions have an order")


def _assert_shapes(found: Answers, positions: tuple[int, ...]) -> None:
    assert found.value.shape == (B,)
    assert found.gradient.shape == (B, C + 1, *positions)
    assert found.scores.shape == (B, C)
    assert found.presence.shape == (B, C)
    assert found.posterior.shape == (B, C + 1, *positions)
    assert found.evidence.shape == (B, C, *positions)


def _assert_same_apart_from_shape(found: Answers, expected: Answers) -> None:
    for part, expected_part in zip(found, expected, strict=True):
        assert_close(part.reshape(expected_part.shape), expected_part)


def _assert_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Assert that tensors are equal, bit for bit."""
    for part, expected_part in zip(found, expected, strict=True):
        assert torch.equal(part, expected_part)


def _of_masked(values: Tensor) -> Tensor:
    """Return (N, channels), the values (B, channels, K) at the masked positions of all bags."""
    return values.movedim(1, 2)[~MASK]


def labels_that_fit(labels: Tensor) -> Tensor:
    """Return smaller label sets, for which the bags of a padded batch have enough positions.

    Class c of a bag stays if position c of the bag is not masked.
    """
    return labels & MASK[:, :C]


def some_logits(
    *positions: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0
) -> Tensor:
    """Return random logits (B, C+1, *positions), which have no ties."""
    rng = torch.Generator().manual_seed(seed)
    normal = torch.randn(B, C + 1, *positions, generator=rng, dtype=torch.float64)
    return (scale * normal).to(dtype)


def target_for(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a target that fits the label sets, or None for a loss that takes no target.

    It depends on the supervision of the loss:

    - count: each class of the label set once.
    - position: at each position the channel with the smallest logit, among the classes of the label
      set and background.
    - order: the classes of the label set by their logits at the first position, the smallest first.

    It is made from logits and labels alone. So a test that permutes logits and labels gets the
    permuted target.
    """
    if not loss.takes_target:
        return None
    if loss.supervision == "count":
        return labels.long()
    if loss.supervision == "position":
        background = torch.ones_like(labels[:, :1], dtype=torch.bool)
        is_allowed = torch.cat([labels.bool(), background], dim=1)
        # Dimensions of size 1 are added, up to as many as the logits have.
        by_position = is_allowed.view(len(labels), C + 1, *[1] * (logits.ndim - 2))
        return logits.detach().masked_fill(~by_position, torch.inf).argmin(dim=1)
    # `unsqueeze`, since logits may have no dimension of positions. The background is left out.
    first_position = logits.detach().unsqueeze(-1).flatten(2)[:, :-1, 0]
    ranked = first_position.argsort(dim=1)
    occurs = labels.bool().gather(1, ranked)
    return ranked.masked_fill(~occurs, -1)


def value_and_gradient(
    loss: Loss,
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor = WEIGHTS,
) -> tuple[Tensor, Tensor]:
    """Return the losses (B,) and the gradient of their weighted sum."""
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels, mask, target_for(loss, logits, labels))
    weighted_sum = (value * weights.to(value)).sum()
    (gradient,) = torch.autograd.grad(weighted_sum, leaf)
    return value.detach(), gradient


def answers(
    loss: Loss, logits: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the loss says of classes, presence, positions and evidence."""
    scores = loss.score(logits, mask)
    return scores.classes, scores.presence, scores.instances, scores.evidence


def all_answers(
    loss: Loss,
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor = WEIGHTS,
) -> Answers:
    """Return the losses, the gradient of their weighted sum, and the answers of `Loss.score`."""
    value, gradient = value_and_gradient(loss, logits, labels, mask, weights)
    return Answers(value, gradient, *answers(loss, logits, mask))


def extreme_logits() -> Iterator[Tensor]:
    """Yield float32 logits of up to +-200, as a diverging network gives them.

    They are equal at first, then random, then one channel differs from all others.
    """
    for level in (-200.0, 0.0, 200.0):
        yield torch.full((B, C + 1, K), level)
    for seed in range(4):
        yield 200 * some_logits(K, seed=seed, dtype=torch.float32).sign()
        yield some_logits(K, seed=seed, dtype=torch.float32, scale=100).clamp(-200, 200)
    for channel in range(C + 1):
        case = torch.full((B, C + 1, K), -200.0)
        case[:, channel] = 200.0
        yield case
        yield -case
