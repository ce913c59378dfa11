"""Plots and pages of a finished run."""
