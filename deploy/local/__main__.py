"""`python -m deploy.local`: the same as `fedward`."""

from deploy.local.cli import main

if __name__ == "__main__":
    main()
