"""HTTP to clouds: the one client session, one request, Retry-After, and which endpoints may be asked."""
