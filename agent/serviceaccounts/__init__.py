"""ServiceAccounts of identities: their annotations, the watch of them, and the Events that the agent posts on them."""
