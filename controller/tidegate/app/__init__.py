"""The shell: clocks, files, servers and the loop around the pure core."""
