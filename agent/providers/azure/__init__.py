"""All that the agent knows of Azure."""
