"""Decisions to processes, endpoints and receipts."""
