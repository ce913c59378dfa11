"""Rival policies with the signature of `core.decide`; pure."""
