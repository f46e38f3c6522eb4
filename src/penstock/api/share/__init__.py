"""Share groups: membership, records, acknowledgements, offsets, and the state that is kept for them."""
