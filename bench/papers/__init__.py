"""What published papers measured, measured again with FedWard's own parts."""
