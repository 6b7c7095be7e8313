"""What a board is told of a finished study: what was asked, by whom, how good for whom, at what price.

`study_sections`, `published`, `forecast_section` and `tripod` say it from public things alone. A hospital adds its own
figures. `page` and `paper` lay out the blocks that a report is made of.
"""

__all__ = ["blocks", "files", "forecast_section", "guarantee", "published", "study_sections", "tripod"]
