"""`python -m silo_agent.cli`: the same as `fedward-silo`."""

from silo_agent.cli.main import main

if __name__ == "__main__":
    main()
