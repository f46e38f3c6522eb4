"""What a log keeps of its producers: state, snapshots, aborted transactions."""
