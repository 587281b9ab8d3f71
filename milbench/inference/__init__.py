"""Using trained networks on new bags and pictures: load a cell, predict, and make figures."""
