"""What every loss must do, as tests to inherit, and the bags, label sets and variants of losses that they run on."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss, load_loss
from milbench.testing.common import reference_to

B, C, K = 4, 3, 6
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
ONE_CLASS = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
EVERY_SET = torch.cartesian_prod(*[torch.tensor([False, True])] * C)  # (2^C, C), all label sets
SIZES = (6, 1, 4, 3)
MASK = torch.arange(K) < torch.tensor(SIZES).unsqueeze(1)
POSITIONS = ((), (K,), (2, 3), (1, 3, 2))
WEIGHTS = torch.tensor(
    [1.0, 0.5, 2.0, 1.5]
)  # all different, so that a gradient in the wrong bag is noticed


@dataclass(frozen=True)
class Variant:
    """A loss with its parameters."""

    loss: str  # a name, or a path that ends in .py, relative to the file of the test class
    params: dict[str, Any] = field(default_factory=dict)  # arguments of the constructor
    depends_on_batch: bool = (
        False  # whether the loss of a bag depends on the other bags of a padded batch
    )
    one_class: bool = False  # whether the loss accepts only label sets of one class

    def __str__(self) -> str:
        return "-".join([self.loss.rsplit("/", 1)[-1], *map(str, self.params.values())])

    def load(self) -> Loss:
        """Return the loss, made anew, for C classes."""
        return load_loss(self.loss, reduction="none", **self.params).build(C)


class LossContract:
    """The contract tests of a loss. A test file inherits them, and each runs for every variant:

        class TestMine(LossContract):
            loss = "mine.py"

        class TestMineWithMargins(LossContract):
            variants = (Variant("mine.py", {"margin": 1.0}), Variant("mine.py", {"margin": 2.0}))

    The values of a loss are tested beside them, against an independent implementation. A loss with more supervision
    than label sets is called with the target that `target_for` derives from the label sets. A test that a loss cannot
    pass by its nature is overridden, with a docstring that says why.
    """  # noqa: D400 what follows is an example

    loss: ClassVar[str] = ""
    """The name of the loss, or the path of its file, relative to the file of the test class."""
    variants: ClassVar[tuple[Variant, ...]] = ()
    """Several losses, or one with parameters, in place of `loss`."""

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
        grid, classes, is_whole = (B, C + 1, *positions), (B, C), flat_logits.shape[2] == K
        for mask in (None, MASK) if is_whole else (None,):
            # Of bags of fewer than C positions the first class alone fits.
            fitting = labels & (
                MASK[:, :C] if mask is not None else is_whole | (labels.cumsum(dim=1) == 1)
            )
            results = all_outputs(
                loss, logits, fitting, None if mask is None else mask.reshape(B, *positions)
            )
            flat = all_outputs(loss, flat_logits, fitting, mask)
            assert [part.shape for part in results] == [
                (B,),
                grid,
                classes,
                classes,
                grid,
                (*classes, *positions),
            ]
            assert_close(
                [
                    part.reshape(expected.shape)
                    for part, expected in zip(results, flat, strict=True)
                ],
                [*flat],
            )
        log_probs = (
            loss.label_log_prob(logits, labels),
            loss.label_log_prob(flat_logits, labels.long()),
        )
        assert_close(*log_probs)
        assert log_probs[0] is None or log_probs[0].shape == (B,)

    def test_the_class_that_the_evidence_shows_costs_least(self, loss: Loss) -> None:
        """A wrong sign, or labels that are not looked at, would pass all else."""
        if loss.supervision != "set":
            pytest.skip("what a target says beside the label set decides here")
        for shown in range(C):
            logits = torch.full((1, C + 1, K), -6.0, dtype=torch.float64)
            logits[:, C, K // 2 :] = 6.0
            logits[:, shown, : K // 2] = 6.0
            values = [loss(logits, torch.arange(C).eq(c).unsqueeze(0)).item() for c in range(C)]
            assert all(values[shown] < value for c, value in enumerate(values) if c != shown), (
                values
            )

    def test_an_empty_batch_gives_no_values(self, loss: Loss, labels: Tensor) -> None:
        logits, labels = some_logits(2, 3)[:0], labels[:0]
        assert loss(logits, labels, None, target_for(loss, logits, labels)).shape == (0,)

    def test_the_order_of_positions_does_not_matter(self, loss: Loss, labels: Tensor) -> None:
        _skip_if_ordered(loss)
        logits, order = some_logits(K), torch.tensor([3, 0, 5, 1, 4, 2])
        value, gradient, scores, presence, *maps = all_outputs(loss, logits, labels)
        moved = (
            value,
            gradient[:, :, order],
            scores,
            presence,
            *(part[:, :, order] for part in maps),
        )
        assert_close(all_outputs(loss, logits[:, :, order], labels), moved)

    def test_positions_that_are_alike_get_the_same_gradient(
        self, loss: Loss, labels: Tensor
    ) -> None:
        """A maximum with its gradient at the first of several equal positions alone would prefer a place in the bag."""
        _skip_if_ordered(loss)
        logits = some_logits(1).expand(-1, -1, K)
        _, gradient = value_and_gradient(loss, logits, labels)
        assert gradient.abs().sum() > 0
        assert_close(gradient, gradient[:, :, :1].expand(-1, -1, K))

    def test_no_class_is_preferred(self, loss: Loss, labels: Tensor) -> None:
        logits, order = some_logits(K), torch.tensor([2, 0, 1])
        channels = [*order.tolist(), C]
        value, gradient, scores, presence, probs, evidence = all_outputs(loss, logits, labels)
        by_class = scores[:, order], presence[:, order], probs[:, channels], evidence[:, order]
        renamed = value, gradient[:, channels], *by_class
        assert_close(all_outputs(loss, logits[:, channels], labels[:, order]), renamed)

    def test_masked_positions_do_not_matter(self, loss: Loss, labels: Tensor) -> None:
        logits, labels = some_logits(K), labels & MASK[:, :C]
        expected = all_outputs(loss, logits, labels, MASK)
        assert (expected[1].movedim(1, 2)[~MASK] == 0).all(), "the gradient"
        assert (expected[-1].movedim(1, 2)[~MASK] == -torch.inf).all(), "the evidence"
        for garbage in (200.0, -1e30, torch.inf, -torch.inf, torch.nan):
            changed = logits.masked_fill(~MASK.unsqueeze(1), garbage)
            assert_close(all_outputs(loss, changed, labels, MASK), expected, rtol=0, atol=0)

    def test_padding_a_batch_changes_nothing(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        padded = torch.cat([logits[:, :, :2], some_logits(3, seed=1), logits[:, :, 2:]], dim=2)
        real = torch.tensor([0, 1, 5, 6, 7, 8])
        mask = torch.zeros(B, K + 3, dtype=torch.bool)
        mask[:, real] = True
        value, gradient, scores, presence, *maps = all_outputs(loss, padded, labels, mask)
        results = (
            value,
            gradient[:, :, real],
            scores,
            presence,
            *(part[:, :, real] for part in maps),
        )
        assert_close(results, all_outputs(loss, logits, labels))

    def test_a_bag_in_a_padded_batch_is_the_bag_alone(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        logits, labels = some_logits(K), labels & MASK[:, :C]
        value, gradient, scores, presence, *maps = all_outputs(loss, logits, labels, MASK)
        for i, size in enumerate(SIZES):
            here = slice(i, i + 1)
            alone = logits[here, :, :size].clone().requires_grad_()
            assert_close(
                outputs(loss, alone),
                (scores[here], presence[here], *(part[here, :, :size] for part in maps)),
            )
            if not variant.depends_on_batch:
                alone_value = loss(alone, labels[here], None, target_for(loss, alone, labels[here]))
                (own_gradient,) = torch.autograd.grad(alone_value.sum() * WEIGHTS[i], alone)
                assert_close((alone_value[0], own_gradient[0]), (value[i], gradient[i, :, :size]))

    @pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
    def test_first_and_second_derivatives(
        self, loss: Loss, labels: Tensor, mask: Tensor | None
    ) -> None:
        labels = labels if mask is None else labels & MASK[:, :C]
        for scale in (0.5, 3.0):
            logits = some_logits(K, seed=1, scale=scale).requires_grad_()
            target = target_for(loss, logits, labels)
            # Every entry of the Jacobian where probabilities are far from alike, a random projection of it elsewhere.
            assert torch.autograd.gradcheck(
                lambda z, t=target: loss(z, labels, mask, t), logits, fast_mode=scale < 1
            )
            assert torch.autograd.gradgradcheck(
                lambda z, t=target: loss(z, labels, mask, t), logits, fast_mode=True
            )

    def test_finite_at_extreme_logits(self, loss: Loss, variant: Variant) -> None:
        for logits in extreme_logits():
            for classes in itertools.product([False, True], repeat=C):
                if variant.one_class and sum(classes) != 1:
                    continue
                results = value_and_gradient(loss, logits, torch.tensor([classes] * B))
                assert all(part.isfinite().all() for part in results), (logits, classes)
            scores, presence, probs, evidence = outputs(loss, logits)
            assert not any(part.isnan().any() for part in (scores, evidence)), logits
            assert all(part.isfinite().all() for part in (presence, probs)), logits

    def test_deterministic_and_without_side_effects(self, loss: Loss, labels: Tensor) -> None:
        logits, labels, mask = some_logits(K), labels & MASK[:, :C], MASK.clone()
        before = labels.clone()
        first, again = (all_outputs(loss, logits, labels, mask) for _ in range(2))
        assert all(map(torch.equal, again, first))
        assert all(map(torch.equal, (logits, labels, mask), (some_logits(K), before, MASK)))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision_is_computed_in_float32(
        self, loss: Loss, labels: Tensor, dtype: torch.dtype
    ) -> None:
        logits = some_logits(K).to(dtype)
        value, gradient = value_and_gradient(loss, logits.float(), labels)
        assert value.dtype == torch.float32
        assert_close(
            value_and_gradient(loss, logits, labels), (value, gradient.to(dtype)), rtol=0, atol=0
        )
        assert all(t.dtype == torch.float32 for t in outputs(loss, logits))

    def test_autocast_changes_nothing(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K, dtype=torch.float32)
        expected = all_outputs(loss, logits, labels)
        with torch.autocast("cpu", torch.bfloat16):
            results = all_outputs(loss, logits, labels)
        assert all(map(torch.equal, results, expected))

    def test_float32_agrees_with_float64(self, loss: Loss, labels: Tensor) -> None:
        logits = some_logits(K)
        single, double = (
            value_and_gradient(loss, logits.float(), labels),
            value_and_gradient(loss, logits, labels),
        )
        assert all(part.dtype == torch.float32 for part in single)
        assert_close(single, double, rtol=1e-5, atol=1e-6, check_dtype=False)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_a_gpu_agrees_with_the_cpu(self, loss: Loss, labels: Tensor) -> None:
        logits, labels = some_logits(K), labels & MASK[:, :C]
        on_gpu = all_outputs(loss, logits.cuda(), labels.cuda(), MASK.cuda())
        assert all(part.is_cuda for part in on_gpu)
        assert_close(on_gpu, all_outputs(loss, logits, labels, MASK), check_device=False)

    def test_its_weights_depend_on_the_seed_and_are_trained(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            again = variant.load().state_dict()
        assert again.keys() == loss.state_dict().keys()
        assert all(torch.equal(again[name], value) for name, value in loss.state_dict().items())
        if not (weights := dict(loss.named_parameters())):
            return
        logits = some_logits(K, dtype=torch.float32)
        loss(logits, labels, None, target_for(loss, logits, labels)).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in weights.values()), list(
            weights
        )
        assert any(p.grad is not None and p.grad.any() for p in weights.values()), list(weights)

    def test_the_class_with_the_evidence_is_named(self, loss: Loss) -> None:
        for c in range(C):
            logits = some_logits(K, seed=c, scale=1.0)
            logits[:, :C] -= (
                5.0  # no class of which there is little evidence everywhere: a mean would name it
            )
            logits[:, C] += 5.0
            logits[:, c, c] += 20.0
            scores = loss.score(logits)
            assert (scores.classes.argmax(dim=1) == c).all()
            assert (scores.presence.argmax(dim=1) == c).all()
            logits = some_logits(K)
            raised = logits + torch.eye(C + 1, dtype=logits.dtype)[c].view(1, -1, 1)
            assert (loss.score(raised).presence[:, c] > loss.score(logits).presence[:, c]).all(), (
                "it grows"
            )

    @pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
    def test_presence_is_that_of_the_label_sets_with_the_class(
        self, loss: Loss, mask: Tensor | None
    ) -> None:
        of_sets = (
            loss.label_log_prob(some_logits(K), labels.expand(B, C), mask) for labels in EVERY_SET
        )
        if not (log_probs := [log_prob for log_prob in of_sets if log_prob is not None]):
            assert not loss.presence_is_log_odds, (
                "a loss with log-odds of presence has a probability of label sets"
            )
            pytest.skip("its label sets have no probability")
        probs = torch.stack(log_probs).exp()
        assert_close(probs.sum(dim=0), torch.ones(B, dtype=torch.float64), rtol=0, atol=1e-4)
        if loss.presence_is_log_odds:
            log_odds = loss.score(some_logits(K), mask).log_odds
            assert log_odds is not None
            marginals = (probs.unsqueeze(2) * EVERY_SET.unsqueeze(1)).sum(dim=0)
            assert_close(log_odds.sigmoid(), marginals, rtol=1e-6, atol=1e-9)

    def test_instances_are_distributions_and_masked_positions_background(self, loss: Loss) -> None:
        probs = loss.score(some_logits(K), MASK).instances
        assert (probs >= 0).all()
        assert_close(probs.sum(dim=1), torch.ones(B, K, dtype=torch.float64))
        absent = probs.movedim(1, 2)[~MASK]
        assert torch.equal(
            absent, torch.tensor([0.0] * C + [1.0], dtype=torch.float64).expand_as(absent)
        )

    def test_instances_follow_the_evidence(self, loss: Loss) -> None:
        logits = torch.full((B, C + 1, K), -5.0)
        logits[:, C] = 5.0
        logits[:, 1, 2], logits[:, C, 2] = 5.0, -5.0
        best = loss.score(logits).instances.argmax(dim=1)
        assert (best[:, 2] == 1).all()
        if loss.head != "class":  # with this head every position has the class of the bag
            assert torch.equal(best, torch.tensor([C, C, 1, C, C, C]).expand(B, K))

    def test_evidence_is_strongest_where_the_class_is(self, loss: Loss) -> None:
        logits = some_logits(K, scale=0.1)
        logits[:, C] += 5.0
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
        mask = MASK.clone()
        mask[2] = False
        value, gradient = value_and_gradient(loss, some_logits(K), labels & MASK[:, :C], mask)
        assert value.isfinite().all()
        assert gradient.isfinite().all()
        assert (gradient[2] == 0).all()
        assert not any(t.isnan().any() for t in outputs(loss, some_logits(K), mask))

    def test_unchecked_an_empty_bag_leaves_no_nan_on_the_way_back(
        self, loss: Loss, labels: Tensor
    ) -> None:
        """Where anomalies are detected, a NaN raises even if it is masked out before it reaches the logits."""
        loss.validate = False
        labels, mask = labels & MASK[:, :C], MASK.clone()
        mask[0] = False
        logits = some_logits(K).requires_grad_()
        target = target_for(loss, logits, labels)
        with torch.autograd.detect_anomaly():
            loss(logits, labels, mask, target).sum().backward()
        assert logits.grad is not None

    def test_unchecked_an_empty_bag_does_not_change_others(
        self, loss: Loss, labels: Tensor, variant: Variant
    ) -> None:
        """Its classes cannot occur: its loss may be +inf but not NaN, and the other bags keep their gradients."""
        loss.validate = False
        logits, labels, mask = some_logits(K), labels & MASK[:, :C], MASK.clone()
        mask[0] = False
        value, gradient = value_and_gradient(loss, logits, labels, mask)
        assert not value.isnan().any()
        assert value[1:].isfinite().all()
        assert gradient.isfinite().all()
        assert (gradient[0] == 0).all()
        if not variant.depends_on_batch:
            fine_value, fine_gradient = value_and_gradient(loss, logits, labels, MASK)
            assert_close((value[1:], gradient[1:]), (fine_value[1:], fine_gradient[1:]))


def _skip_if_ordered(loss: Loss) -> None:
    if loss.supervision == "order":
        pytest.skip("its positions have an order")


def some_logits(
    *positions: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0
) -> Tensor:
    """Return (B, C+1, *positions) logits without ties."""
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(B, C + 1, *positions, generator=rng, dtype=torch.float64)).to(dtype)


def target_for(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a target that fits the label sets, for a loss that needs one.

    It is permuted as logits and labels are, so that tests need not permute it. count: each class of the label set once.
    position: the least probable of background and the classes of the label set. order: these classes by their logits at
    the first position.
    """
    if not loss.takes_target:
        return None
    if loss.supervision == "count":
        return labels.long()
    if loss.supervision == "position":
        allowed = torch.cat(
            [labels.bool(), torch.ones_like(labels[:, :1], dtype=torch.bool)], dim=1
        )
        absent = ~allowed.view(*allowed.shape, *[1] * (logits.ndim - 2))
        return logits.detach().masked_fill(absent, torch.inf).argmin(dim=1)
    first = logits.detach().flatten(2)[:, :-1, 0] if logits.ndim > 2 else logits.detach()[:, :-1]
    ranked = first.argsort(dim=1)
    return ranked.masked_fill(~labels.bool().gather(1, ranked), -1)


def value_and_gradient(
    loss: Loss, logits: Tensor, labels: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the losses (B,) and the gradient of their weighted sum."""
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels, mask, target_for(loss, logits, labels))
    (gradient,) = torch.autograd.grad((value * WEIGHTS.to(value)).sum(), leaf)
    return value.detach(), gradient


def outputs(
    loss: Loss, logits: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the loss says of classes, presence, instances and evidence."""
    scores = loss.score(logits, mask)
    return scores.classes, scores.presence, scores.instances, scores.evidence


def all_outputs(
    loss: Loss, logits: Tensor, labels: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return value, gradient and all outputs."""
    return *value_and_gradient(loss, logits, labels, mask), *outputs(loss, logits, mask)


def extreme_logits() -> Iterator[Tensor]:
    """Yield float32 logits of +-200, as a diverging network gives them: equal, random, and one channel against all."""
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
