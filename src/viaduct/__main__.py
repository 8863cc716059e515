"""`python -m viaduct` is the same as `viaduct`."""

from viaduct.cli import main

if __name__ == "__main__":
    main()
