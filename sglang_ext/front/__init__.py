"""The front half, in the HTTP server's process: routes, buffers, time to live, budget, metrics."""
