"""How the agent talks to Amazon: the only importers of botocore, below everything that knows what a role is."""
