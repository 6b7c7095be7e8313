from policies.reports.files import files
from policies.reports.page import html
from policies.reports.paper import pdf
from support.reports import WHOLE


def test_a_report_is_a_page_and_a_document():
    assert files(WHOLE, "small") == {"small.html": html(WHOLE), "small.pdf": pdf(WHOLE)}
