"""Who keeps one identity fresh: the keeper asks source and provider, couriers write to the sinks."""
