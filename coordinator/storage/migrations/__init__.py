"""How the tables of the coordinator's database came to be, version by version. Alembic runs these steps in order."""

__all__: list[str] = []
