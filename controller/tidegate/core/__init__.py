"""Pure decision arithmetic: need, guards, decide, explain."""
