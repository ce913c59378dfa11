"""Engine profiles, step times and what one replica can carry; pure."""
