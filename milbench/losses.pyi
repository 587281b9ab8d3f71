# For type checkers and editors: in a checkout milbench.losses is the folder losses/. No wheel has
# this file.
from losses import *
from losses import __all__ as __all__
