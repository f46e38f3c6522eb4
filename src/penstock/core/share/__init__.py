"""Share groups (KIP-932): records of a partition that many members take, acknowledge and give back one by one."""
