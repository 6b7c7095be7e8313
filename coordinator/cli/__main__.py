"""`python -m coordinator.cli`: the same as `fedward-coordinator`."""

from coordinator.cli.main import main

if __name__ == "__main__":
    main()
