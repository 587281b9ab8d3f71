"""An estimator with scikit-learn's conventions: bags and their label sets in, label sets out.

`classifier` is what users call. It reads bags (`bags`), labels (`labels`) and weights (`weights`),
makes a task of them (`task`), trains (`training`), and asks the trained network about new bags
(`prediction`).
"""

from milbench.estimator.classifier import BagClassifier

__all__ = ["BagClassifier"]
