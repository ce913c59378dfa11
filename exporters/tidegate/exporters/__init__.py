"""GPU and engine exporters."""
