"""Rehearsals: worlds, laws, sweeps, and the report of what each law would have cost and missed."""
