"""Personal models held close to a shared one: the Synthetic data of the adaptive-MMD paper, and two of hospitals.

`published` has the paper's table and settings, `synthetic` its data. `stack` trains all clients and methods at once
with FedWard's own terms. `hospitals` runs the same terms on heart disease and diabetes.
"""
