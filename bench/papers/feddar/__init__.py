"""FedDAR's synthetic experiment (Zhong et al., ICLR 2023, 5.1 and B.3.1): `python -m bench.papers.feddar`."""
