"""Only whoever listens under the name is rung for, and nobody who has left."""

from __future__ import annotations

from coordinator.bells import Bells


def test_only_the_named_are_rung_for_and_each_who_listens():
    bells, heard = Bells(), []
    bells.listen("north", lambda: heard.append("north"))
    bells.listen("north", lambda: heard.append("north, too"))
    bells.listen("south", lambda: heard.append("south"))
    bells.ring(["north", "elsewhere"])
    assert heard == ["north", "north, too"]
    bells.ring(["south"])
    bells.ring([])
    assert heard[2:] == ["south"]


def test_who_has_left_hears_nothing_and_nothing_of_it_is_kept():
    bells, heard = Bells(), []
    leave = [bells.listen("north", lambda number=number: heard.append(number)) for number in range(2)]
    leave[0]()
    leave[0]()
    bells.ring(["north"])
    assert heard == [1]
    leave[1]()
    bells.ring(["north"])
    assert (heard, bells._listening) == ([1], {})


def test_one_who_listens_twice_leaves_once():
    bells, heard = Bells(), []

    class Hearer:
        def hear(self):
            heard.append(1)

    hearer = Hearer()
    leave = [bells.listen("north", hearer.hear) for _ in range(2)]
    leave[0]()
    bells.ring(["north"])
    assert heard == [1]


def test_whoever_hears_may_leave_and_listen_again_at_once():
    bells, heard = Bells(), []

    def hear():
        heard.append("north")
        leave()
        bells.listen("north", lambda: heard.append("again"))

    leave = bells.listen("north", hear)
    bells.ring(["north"])
    bells.ring(["north"])
    assert heard == ["north", "again"]
