"""An estimator with scikit-learn's conventions, which learns from bags and their labels.

`classifier` is what users call. It reads bags (`instance_rows`), labels (`label_forms`) and weights
(`weights`), and the loss and network that it is given (`given_loss`, `given_network`). It makes a
problem of the bags (`training_bags`, `validation_bags`), trains epoch by epoch (`fit_epochs`) with
the steps of a cell (`weighted_training`), and asks the trained network about new bags
(`prediction`).
"""

from milbench.estimator.classifier import BagClassifier

__all__ = ["BagClassifier"]
