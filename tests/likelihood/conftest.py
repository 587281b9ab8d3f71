"""Settings of hypothesis for the tests of the likelihood: the same examples in every run."""

from hypothesis import settings

settings.register_profile("likelihood", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("likelihood")
