"""Load traces from files: readers, load series, and what may be done to a trace before it is rehearsed."""
