"""The only code that touches SGLang's internals, for 0.5.14.

`tree` adapts the radix cache, `scheduler` the scheduler process, `server` the HTTP server's process,
`engines` says which engines can hold branches. Everything else in the package is plain Python.
"""
