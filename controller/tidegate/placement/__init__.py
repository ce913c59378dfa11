"""Pure placement of gangs of replicas on nodes."""
