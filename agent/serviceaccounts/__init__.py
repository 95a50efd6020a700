"""What a cluster says an identity is: its ServiceAccount, watched, with its annotations; and the Events the agent posts about it."""
