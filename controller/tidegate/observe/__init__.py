"""Prometheus and inventory to an observation."""
