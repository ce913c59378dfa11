"""Engine profiles made from tables of step times, benchmark logs or live histograms."""
