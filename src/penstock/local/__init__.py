"""The nodes of a cluster on this machine: where they live, their processes, and when they are ready."""
