"""Trained networks on new bags and pictures: load a cell, predict, choose the scale, draw overlays."""
