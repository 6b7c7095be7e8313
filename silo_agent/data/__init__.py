"""The silo's own records: read against the study's public schema, split into training and evaluation patients.

Nothing here needs torch, and nothing here leaves the silo.
"""

from silo_agent.data.errors import DataError, Fault
from silo_agent.data.images import Images
from silo_agent.data.reader import read_fitting_records, read_records
from silo_agent.data.records import Records
from silo_agent.data.split import split

__all__ = ["DataError", "Fault", "Images", "Records", "read_fitting_records", "read_records", "split"]
