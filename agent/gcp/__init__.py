"""How the agent talks to Google: the only importers of google-auth, below everything that knows what the settings are."""
