"""The controller's state and decisions: pure."""
