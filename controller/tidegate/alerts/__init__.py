"""Alertmanager notifications to bounded interventions."""
