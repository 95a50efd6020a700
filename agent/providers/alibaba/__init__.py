"""All that the agent knows of Alibaba Cloud."""
