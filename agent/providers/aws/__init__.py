"""All that the agent knows of AWS."""
