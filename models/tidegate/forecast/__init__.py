"""Demand quantiles over the start-up time; pure."""
