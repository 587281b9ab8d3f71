# In a checkout milbench.losses is the folder losses/: for type checkers and editors. No wheel has this file.
from losses import *
from losses import __all__ as __all__
