"""Rotation of one identity: the keeper calls source and provider, couriers write to the sinks."""
