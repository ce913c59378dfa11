"""Engines and fleets as discrete events; pure."""
