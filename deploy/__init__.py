"""What is run, not imported: the demo, and what puts FedWard into a hospital. Not part of the installed packages."""
