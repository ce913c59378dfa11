"""The vocabulary of Tidegate: types only, no behaviour beyond their own invariants."""
