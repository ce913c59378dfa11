"""Rendered Grafana boards and Prometheus rules, as code."""
