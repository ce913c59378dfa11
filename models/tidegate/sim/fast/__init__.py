"""The compiled fleet simulator: equal to the plain one to the picosecond, and some hundred times as fast."""
