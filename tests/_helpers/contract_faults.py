"""Faults put into the template of a task, each with the contract test that has to notice it."""

from __future__ import annotations

FAULTS = {
    "draws from the generator of the process": (
        "torch.randn(count, POINTS, 2, generator=rng)",
        "torch.randn(count, POINTS, 2)",
        "test_batches_depend_on_the_generator_alone",
    ),
    "has the same batches in every epoch": (
        "yield self.draw(min(32, self.bags_per_epoch - start), rng)",
        "yield self.draw(min(32, self.bags_per_epoch - start), generator(start))",
        "test_another_seed_or_epoch_gives_other_batches",
    ),
    "depends on the epochs before": (
        "        for start in range(0, self.bags_per_epoch, 32):",
        (
            "        self.drawn = getattr(self, 'drawn', 0) + 1\n        torch.rand(self.drawn, generator=rng)\n"
            "        for start in range(0, self.bags_per_epoch, 32):"
        ),
        "test_an_earlier_epoch_does_not_matter",
    ),
    "forgets the last batch": (
        "return -(-self.bags_per_epoch // 32)",
        "return self.bags_per_epoch // 33",
        "test_an_epoch_has_as_many_batches_as_it_says",
    ),
    "has labels of numbers": (
        "label_matrix(things, self.num_classes),",
        "label_matrix(things, self.num_classes).float(),",
        "test_batches_fit_together",
    ),
    "has labels that are not its instances'": (
        "label_matrix(things, self.num_classes),",
        "label_matrix(things, self.num_classes).roll(1, 1),",
        "test_label_sets_agree_with_the_truth",
    ),
    "has another class by position": (
        "position_classes=classes)",
        "position_classes=classes.roll(1, 0))",
        "test_label_sets_agree_with_the_truth",
    ),
    "has too small a bound": ("max_labels = 3", "max_labels = 1", "test_no_label_set_is_larger_than_max_labels"),
    "has a network without background": (
        "(2, 32, self.num_classes + 1)",
        "(2, 32, self.num_classes)",
        "test_the_network_fits_the_bags",
    ),
    "starts from the weights of the process": (
        "return InstanceMLP((2, 32, self.num_classes + 1), seed)",
        "return InstanceMLP((2, 32, self.num_classes + 1), torch.initial_seed())",
        "test_initial_weights_depend_on_the_seed_alone",
    ),
    "validates on its test bags": (
        "self.draw(count, generator(self.name, split))",
        "self.draw(400, generator(self.name))",
        "test_no_bag_is_in_two_splits",
    ),
    "tests on its training bags": (
        "yield self.draw(min(32, self.bags_per_epoch - start), rng)",
        "yield self.splits['test'].bags[0].part(start, start + 32)",
        "test_no_bag_is_in_two_splits",
    ),
    "is ranked by what it does not measure": (
        'primary = "posterior_error"',
        'primary = "instance_error"',
        "test_an_evaluation_has_the_metric_that_losses_are_ranked_by",
    ),
    "evaluates on bags drawn anew": (
        "        return evaluate_bags(score, self.splits,",
        (
            "        self.splits['test'] = EvalSplit((), [self.draw(9, torch.default_generator)])\n"
            "        return evaluate_bags(score, self.splits,"
        ),
        "test_an_evaluation_is_always_the_same",
    ),
    "shows other bags every time": (
        'return self.splits["test"].bags[0].part(0, 8)',
        "return self.draw(8, torch.default_generator)",
        "test_the_gallery_is_a_few_bags_always_the_same",
    ),
    "takes a parameter unchecked": (
        "bags_per_epoch: Annotated[int, Field(ge=1)] = 640",
        "bags_per_epoch=640",
        "test_a_wrong_parameter_is_one_line_that_names_it",
    ),
    "has another digest every time": (
        'return "points, drawn"',
        "return str(torch.rand(()))",
        "test_the_digest_of_the_data_is_one_line_and_always_the_same",
    ),
}
"""What a task does wrong -> text of the template my_task.py, its replacement, and the test that fails."""
FAULTS_WITHOUT_TRUTH = {
    "hides that seeds split the same bags": (
        "return 1 / (SHARE - 2)",
        "return 0.0",
        "test_the_task_says_where_seeds_split_the_same_bags",
    ),
    "has a network that sees the padding": (
        "        return InstanceMLP((FEATURES, 32, CLASSES + 1), seed)",
        (
            "        class Centred(InstanceMLP):\n"
            "            def forward(self, instances):\n"
            "                return super().forward(instances - instances.mean(dim=1, keepdim=True))\n\n"
            "        return Centred((FEATURES, 32, CLASSES + 1), seed)"
        ),
        "test_padding_does_not_reach_the_logits",
    ),
}
"""The same of the template my_task_without_truth.py."""
