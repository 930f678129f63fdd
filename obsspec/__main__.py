"""`python -m obsspec` is the command `obsspec`."""

from obsspec.cli import main

main()
