"""What watches FedWard: rules of Prometheus, and dashboards of Grafana that `python -m deploy.monitoring` writes."""
