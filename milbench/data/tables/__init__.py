"""Bags of feature vectors in files: tables with a row an instance, and tables that name a file of features a bag."""
