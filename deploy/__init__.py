"""What puts FedWard's parties into place: `local`, a federation on one machine, is installed; the demo is not."""
