"""The silo's agent: trains at the hospital, seals what leaves, keeps the budget. Only `gate` lets anything out."""
