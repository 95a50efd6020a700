"""What the agent answers: everything here reads the store and may ask it, and calls no provider."""
