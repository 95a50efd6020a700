"""The configuration: its model, how a file becomes one, what is wrong with a bad one, and how a running agent reloads it."""
