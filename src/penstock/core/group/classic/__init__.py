"""Classic groups: JoinGroup, SyncGroup and generations. Pure."""
