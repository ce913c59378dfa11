"""Policy and membership become a versioned, self-consistent Envoy snapshot; pure."""
