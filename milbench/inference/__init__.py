"""What a trained network reads in new pictures: load a cell, predict, choose the scale, draw overlays."""
