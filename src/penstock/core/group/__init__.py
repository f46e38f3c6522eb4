"""The group coordinator: classic and consumer groups, and the offsets they commit. Pure."""
