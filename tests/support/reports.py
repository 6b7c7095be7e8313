"""A report with every kind of block, and with texts that would be markup somewhere."""

from policies.reports.blocks import (
    BarRow,
    Bars,
    BoardReport,
    Bullets,
    Card,
    Cards,
    Cell,
    Dot,
    DotRow,
    Dots,
    Paragraph,
    RiskCurve,
    RiskPoint,
    Section,
    grid,
)

NASTY = "<b>#panic()</b> & {{ 1 }} *x* $y$ @z \\ Łódź"
WHOLE = BoardReport(
    title=f"Title {NASTY}",
    purpose=NASTY,
    digest="ab" * 32,
    facts=("2 hospitals", NASTY),
    sections=(
        Section(
            f"First {NASTY}",
            (
                Paragraph(NASTY),
                Paragraph("Loud.", "warning"),
                Paragraph("Quiet.", "small"),
                Bullets((NASTY, "second")),
                Cards((Card("label", "0.5", NASTY),)),
                grid(
                    ("Whom", "AUC", "R²"),
                    [(Cell(NASTY, "first", "note"), Cell("0.8", "best"), Cell("0.7", "worst", "0.6 to 0.8"))],
                    numbers=2,
                    caption="Figures",
                ),
                grid(("", ""), [("name", NASTY)]),
            ),
        ),
        Section(
            "Second",
            (
                Dots(
                    "AUC",
                    0.5,
                    1.0,
                    (
                        DotRow("a", (Dot(0.75, 0.6, 0.9), Dot(2.0, series=1)), "0.75"),
                        DotRow("b", (), "too few"),
                    ),
                    ("ours", NASTY),
                    reference=0.5,
                ),
                Bars("epsilon", (BarRow("north", 2.0, "2 of 8", 8.0), BarRow("south", 6.0, "6 of 4", 4.0))),
                RiskCurve((RiskPoint(0.25, 0.5, 0.25, 0.75),), "Predicted 0.25, happened 0.5."),
            ),
            inside=True,
        ),
    ),
    warning="Not noised, stays inside.",
)
