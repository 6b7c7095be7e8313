"""Every state of a sealed sum with a coordinator that tells everybody what it likes, and one silo that helps it.

The states are searched attempt by attempt. That loses nothing: what an honest silo does in an attempt follows from its
own promises and from words of this attempt and earlier ones, so whatever happens in a later attempt can be moved behind
it. Within an attempt each silo's behaviours are found by asking the real silo (`searched_silo`) everything, in every
order and with deaths in between. They are then combined: a reveal counts only if there are the signatures that the
silo wanted to see, and a void or a proof only if enough silos have said it. States that differ only in the names of
honest silos are one state: no decision of a silo depends on anybody's name.

The adversary holds the last silo's shares, signs whatever it likes, and reads a sum if the masks come off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations, permutations, product
from time import monotonic
from typing import NamedTuple, TypeVar

from protos.steps import Task
from silo_agent.core.bonds import Bonds
from silo_agent.core.turns import Stage, Turn
from support.searched_silo import (
    PLAN,
    Node,
    Said,
    SearchedSilo,
    Words,
    World,
    bits,
    proof_of,
    void_of,
    without_files,
)

Promised = tuple[int, int, int, int]
"""A silo between attempts: the list that binds it, when it signed that, when it revealed, and its epoch; 0 for none."""
Listed = TypeVar("Listed", int, tuple[str, ...])
Sum = tuple[int, int]
"""An opened sum: the epoch of the draws in it, and the honest silos in it."""
Voided = tuple[int, int, int]
"""A silo, the attempt up to which it has voided, and the epoch."""

Members = tuple[tuple[int, Promised, tuple[int, ...]], ...]
"""Silos that are shown one roster: number, how they stand, and the voids that can be shown."""
Change = tuple[int, bool, bool, bool]
"""What an attempt has changed at a silo: its list, whether it signed and revealed, and whether a reveal counts."""
Outcome = tuple[tuple[Promised, ...], frozenset[Sum], bool, str]
"""How these silos stand afterwards, what is opened, whether a sum is proven to be spoilt, and how it came to that."""


class State(NamedTuple):
    """Everything that matters of the past between two attempts."""

    silos: tuple[Promised, ...]
    voids: frozenset[Voided]
    proofs: frozenset[int]
    sums: frozenset[Sum]


@dataclass(frozen=True)
class Behaviour:
    """What one silo says in an attempt, and how it stands afterwards."""

    said: Said
    after: Promised


@dataclass
class Found:
    """What a search has found."""

    states: int = 0
    steps: int = 0
    """Combinations of behaviours that were looked at."""
    sums: int = 0
    """States in which a sum is open."""
    voided: int = 0
    """States in which a silo has voided."""
    renewed: int = 0
    """States with a proof that a sum was spoilt."""
    seconds: float = 0.0
    fault: str = ""
    """What is broken, and how it comes to that, one attempt a line; empty if nothing is."""


@dataclass
class Search:
    """One search."""

    world: World
    attempts: int
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        honest = self.world.honest
        self.silos = [SearchedSilo(self.world, number) for number in range(honest)]
        self._parents: dict[State, tuple[State, str]] = {}
        self._orders = []
        for order in permutations(range(honest)):
            moved = [sum(1 << order[n] for n in bits(mask & (1 << honest) - 1)) for mask in range(1 << honest)]
            colluder = self.world.colluder
            self._orders.append((order, [moved[mask & colluder - 1] | mask & colluder for mask in range(2 * colluder)]))
        self._canonical = cache(self._all_canonical)
        self._moods = cache(self._all_moods)
        self._behaviours = cache(self._all_behaviours)
        self._of_any_roster = cache(self._all_of_any_roster)
        self._combined = cache(self._all_combined)
        self._accepts_proof = cache(self._takes_proof)
        self._accepts_void = cache(self._takes_void)

    def run(self) -> Found:
        """Search all states. Stops at the first that breaks something."""
        began, start = monotonic(), State(((0,) * 4,) * self.world.honest, frozenset(), frozenset(), frozenset())
        layer = {start}
        self.found.states = 1
        with without_files(self.world):
            for attempt in range(1, self.attempts + 1):
                layer = self._after(layer, attempt)
                if self.found.fault:
                    break
        self.found.seconds = monotonic() - began
        return self.found

    def _after(self, layer: set[State], attempt: int) -> set[State]:
        moods: set[State] = set()
        for state in layer:
            for following, words in self._moods_of(state, attempt):
                self._keep(moods, state, following, words)
        moods = most(moods)
        after: set[State] = set()
        for state in moods:
            for following, words in self._sums_of(state, attempt):
                kept = self._keep(after, state, following, words)
                if kept is not None and (why := broken(self.world, kept.sums)):
                    self.found.fault = self._told(kept, why)
                    return after
        after = most(after)
        self.found.states += len(after)
        self.found.sums += sum(bool(state.sums) for state in after)
        self.found.voided += sum(bool(state.voids) for state in after)
        self.found.renewed += sum(bool(state.proofs) for state in after)
        return after

    def _keep(self, into: set[State], before: State, raw: State, words: str) -> State | None:
        state = self._canonical(raw)
        if state in into:
            return None
        into.add(state)
        if state != before:
            self._parents.setdefault(state, (before, words))
        return state

    def _told(self, state: State, why: str) -> str:
        """How it comes to a state. Honest silos may change names from one line to the next."""
        lines = [f"Then {why}."]
        while state in self._parents:
            state, words = self._parents[state]
            lines.append(words)
        return "\n".join(reversed(lines))

    def _all_canonical(self, state: State) -> State:
        """The first of all states that differ from this one only in the names of honest silos."""
        least: tuple[object, ...] | None = None
        best = state
        for order, moved in self._orders:
            silos: list[Promised] = [state.silos[0]] * len(order)
            for number, (listed, *rest) in enumerate(state.silos):
                silos[order[number]] = (moved[listed], *rest)  # type: ignore[assignment]
            key = (
                tuple(silos),
                tuple(sorted((order[silo], through, after) for silo, through, after in state.voids)),
                tuple(sorted((epoch, moved[names]) for epoch, names in state.sums)),
            )
            if least is None or key < least:
                least, best = key, State(key[0], frozenset(key[1]), state.proofs, frozenset(key[2]))
        return best

    # --- offers and voids -----------------------------------------------------------------------------------------
    def _moods_of(self, state: State, attempt: int) -> Iterator[tuple[State, str]]:
        """Each silo is offered the attempt, with proofs or without, and asked to void what was before."""
        each = [self._moods(number, silo, attempt, state.proofs) for number, silo in enumerate(state.silos)]
        for chosen in product(*each):
            self.found.steps += 1
            voids = state.voids.union((number, *void) for number, (_, said) in enumerate(chosen) for void in said)
            silos = tuple(after for after, _ in chosen)
            words = [
                f"{self.silos[number].name} hears of epoch {after[3]}"
                + "".join(f", voids up to {through}" for through, _ in sorted(said))
                for number, (after, said) in enumerate(chosen)
                if said or after[3] != state.silos[number][3]
            ]
            yield State(silos, voids, state.proofs, state.sums), f"attempt {attempt}: " + "; ".join(words)

    def _all_moods(
        self, number: int, before: Promised, attempt: int, proofs: frozenset[int]
    ) -> tuple[tuple[Promised, frozenset[tuple[int, int]]], ...]:
        silo, world = self.silos[number], self.world
        everybody = (1 << world.silos) - 1
        words = Words(world, attempt, everybody)
        begun = (Node(Turn(PLAN), self._bonds(before)), frozenset[tuple[int, int]]())
        open_, seen = [begun], {begun}
        while open_:
            node, said = open_.pop()
            nexts = []
            for proof in (None, *sorted(proofs)):
                handed = None if proof is None else proof_of(world, proof, everybody)
                nexts.append((silo.offered(node, attempt, handed), said))
            if node.turn.stage is Stage.SEATED and attempt > 1:
                silo.signature = b""
                voided = silo.asked(node, words.work(Task.VOID))
                more = {(attempt - 1, node.turn.spoilt)} if silo.signature else set()
                nexts += [(voided, said | more), (silo.asked(node, words.work(Task.VOID), dies=True), said)]
            for following, known in nexts:
                if following is not None and (following, known) not in seen:
                    seen.add((following, known))
                    open_.append((following, known))
        return tuple({(self._promised(node.bonds), said) for node, said in seen if node.turn.stage is Stage.SEATED})

    def _bonds(self, before: Promised) -> Bonds:
        listed, signed, revealed, spoilt = before
        return Bonds(self.world.named(listed), signed, revealed, spoilt=spoilt)

    def _promised(self, bonds: Bonds) -> Promised:
        listed, signed, revealed, spoilt = essence(bonds)
        return self.world.mask(listed), signed, revealed, spoilt

    # --- sums -----------------------------------------------------------------------------------------------------
    @cached_property
    def _parts(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """All ways to part the honest silos into those that are shown one roster."""
        return tuple(parted(tuple(range(self.world.honest))))

    def _rosters(self, group: Iterable[int]) -> tuple[int, ...]:
        needed = sum(1 << number for number in group)
        return tuple(
            mask for mask in range(1, 1 << self.world.silos) if mask & needed == needed and mask.bit_count() > 1
        )

    def _sums_of(self, state: State, attempt: int) -> Iterator[tuple[State, str]]:
        """Each silo is shown a roster, participants and lists, and asked whatever fits."""
        handed = self._handed(state, attempt)
        for parts in self._parts:
            known = [tuple((n, state.silos[n], handed[state.silos[n][3]]) for n in part) for part in parts]
            each = [self._of_any_roster(members, attempt) for members in known]
            for chosen in product(*each):
                self.found.steps += 1
                silos = list(state.silos)
                for part, (after, _, _, _) in zip(parts, chosen, strict=True):
                    for number, one in zip(part, after, strict=True):
                        silos[number] = one
                sums = state.sums.union(*(opened for _, opened, _, _ in chosen))
                proofs = state.proofs | ({attempt} if any(proven for _, _, proven, _ in chosen) else set())
                words = "; ".join(said for _, _, _, said in chosen if said)
                yield State(tuple(silos), state.voids, proofs, sums), f"attempt {attempt}: {words}"

    def _all_of_any_roster(self, members: Members, attempt: int) -> tuple[Outcome, ...]:
        """What can come of silos that are shown one roster, whichever it is. Rosters of the same names may differ."""
        found: dict[tuple[object, ...], Outcome] = {}
        for roster in self._rosters(number for number, _, _ in members):
            for outcome in self._all_outcomes(roster, members, attempt):
                found.setdefault(outcome[:3], outcome)
        return best(found.values())

    def _handed(self, state: State, attempt: int) -> dict[int, tuple[int, ...]]:
        """For each epoch the attempts up to which enough silos have voided, for a silo that is shown it."""
        shown: dict[int, tuple[int, ...]] = {}
        for epoch in {silo[3] for silo in state.silos}:
            signers: dict[int, int] = {}
            for number, through, after in state.voids:
                if after == epoch and through < attempt:
                    signers[through] = signers.get(through, self.world.colluder) | 1 << number
            shown[epoch] = tuple(sorted(t for t, by in signers.items() if self._accepts_void(by.bit_count())))
        return shown

    def _takes_void(self, many: int) -> bool:
        silo, words = self.silos[0], Words(self.world, 2, (1 << self.world.silos) - 1)
        node = silo.offered(Node(Turn(PLAN), Bonds()), 2, None)
        void = void_of(self.world, 1, 0, (1 << many) - 1)
        for work in (*words.before(), words.contribute(words.roster, void)):
            node = None if node is None else silo.asked(node, work)
        return node is not None and node.bonds.closed == 1

    def _all_outcomes(self, roster: int, members: Members, attempt: int) -> Iterator[Outcome]:
        """What can come of silos that are shown this roster."""
        numbers = tuple(number for number, _, _ in members)
        epochs = sorted({before[3] for _, before, _ in members})
        each, afters = [], []
        for number, before, voids in members:
            behaviours = self._behaviours(number, before, attempt, roster, voids)
            tagged = {_changed(one.after, attempt): one.after for one in behaviours}
            afters.append(tagged)
            says = frozenset((_changed(one.after, attempt), one.said) for one in behaviours)
            each.append((epochs.index(before[3]), says))
        for changes, opened, proven, words in self._combined(roster, numbers, tuple(each)):
            after = tuple(tagged[change] for tagged, change in zip(afters, changes, strict=True))
            yield after, frozenset((epochs[rank], names) for rank, names in opened), proven, words

    def _all_combined(
        self, roster: int, numbers: tuple[int, ...], each: tuple[tuple[int, frozenset[tuple[Change, Said]]], ...]
    ) -> tuple[tuple[tuple[Change, ...], frozenset[Sum], bool, str], ...]:
        """The same for silos that may say so much: what changes at each, and what is opened and proven."""
        epochs = {number: rank for number, (rank, _) in zip(numbers, each, strict=True)}
        quiet = [{change for change, one in says if one.revealed is None} for _, says in each]
        found: dict[tuple[tuple[Change, ...], frozenset[Sum], bool], str] = {
            (changes, frozenset(), False): "" for changes in product(*quiet)
        }
        for chosen in self._revealing([says for _, says in each]):
            self.found.steps += 1
            said = {number: one for number, (_, one) in zip(numbers, chosen, strict=True)}
            if all(self._quorum(one, said) for one in said.values()):
                opened, proven = readable(self.world, roster, said, epochs), self._proven(said)
                key = (tuple(change for change, _ in chosen), opened, proven)
                if key not in found:
                    found[key] = self._words(roster, said)
        return tuple((*key, words) for key, words in found.items())

    def _revealing(self, each: list[frozenset[tuple[Change, Said]]]) -> Iterator[tuple[tuple[Change, Said], ...]]:
        """All that silos may say together so that one of them can reveal: enough of them sign one list."""
        wanted: dict[int, int] = {}
        for _, one in (pair for says in each for pair in says):
            if one.revealed is not None:
                names, _, needed = one.revealed
                wanted[names] = min(needed, wanted.get(names, needed))
        for names, needed in wanted.items():
            helped = needed - (1 if names & self.world.colluder else 0)
            signing = [[pair for pair in says if names in pair[1].signed] for says in each]
            others = [[pair for pair in says if names not in pair[1].signed] for says in each]
            for chosen in product((False, True), repeat=len(each)):
                if sum(chosen) >= helped:
                    yield from product(*(signing[at] if signs else others[at] for at, signs in enumerate(chosen)))

    def _quorum(self, one: Said, said: dict[int, Said]) -> bool:
        """Whether a silo that has revealed can have seen the signatures that it wanted."""
        if one.revealed is None:
            return True
        survivors, _, needed = one.revealed
        signed = (survivors & self.world.colluder) | sum(
            1 << number for number, other in said.items() if survivors in other.signed
        )
        return (signed & survivors).bit_count() >= needed

    def _proven(self, said: dict[int, Said]) -> bool:
        """Whether enough silos can state that the sum of one list is spoilt, to those who are asked to believe it."""
        for survivors in {one.revealed[0] for one in said.values() if one.revealed and one.stated}:
            stating = sum(
                1 << n for n, one in said.items() if one.stated and one.revealed and one.revealed[0] == survivors
            )
            listed = [said.get(number) for number in bits(survivors & self.world.colluder - 1)]
            uploaded = all(one is not None and one.sent for one in listed)
            if uploaded and self._accepts_proof((stating | survivors & self.world.colluder).bit_count()):
                return True
        return False

    def _takes_proof(self, many: int) -> bool:
        signers = (1 << many) - 1
        silo = self.silos[0]
        return silo.offered(Node(Turn(PLAN), Bonds()), 2, proof_of(self.world, 1, signers)) is not None

    def _words(self, roster: int, said: dict[int, Said]) -> str:
        names = [
            f"{self.silos[number].name} contributes among {self._of(one.sent)}"
            + "".join(f", signs {self._of(names)}" for names in sorted(one.signed))
            + (f", reveals for {self._of(one.revealed[0])} of {self._of(one.revealed[1])}" if one.revealed else "")
            for number, one in said.items()
            if one.sent
        ]
        return f"roster {self._of(roster)}: {', '.join(names)}" if names else ""

    def _of(self, mask: int) -> str:
        return "+".join(self.world.named(mask))

    # --- one silo -------------------------------------------------------------------------------------------------
    def _all_behaviours(
        self, number: int, before: Promised, attempt: int, roster: int, voids: tuple[int, ...]
    ) -> tuple[Behaviour, ...]:
        """Everything that a silo may come to say in an attempt, whatever it is asked, and wherever it dies."""
        silo, words = self.silos[number], Words(self.world, attempt, roster)
        seated = silo.offered(Node(Turn(PLAN), self._bonds(before)), attempt, None)
        assert seated is not None
        found = {Behaviour(Said(), before)}
        node: Node | None = seated
        for work in words.before():
            node = None if node is None else silo.asked(node, work)
        open_ = [] if node is None else [node]
        seen = set(open_)
        while open_:
            node = open_.pop()
            found.add(Behaviour(node.said, self._promised(node.bonds)))
            for following in self._answers(silo, words, node, voids):
                if following is not None and following not in seen:
                    seen.add(following)
                    open_.append(following)
        return undominated(found)

    def _answers(self, silo: SearchedSilo, words: Words, node: Node, voids: tuple[int, ...]) -> Iterator[Node | None]:
        world, turn, me = self.world, node.turn, 1 << silo.number
        participants, survivors = world.mask(turn.participants), world.mask(turn.survivors)
        match turn.stage:
            case Stage.SHARED:
                everybody = 2 * world.colluder - 1
                shown = (None, *(void_of(world, through, turn.spoilt, everybody) for through in voids))
                for among, void, dies in product(subsets(words.roster), shown, (False, True)):
                    yield silo.asked(node, words.contribute(among, void), dies=dies)
            case Stage.SENT:
                for names, dies in product(subsets(participants), (False, True)):
                    yield silo.asked(node, words.sign(participants, names), dies=dies)
            case Stage.SIGNED:
                yield self._reveal(silo, words, node, me)
                yield silo.asked(node, words.reveal(participants, survivors, survivors), dies=True)
            case Stage.REVEALED:
                yield silo.asked(node, words.open(participants, survivors))
            case Stage.REST if node.refusal is not None:
                yield silo.asked(node, words.recount(participants, survivors))

    def _reveal(self, silo: SearchedSilo, words: Words, node: Node, me: int) -> Node | None:
        """The silo after it has revealed, with the least number of signatures that it takes for enough."""
        survivors = self.world.mask(node.turn.survivors)
        order = [me, *(1 << number for number in bits(survivors & ~me))]
        for many in range(1, len(order) + 1):
            asked = words.reveal(self.world.mask(node.turn.participants), survivors, sum(order[:many]))
            after = silo.asked(node, asked)
            if after is not None and after.said.revealed is not None:
                names, among, _ = after.said.revealed
                return replace(after, said=replace(after.said, revealed=(names, among, many)))
        return None


def _changed(after: Promised, attempt: int) -> Change:
    return after[0], after[1] == attempt, after[2] == attempt, after[2] > 0


def subsets(mask: int) -> Iterator[int]:
    """All sets of two silos or more within a set."""
    members = list(bits(mask))
    for size in range(2, len(members) + 1):
        for chosen in combinations(members, size):
            yield sum(1 << number for number in chosen)


def parted(members: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to part a set."""
    if not members:
        yield ()
        return
    first, rest = members[0], members[1:]
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            left = tuple(one for one in rest if one not in others)
            for more in parted(left):
                yield ((first, *others), *more)


def undominated(found: set[Behaviour]) -> tuple[Behaviour, ...]:
    """Those behaviours beside which no other says more and leaves the silo as it stands."""

    def less(one: Behaviour, other: Behaviour) -> bool:
        mine, theirs = one.said, other.said
        return (
            one != other
            and one.after == other.after
            and mine.dealt in (0, theirs.dealt)
            and mine.sent in (0, theirs.sent)
            and mine.signed <= theirs.signed
            and mine.revealed in (None, theirs.revealed)
            and mine.stated <= theirs.stated
            and (mine.revealed is not None or theirs.revealed is None)
        )

    return tuple(one for one in found if not any(less(one, other) for other in found))


def essence(bonds: Bonds) -> tuple[tuple[str, ...], int, int, int]:
    """What of a silo's bonds still decides anything in a later attempt: list, when signed, when revealed, epoch.

    A list or reveal that is over decides nothing, and what was voided or closed lies behind every later attempt.
    """
    listed = bonds.list
    signed = bonds.signed if listed else 0
    revealed = bonds.revealed if bonds.revealed > bonds.over else 0
    return listed, signed, revealed, bonds.spoilt


def freer(one: tuple[Listed, int, int, int], other: tuple[Listed, int, int, int]) -> bool:
    """Whether a silo that stands like `one` may do all that one may that stands like `other`.

    Both are in one epoch; `one` is bound by nothing else than `other`, and not by anything later.
    """
    unbound = not one[0] or (one[0] == other[0] and one[1] <= other[1])
    return unbound and one[2] <= other[2] and one[3] == other[3]


def all_freer(ones: tuple[Promised, ...], others: tuple[Promised, ...]) -> bool:
    """Whether each silo is freer, or stands the same."""
    return all(freer(one, other) for one, other in zip(ones, others, strict=True))


def most(states: set[State]) -> set[State]:
    """Those states beside which no other has freer silos and more that was said or opened.

    Whatever follows from one state follows from another with freer silos: a silo takes back no word.
    """
    alike: dict[tuple[int, ...], list[State]] = {}
    for state in sorted(
        states, key=lambda one: (sum(map(sum, one.silos)), -len(one.voids), -len(one.sums), -len(one.proofs), str(one))
    ):
        group = alike.setdefault(tuple(silo[3] for silo in state.silos), [])
        if not any(
            state.voids <= other.voids
            and state.proofs <= other.proofs
            and state.sums <= other.sums
            and all_freer(other.silos, state.silos)
            for other in group
        ):
            group.append(state)
    return {state for group in alike.values() for state in group}


def best(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those outcomes beside which no other has freer silos and more that was opened or proven."""
    left: list[Outcome] = []
    for one in sorted(outcomes, key=lambda outcome: (sum(map(sum, outcome[0])), -len(outcome[1]), not outcome[2])):
        if not any(one[1] <= other[1] and one[2] <= other[2] and all_freer(other[0], one[0]) for other in left):
            left.append(one)
    return tuple(left)


# --- what the adversary reads -----------------------------------------------------------------------------------------
def readable(world: World, roster: int, said: dict[int, Said], epochs: dict[int, int]) -> frozenset[Sum]:
    """The sums of honest silos' contributions that the adversary can read after an attempt in one roster.

    A silo's own mask comes off if enough shares of its key are revealed, and a pair mask if enough shares of either
    silo's attempt key are. A pair mask also cancels in the sum of both, if both hold it on under one label.
    """
    mine = 1 if roster & world.colluder else 0
    own, keys = {}, {}
    for number, one in said.items():
        me = 1 << number
        reveals = [other.revealed for other in said.values() if other.revealed]
        own[number] = one.dealt and sum(bool(names & among & me) for names, among, _ in reveals) + mine >= one.dealt
        keys[number] = one.dealt and sum(bool(among & ~names & me) for names, among, _ in reveals) + mine >= one.dealt
    held: dict[int, list[int]] = {}
    for number, one in said.items():
        others = bits(one.sent & ~(1 << number) & world.colluder - 1)
        held[number] = [other for other in others if not (keys[number] or keys.get(other))]
    usable = {number for number, one in said.items() if one.sent and own[number]}

    def cancels(one: int, other: int) -> bool:
        return other in usable and one in held[other] and epochs[one] == epochs[other]

    while covered := {one for one in usable if not all(cancels(one, other) for other in held[one])}:
        usable -= covered
    sums = set()
    while usable:
        open_, names = [usable.pop()], 0
        while open_:
            one = open_.pop()
            names |= 1 << one
            for other in held[one]:
                if other in usable:
                    usable.discard(other)
                    open_.append(other)
        sums.add((epochs[next(bits(names))], names))
    return frozenset(sums)


@cache
def broken(world: World, sums: frozenset[Sum]) -> str:
    """What of honest silos follows from these sums that never may; empty if nothing does."""
    least = world.min_silos - 1
    for epoch, names in sums:
        if names.bit_count() < least:
            return f"the sum of {'+'.join(world.named(names))} alone is read"
        for other, others in sums:
            if epoch == other and names != others and names & others:
                both = f"{'+'.join(world.named(names))} and {'+'.join(world.named(others))}"
                return f"one draw is in two opened sums, of {both}"
    return ""
