"""Consumer groups of KIP-848: heartbeats, target assignments, reconciliation. Pure."""
