"""All that the agent knows of Google Cloud."""
