"""The cluster and its nodes: metadata, versions, registration, heartbeats, features."""
