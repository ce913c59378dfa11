"""Policy and membership to a versioned, self-consistent Envoy snapshot; pure."""
