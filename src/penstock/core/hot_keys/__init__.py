"""Which keys of a topic have the most records and bytes."""
